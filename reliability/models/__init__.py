"""What the database holds. No logic here: services write, selectors read."""

from reliability.models.attempts import AttemptEnd, BatchSkip
from reliability.models.decisions import Decision, DecisionVerdict, ModeRule
from reliability.models.fault_codes import FaultCodeChange
from reliability.models.incident_events import IncidentEvent
from reliability.models.jobs import Epoch, Job, Rank, Slot
from reliability.models.limits import LimitChange
from reliability.models.maintenance import MaintenanceWindow
from reliability.models.monitors import MonitorState, MonitorToken
from reliability.models.node_records import NodeCheck, NodeEvent, Quarantine, QuarantineOverride
from reliability.models.nodes import Hold, Lease, Node, Report, ServiceBeat, Validation
from reliability.models.parts import ShardPart
from reliability.models.plans import AutoPlan, Plan
from reliability.models.recoveries import Drill, Failover, FailoverEvent, Finding, Incident, OrderRecord
from reliability.models.retention import PlannedRemoval, RetentionRule
from reliability.models.rooms import Room
from reliability.models.snapshots import Snapshot, SnapshotCopy, SnapshotEvent, SnapshotTier
from reliability.models.trials import TrialRestore, TrialSchedule
from reliability.models.watches import Watch

__all__ = [
    "AttemptEnd",
    "AutoPlan",
    "BatchSkip",
    "Decision",
    "DecisionVerdict",
    "Drill",
    "Epoch",
    "Failover",
    "FailoverEvent",
    "FaultCodeChange",
    "Finding",
    "Hold",
    "Incident",
    "IncidentEvent",
    "Job",
    "Lease",
    "LimitChange",
    "MaintenanceWindow",
    "ModeRule",
    "MonitorState",
    "MonitorToken",
    "Node",
    "NodeCheck",
    "NodeEvent",
    "OrderRecord",
    "Plan",
    "PlannedRemoval",
    "Quarantine",
    "QuarantineOverride",
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
    "Watch",
]
