"""The error tree: what can go wrong, whether trying again can help, and what the operator should do.

ReliabilityError
├── InvalidInput            a value from outside is wrong; names the field
├── DomainError
│   ├── IllegalTransition   the failover table has no such row
│   ├── NoStandby           no standby may take the slot
│   ├── NoRestorePoint      no step can be read by every rank
│   └── StaleProposal       what was shown is no longer what would happen
├── StaleEpoch              a writer of an older attempt (HTTP 409)
├── OrderRefused            forged, replayed, expired or not for this node
├── RuntimeFailure
│   ├── ContainerMissing
│   ├── ImageMissing
│   ├── FenceUnconfirmed    stop and kill did not end it within the limit
│   └── EngineUnreachable   (transient)
└── TierError
    ├── CopyMissing
    ├── DigestMismatch
    ├── TierFull
    ├── TierConflict        two jobs write to one place
    └── TierUnreachable     (transient)
"""


class ReliabilityError(Exception):
    """Base of all errors of this project.

    `code` is stable and machine readable, `transient` says whether the same call may succeed later,
    `hint` is one sentence for the operator.
    """

    code = "error"
    transient = False
    hint = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        if hint:
            self.hint = hint

    @property
    def detail(self) -> dict[str, str]:
        """The error as reports carry it."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class InvalidInput(ReliabilityError):
    """A value from outside is wrong. `field` is its dotted path, `hint` says what would be right."""

    code = "invalid_input"

    def __init__(self, field: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"{field}: {message}", hint=hint)
        self.field = field


class DomainError(ReliabilityError):
    """A rule of the domain forbids it."""

    code = "domain"


class IllegalTransition(DomainError):
    """The failover table has no row for this state and event."""

    code = "illegal_transition"


class NoStandby(DomainError):
    """No standby is left that may take the slot."""

    code = "no_standby"
    hint = "Add a standby node, or release a hold on one that is fit."


class NoRestorePoint(DomainError):
    """No step can be read by every rank."""

    code = "no_restore_point"
    hint = "The job starts again from step 0, or a person names a snapshot."


class StaleProposal(DomainError):
    """What was approved is no longer what would happen; the request was superseded."""

    code = "stale_proposal"
    hint = "Read the new request: it shows what changed."


class StaleEpoch(ReliabilityError):
    """A writer of an older attempt of the job, or of an older agent incarnation (HTTP 409)."""

    code = "stale_epoch"
    hint = "A newer attempt of this job is in charge; this one must stop."


class OrderRefused(ReliabilityError):
    """An order that must not be obeyed. `reason` is forged, replayed, expired, misdirected or stale."""

    code = "order_refused"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RuntimeFailure(ReliabilityError):
    """A container runtime did not do what was asked."""

    code = "runtime"


class ContainerMissing(RuntimeFailure):
    """There is no container of that name."""

    code = "container_missing"


class ImageMissing(RuntimeFailure):
    """The image is not on the node and cannot be pulled."""

    code = "image_missing"
    hint = "Check the image reference and that the node can reach its registry; then try again."


class FenceUnconfirmed(RuntimeFailure):
    """Stop and kill did not end the container within the limit."""

    code = "fence_unconfirmed"
    hint = "Power the node off; until then its writes are refused by epoch."


class EngineUnreachable(RuntimeFailure):
    """The container engine does not answer."""

    code = "engine_unreachable"
    transient = True
    hint = "Check the container engine of the node."


class TierError(ReliabilityError):
    """A storage tier did not do what was asked."""

    code = "tier"


class CopyMissing(TierError):
    """There is no such copy on this tier."""

    code = "copy_missing"


class DigestMismatch(TierError):
    """The bytes read are not the bytes committed."""

    code = "digest_mismatch"


class TierFull(TierError):
    """The tier has no room."""

    code = "tier_full"
    hint = "Free space on the tier or lower what is kept there; training goes on meanwhile."


class TierConflict(TierError):
    """Another writer holds this place with other content."""

    code = "tier_conflict"
    hint = "Two jobs of one name write to one storage: give each a storage_dir of its own."


class TierUnreachable(TierError):
    """The tier cannot be reached or written."""

    code = "tier_unreachable"
    transient = True
    hint = "Check the mount and its permissions; copies are tried again by themselves."
