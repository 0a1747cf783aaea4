"""Which node keeps a second copy of whose newest shards, as the slots of a job are now?"""

from reliability.domain.partners import Pairing, Place, pair
from reliability.models import Job, Slot
from reliability.selectors import core


def pairing(job: Job) -> Pairing:
    """Return who keeps whose shards. One query."""
    return pairing_of(list(core.slots_of(job)))


def pairing_of(slots: list[Slot]) -> Pairing:
    """Return who keeps whose shards among slots with their nodes."""
    return pair(
        [
            Place(slot=slot.index, node=slot.node.name, domain=slot.node.failure_domain)
            for slot in slots
            if slot.node is not None
        ]
    )
