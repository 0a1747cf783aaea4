"""People and incidents: close one with a note, open one again, add a note, release what is held back."""

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.core.exceptions import PermissionDenied
from django.db import transaction

from reliability.errors import DomainError, InvalidInput
from reliability.models import Incident
from reliability.selectors import core
from reliability.services import clock, cluster_incidents, incident_log, incidents
from reliability.services.incident_locks import locked
from reliability.services.incident_log import Kind

CLOSING = "reliability.close_incident"
RELEASING = "reliability.approve_failover"
LONGEST_NOTE = 1000
Person = PermissionsMixin | AnonymousUser | AbstractBaseUser


def close(incident: Incident, *, by: Person, note: str) -> None:
    """Close an incident. Raises PermissionDenied, InvalidInput without a note, DomainError while it is acted on."""
    name, said = _name(by, CLOSING), _said(note)
    with transaction.atomic():
        incident = locked(incident)
        if incident.closed_at is not None:
            raise DomainError(f"Incident {incident.pk} is closed already.", hint="Load the page anew.")
        standing = core.open_failover(incident.job) if incident.job else None
        if standing is not None and standing.incident_id == incident.pk:
            raise DomainError(
                f"Recovery {standing.pk} answers this incident and is not over.",
                hint="Decide on it or let it end; the incident closes with it.",
            )
        incident.closed_at, incident.close_reason = clock.now(), f"{name}: {said}"
        incident.waits_until, incident.to_answer = None, False
        incident.save(update_fields=["closed_at", "close_reason", "waits_until", "to_answer"])
        incident_log.write(incident, Kind.CLOSED, said, actor=name)


def reopen(incident: Incident, *, by: Person, note: str) -> None:
    """Open a closed incident again.

    Raises PermissionDenied, InvalidInput, DomainError when its attempt is over or another took its place.
    """
    name, said = _name(by, CLOSING), _said(note)
    with transaction.atomic():
        incident = locked(incident)
        if incident.closed_at is None:
            raise DomainError(f"Incident {incident.pk} is open.", hint="Load the page anew.")
        _check_attempt(incident)
        incident.closed_at, incident.close_reason = None, ""
        incident.save(update_fields=["closed_at", "close_reason"])
        incident_log.write(incident, Kind.REOPENED, said, actor=name)


def _check_attempt(incident: Incident) -> None:
    """What is found of a job from now on is of its present attempt: an incident of an earlier one must not get it.

    A job has one open incident at a time, a node one for each code, and so has the cluster.
    """
    job = incident.job
    if job is None:
        rows = Incident.objects.filter(job=None, node=incident.node, code=incident.code, closed_at=None)
        standing = rows.exclude(pk=incident.pk).first()
        if standing is not None:
            raise DomainError(f"Incident {standing.pk} of the same code is open.", hint="Add a note to that one.")
        return
    if job.state in job.TERMINAL or incident.epoch != job.epoch:
        told = f"It belongs to epoch {incident.epoch} of job {job.name}, which is over."
        raise DomainError(told, hint="Add a note instead; what is found now makes an incident of its own.")
    other = core.incidents_of(job).filter(closed_at=None).first()
    if other is not None:
        raise DomainError(f"Incident {other.pk} of job {job.name} is open.", hint="A job has one at a time.")


def add_note(incident: Incident, *, by: Person, note: str) -> None:
    """Keep what a person says of an incident. Raises PermissionDenied, InvalidInput."""
    name, said = _name(by, CLOSING), _said(note)
    with transaction.atomic():
        incident_log.write(incident, Kind.NOTE, said, actor=name)


def release(incident: Incident, *, by: Person, note: str = "") -> None:
    """Have done after all what was held back for the many. Raises PermissionDenied, DomainError."""
    name = _name(by, RELEASING)
    said = note.strip()[:LONGEST_NOTE]
    if incident.job_id is None:
        cluster_incidents.release(incident, by=name, note=said)
    else:
        incidents.release_of_job(incident, by=name, note=said)


def _name(by: Person, permission: str) -> str:
    if not getattr(by, "is_active", False) or not by.has_perm(permission):  # type: ignore[union-attr]
        raise PermissionDenied(f"This needs the permission {permission.partition('.')[2]}.")
    return str(by.get_username())  # type: ignore[union-attr]


def _said(note: str) -> str:
    said = note.strip()
    if not said or len(said) > LONGEST_NOTE:
        raise InvalidInput("note", "is needed", hint=f"Say why, in at most {LONGEST_NOTE} letters.")
    return said
