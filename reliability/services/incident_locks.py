"""Who may change an incident now? Whoever holds the lock of what it belongs to: its job, its node, or all its nodes."""

from reliability.models import Incident, Job, Node


def locked(incident: Incident) -> Incident:
    """Wait for whoever judges or answers an incident, and return it read anew and locked; only in a transaction.

    The job or node comes first, as everywhere: a judge reads the incident under that lock alone, and writes it back.
    The nodes that an incident of the cluster reaches come in the order of their names, as they do where it is gathered.
    """
    if incident.job_id is not None:
        Job.objects.select_for_update(no_key=True).get(pk=incident.job_id)
    elif incident.node_id is not None:
        Node.objects.select_for_update(no_key=True).get(pk=incident.node_id)
    else:
        reached = Node.objects.filter(name__in=incident.reach.get("nodes", ()))
        list(reached.select_for_update(no_key=True).order_by("name"))
    return Incident.objects.select_for_update().get(pk=incident.pk)
