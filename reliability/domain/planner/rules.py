"""Which period, and which rate, do other authors' formulas give for the same job?

They stand beside the planner's own answer for comparison, each named after its authors. All times are seconds.
"""

import math
from dataclasses import dataclass

from reliability.domain.planner.inputs import LEAST_MTBF_S, MOST_S, check

_SECONDS = "Give seconds, 0 or more."


def meta_ettr(faults_per_s: float, restart_s: float, work_s: float, write_s: float) -> float:
    """Return the expected ETTR (1 - k (u0 + dt/2)) / (1 + w/dt): k faults per second of the job, u0 restart, dt work
    between writes, w one blocking write. No unit; below 0 where it no longer holds.

    Source: Kokolis et al. 2025, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters".
    """
    _check_meta(faults_per_s, restart_s, write_s)
    check("work_s", work_s, 0.0, MOST_S, _SECONDS)
    if work_s == 0:
        return 0.0 if write_s else 1.0 - faults_per_s * restart_s
    return (1.0 - faults_per_s * (restart_s + work_s / 2)) / (1.0 + write_s / work_s)


def meta_optimum(faults_per_s: float, restart_s: float, write_s: float) -> float | None:
    """Return the work in seconds that makes meta_ettr largest, -w + sqrt(w^2 + 2 (1 - k u0) w / k).

    None without faults (the longer the better) and where restarts alone use up all time. Source: own, the derivative
    of meta_ettr.
    """
    _check_meta(faults_per_s, restart_s, write_s)
    left = 1.0 - faults_per_s * restart_s
    if faults_per_s == 0 or left <= 0:
        return None
    within = 2 * left * write_s / faults_per_s
    return within / (write_s + math.sqrt(write_s * write_s + within)) if within else 0.0


def meta_period(faults_per_s: float, write_s: float) -> float | None:
    """Return the work between writes that the paper recommends, sqrt(2 w / k) in seconds; None without faults."""
    _check_meta(faults_per_s, 0.0, write_s)
    return math.sqrt(2 * write_s / faults_per_s) if faults_per_s else None


def _check_meta(faults_per_s: float, restart_s: float, write_s: float) -> None:
    check("faults_per_s", faults_per_s, 0.0, MOST_S, "Give faults per second of the job, 0 or more.")
    check("restart_s", restart_s, 0.0, MOST_S, _SECONDS)
    check("write_s", write_s, 0.0, MOST_S, _SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job of finite length that queues before its first start and after each interruption; times in seconds.

    productive_s: training to be done; work_s: training between writes of write_s; restart_s and queue_s per start.
    Raises InvalidInput for negative values.
    """

    productive_s: float
    faults_per_s: float
    restart_s: float
    work_s: float
    write_s: float = 0.0
    queue_s: float = 0.0

    def __post_init__(self) -> None:
        _check_meta(self.faults_per_s, self.restart_s, self.write_s)
        check("productive_s", self.productive_s, LEAST_MTBF_S, MOST_S, "Give seconds above 0.")
        check("work_s", self.work_s, LEAST_MTBF_S, MOST_S, "Give seconds above 0.")
        check("queue_s", self.queue_s, 0.0, MOST_S, _SECONDS)


def ettr_with_queue(job: QueuedJob) -> float:
    """Return productive / total time to first order, P / (S (1 + k q) + q); 0 where restarts use up all time.

    S = (P (1 + w/dt) + u0) / (1 - k (u0 + dt/2)) is the scheduled time, q the queue.
    Source: derived from the definitions of Kokolis et al. 2025 (its first version, which has the queue).
    """
    faults, left = job.faults_per_s, 1.0 - job.faults_per_s * (job.restart_s + job.work_s / 2)
    if left <= 0:
        return 0.0
    scheduled = (job.productive_s * (1 + job.write_s / job.work_s) + job.restart_s) / left
    return job.productive_s / (scheduled * (1 + faults * job.queue_s) + job.queue_s)


def ettr_with_queue_exact(job: QueuedJob) -> float:
    """Return productive / expected total time for exponential faults; no unit.

    Total = (1/k + q) e^(k u0) [1 + (P/dt) (e^(k (dt + w)) - 1)] - 1/k. Source: own, as the exact exponential model.
    """
    faults, segments = job.faults_per_s, job.productive_s / job.work_s
    if faults == 0:
        total = job.queue_s + job.restart_s + segments * (job.work_s + job.write_s)
        return job.productive_s / total
    restart, segment = faults * job.restart_s, faults * (job.work_s + job.write_s)
    if restart + segment > 600:
        return 0.0
    growth = math.expm1(restart) + math.exp(restart) * segments * math.expm1(segment)
    return job.productive_s / (growth / faults + job.queue_s * (1.0 + growth))


def saxena_period(save_stall_s: float, mtbf_s: float, recovery_s: float) -> float:
    """Return the period in seconds that maximises availability, O + sqrt(2 (M + R) O + O^2).

    It depends on the recovery R, which the exact optimum does not. Source: Saxena et al. 2024, "Optimal Checkpoint
    Interval with Availability as an Objective Function".
    """
    _check_times(save_stall_s, mtbf_s)
    check("recovery_s", recovery_s, 0.0, MOST_S, _SECONDS)
    return save_stall_s + math.sqrt(save_stall_s) * math.sqrt(2 * (mtbf_s + recovery_s) + save_stall_s)


def daly_2006(save_stall_s: float, mtbf_s: float) -> float:
    """Return Daly's higher-order estimate of the work between saves in seconds; add the stall for the period.

    sqrt(2 O M) [1 + sqrt(O/2M)/3 + (O/2M)/9] - O for O < 2 M, else M. Source: Daly 2006, "A higher order estimate of
    the optimum checkpoint interval for restart dumps".
    """
    _check_times(save_stall_s, mtbf_s)
    if save_stall_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = save_stall_s / (2 * mtbf_s)
    return math.sqrt(2 * save_stall_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_stall_s


def _check_times(save_stall_s: float, mtbf_s: float) -> None:
    check("save_stall_s", save_stall_s, 0.0, MOST_S, _SECONDS)
    check("mtbf_s", mtbf_s, LEAST_MTBF_S, MOST_S, "Give seconds above 0.")
