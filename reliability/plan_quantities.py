"""Which values does the planner ask for, what does each mean, and how is it written?"""

from dataclasses import dataclass

from reliability.domain.planner.durations import spoken
from reliability.domain.planner.values import DAY_S

RATE = "mtbf"
RATE_UNITS = {
    "mtbf": "time between faults",
    "failures_per_day": "faults per day",
    "per_1000_node_days": "per 1000 node-days",
}


@dataclass(frozen=True, slots=True)
class Quantity:
    """One value: its name as the reader knows it, how it is called, what it means and what it does not."""

    name: str
    label: str
    help: str
    kind: str = "time"
    attribute: str = ""
    more: bool = False


QUANTITIES = (
    Quantity(
        "target",
        "Target",
        "The effective training rate that is wanted: the share of all time in which training goes forward, as a "
        "fraction: 0.97, not 97.",
        "number",
        "target",
    ),
    Quantity(
        "save_stall",
        "Save stall",
        "How long one save blocks training. Not the upload: what goes on beside training is the drain.",
        attribute="save_stall_s",
    ),
    Quantity(
        RATE,
        "Failure rate",
        "How often a fault stops this job while it runs, all causes together. Of the whole job, not of one GPU; "
        "counted over running time, not the calendar; planned stops are not faults. Write none for a job without "
        "faults.",
        "rate",
        "mtbf_s",
    ),
    Quantity(
        "recovery",
        "Recovery",
        "From the start of the new attempt to its first new step: load, initialise, warm up. A fault in it begins it "
        "anew. Without the steps that are done again: those are counted as rollback.",
        attribute="recovery_s",
    ),
    Quantity(
        "downtime",
        "Downtime",
        "From the fault until the new attempt starts, while nothing can fail: detect, decide, swap the node. Not what "
        "is in recovery, and not what is in cluster availability: a stop counts once.",
        attribute="downtime_s",
    ),
    Quantity(
        "drain",
        "Drain to storage",
        "From the end of the stall until the copy on storage is complete. A fault that loses the node before that "
        "goes back one save more.",
        attribute="drain_s",
    ),
    Quantity(
        "drain_ssd",
        "Drain to SSD",
        "From the end of the stall until the copy on the node's own SSD is complete.",
        attribute="drain_ssd_s",
    ),
    Quantity(
        "cluster_availability",
        "Cluster availability",
        "The share of time in which the job can run at all: maintenance of the whole cluster, power, network. Only "
        "stops that are not already in downtime.",
        "number",
        "cluster_availability",
    ),
    Quantity("nodes", "Nodes", "How many nodes the job needs. More nodes, more faults.", "number", "nodes"),
    Quantity(
        "standbys",
        "Standbys",
        "Nodes that wait to take over. With the repair time they say how often a lost node finds none; then the job "
        "waits for a repair.",
        "number",
        "standbys",
    ),
    Quantity(
        "repair",
        "Repair time",
        "From the loss of a node until it can be used again, as the mean of all ways, from a reboot to a new part.",
        attribute="repair_s",
    ),
    Quantity(
        "step_time",
        "Step time",
        "How long one training step takes; the period is told and ordered in whole steps.",
        attribute="step_s",
        more=True,
    ),
    Quantity(
        "node_share",
        "Faults that lose the node",
        "The share of faults after which memory and SSD of the node are gone, so that only storage helps: 0 to 1.",
        "number",
        "node_share",
        more=True,
    ),
    Quantity(
        "memory_share",
        "Faults that lose only memory",
        "The share of faults after which the node's memory is lost and its SSD is not, such as a reboot: 0 to 1. What "
        "is left loses no copy.",
        "number",
        "memory_share",
        more=True,
    ),
    Quantity(
        "planned_stops_per_week",
        "Planned stops per week",
        "Stops that are announced, so that a save comes first: they cost downtime and recovery, but no rollback.",
        "number",
        "planned_stops_per_s",
        more=True,
    ),
)
BY_NAME = {quantity.name: quantity for quantity in QUANTITIES}


def in_words(quantity: Quantity, value: float | None, unit: str = RATE, nodes: float | None = None) -> str:
    """Write a value so that the reader reads it back; '' for an unknown one."""
    if quantity.kind == "rate":
        return rate_in_words(value, unit, nodes)
    if value is None:
        return ""
    return spoken(value) if quantity.kind == "time" else f"{value:.6g}"


def rate_in_words(mtbf_s: float | None, unit: str, nodes: float | None) -> str:
    """Write how often faults come, in one of RATE_UNITS; '' where that takes a number of nodes that is not known."""
    if unit == RATE:
        return "none" if mtbf_s is None else spoken(mtbf_s)
    per_day = DAY_S / mtbf_s if mtbf_s else 0.0
    if unit == "failures_per_day":
        return f"{per_day:.4g}"
    return f"{1000 * per_day / nodes:.4g}" if nodes else ""
