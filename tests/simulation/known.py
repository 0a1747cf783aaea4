"""Simulations by another program, of about 400,000 failures each, that ours must repeat. Times in seconds."""

from dataclasses import dataclass

from reliability.domain.planner import Inputs

DAY_S = 86400.0


@dataclass(frozen=True)
class Known:
    """A job, its period from start to start, and the rate that was found with its standard error."""

    name: str
    inputs: Inputs
    period_s: float
    ettr: float
    se: float


def job(stall: float, mtbf: float, recovery: float, downtime: float = 0.0, drain: float = 0.0) -> Inputs:
    return Inputs(save_stall_s=stall, mtbf_s=mtbf, recovery_s=recovery, downtime_s=downtime, drain_s=drain, target=0.5)


def cluster(nodes: int, per_node_day: float, restart_min: float, write_min: float) -> Inputs:
    return job(60 * write_min, DAY_S / (nodes * per_node_day), 60 * restart_min)


HOURLY = 36000.0
JOBS = [
    Known("ten hours, first-order period", job(30, HOURLY, 600), 1469.69384567, 0.943851253027, 5.65609e-05),
    Known("heavy save, first-order period", job(300, DAY_S, 600), 7200.0, 0.91264075129, 7.93534e-05),
    Known("out of reach, first-order period", job(300, 10800, 900), 2545.58441227, 0.719759144963, 2.5711930e-04),
    Known("Daly 2006, figure 3", job(300, DAY_S, 600), 7301.4043996, 0.91258374928, 8.0966e-05),
    Known("Daly 2006, figure 5", job(300, 900, 600), 849.990169256, 0.199546549789, 4.9570e-04),
    Known("ten hours, optimum", job(30, HOURLY, 600), 1479.76225836, 0.94389226626, 5.82167e-05),
    Known("ten hours, upper end", job(30, HOURLY, 600), 3351.74484373, 0.929905286456, 1.02740e-04),
    Known("ten hours, lower end", job(30, HOURLY, 600), 656.530594595, 0.930032346358, 3.88378e-05),
    Known("out of reach, optimum", job(300, 10800, 900), 2649.63793824, 0.720101914627, 2.61799e-04),
    Known("a save of half an MTBF", job(1800, 3600, 300), 4313.84557434, 0.277506526909, 4.60982e-04),
    Known("with downtime", job(60, 10800, 300, 120), 1800.0, 0.854540050611, 1.84665e-04),
    Known("16,384 GPUs, hourly saves", cluster(2048, 0.0065, 5, 0), 3600.0, 0.714559924939, 4.66047e-04),
    Known(
        "12,000 GPUs, writes of 10 s",
        cluster(1500, 0.0065, 5, 1 / 6),
        60 * (7.01646415446 + 1 / 6),
        0.921522820158,
        8.76683e-05,
    ),
    Known("100,000 GPUs, two minutes", cluster(12500, 0.00234, 2, 0), 120.0, 0.940848432586, 9.18472e-05),
    Known("a drain below the period", job(5, 10800, 300, 120, 400), 605.0, 0.893504802089, 1.51590e-04),
    Known("a drain at the optimum", job(20, 72000, 180, 60, 240), 1703.74921308, 0.970072625832, 3.08596e-05),
]


@dataclass(frozen=True)
class KnownUptimes:
    """A Weibull law of the uptimes of a job; the work between saves, and the rate that was found."""

    shape: float
    inputs: Inputs
    work_s: float
    ettr: float
    se: float


UPTIMES = [
    KnownUptimes(0.7, job(30, 10800, 300, 120), 785.109938105, 0.895722924786, 1.54493e-04),
    KnownUptimes(0.7, job(30, 10800, 300, 120), 829.21795865, 0.89581055531, 1.56758e-04),
    KnownUptimes(1.5, job(60, HOURLY, 600), 2038.65490592, 0.927003702576, 5.33788e-05),
    KnownUptimes(1.5, job(60, HOURLY, 600), 2006.41663814, 0.927010863331, 5.28186e-05),
]


@dataclass(frozen=True)
class KnownPool:
    """Nodes, standbys and a repair; of failures the share without a standby, of time the share short of nodes."""

    name: str
    nodes: int
    node_mtbf_days: float
    repair_h: float
    standbys: int
    gang: tuple[float, float, float]
    gang_lognormal: tuple[float, float, float]
    fleet: tuple[float, float, float]


POOLS = [
    KnownPool(
        "1024 nodes, a day of repair", 1024, 153.846153846, 24, 12,
        (0.02136, 5.4221e-04, 0.0110178512917), (0.02037, 5.7668e-04, 0.0102848928221),
        (0.03806, 1.10447e-03, 0.0181910020549),
    ),
    KnownPool(
        "2048 nodes, two days of repair", 2048, 338.388103543, 48, 20,
        (0.01056, 5.0188e-04, 0.00606929283883), (0.01113, 4.9506e-04, 0.00633183224478),
        (0.022095, 1.02178e-03, 0.0121389727845),
    ),
    KnownPool(
        "8 nodes, one standby", 8, 60, 24, 1,
        (0.117585, 7.9452e-04, 0.00771826082532), (0.117875, 7.6235e-04, 0.00781814884311),
        (0.124175, 7.6424e-04, 0.00801674164419),
    ),
]  # fmt: skip
