"""Is so much silence our own: the control plane's or its network's? One incident says so, and no node is blamed."""

from datetime import datetime

from reliability.domain.faults import Action, FaultClass
from reliability.models import Incident
from reliability.services import dispatch


def suspect(now: datetime, *, silent: int) -> Incident:
    """Open the one incident that says that our own side is the likelier cause of so much silence."""
    standing = Incident.objects.filter(code="control-plane", closed_at=None).first()
    if standing is not None:
        return standing
    incident = Incident.objects.create(
        code="control-plane",
        fault_class=FaultClass.UNKNOWN,
        action=Action.OBSERVE,
        summary=f"{silent} nodes fell silent at once: the control plane or its network is the likelier cause.",
        reasons=["No node is blamed and nothing is moved while most nodes are silent."],
        opened_at=now,
    )
    dispatch.changed("overview")
    return incident


def tell_away(now: datetime, *, since: datetime, seconds: float) -> None:
    """Open, once for each time it was away, the incident that says that nobody took in what the nodes told."""
    if Incident.objects.filter(code="control-plane", opened_at__gte=since).exists():
        return
    Incident.objects.create(
        code="control-plane",
        fault_class=FaultClass.UNKNOWN,
        action=Action.OBSERVE,
        summary=f"Nothing was taken in from any node for {seconds:.0f} s, since {since:%H:%M:%S} UTC: the web process "
        "was away, or the clock was set.",
        reasons=["No node is blamed for that time and nothing is moved: training went on without the control plane."],
        opened_at=now,
    )
    dispatch.changed("overview")


def clear(now: datetime) -> None:
    """Close that incident when our own side is not suspected any more."""
    closed = Incident.objects.filter(code="control-plane", closed_at=None).update(
        closed_at=now,
        close_reason="Most nodes are heard again, or those that are silent have been so for long.",
    )
    if closed:
        dispatch.changed("overview")
