"""What the database holds. No logic here: services write, selectors read."""

from reliability.models.fault_codes import FaultCodeChange
from reliability.models.jobs import Epoch, Job, Rank, Slot
from reliability.models.nodes import Hold, Lease, Node, Report, ServiceBeat, Validation
from reliability.models.parts import ShardPart
from reliability.models.plans import AutoPlan, Plan
from reliability.models.recoveries import Drill, Failover, FailoverEvent, Finding, Incident, OrderRecord
from reliability.models.retention import PlannedRemoval, RetentionRule
from reliability.models.rooms import Room
from reliability.models.snapshots import Snapshot, SnapshotCopy, SnapshotEvent, SnapshotTier
from reliability.models.trials import TrialRestore, TrialSchedule

__all__ = [
    "AutoPlan",
    "Drill",
    "Epoch",
    "Failover",
    "FailoverEvent",
    "FaultCodeChange",
    "Finding",
    "Hold",
    "Incident",
    "Job",
    "Lease",
    "Node",
    "OrderRecord",
    "Plan",
    "PlannedRemoval",
    "Rank",
    "Report",
    "RetentionRule",
    "Room",
    "ServiceBeat",
    "ShardPart",
    "Slot",
    "Snapshot",
    "SnapshotCopy",
    "SnapshotEvent",
    "SnapshotTier",
    "TrialRestore",
    "TrialSchedule",
    "Validation",
]
