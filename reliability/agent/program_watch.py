"""Which steps in a program's snapshot folder are whole? The second process looks, and writes each to the SSD as shards.

What is half written is never taken for whole: a quiet period counts only while the ranks that write there live, or
when they have ended well; a step is listed again once it has been read; and one that changes after it was sealed is
thrown away and named. Every rank of a folder gets a shard, the first of them with the files in it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reliability.agent import program_aside, program_folder, program_listing, program_sealing, program_shards
from reliability.agent.clock import steady
from reliability.agent.jobrecord import JobRecord
from reliability.agent.lane import say, where_is
from reliability.agent.program_folder import Attempt, Known, ProgramFolder
from reliability.agent.program_listing import ChangedStep, Listing
from reliability.agent.program_order import ENOUGH, DoubtedStep, Late, Steps
from reliability.agent.program_sealing import Source
from reliability.domain import program_folders
from reliability.domain.program_folders import FolderRule, SealedBy
from reliability.domain.snapshots import Tier
from reliability.errors import DigestMismatch, TierError
from reliability.tiers import copying
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from reliability.tiers.step_folder import UnfitStep

LOOK_S = 0.25
STILL_S = 0.2
SELDOM_S = 10.0
FRESH_S = 60.0
SHARE_OF_TIME = 0.1
MOST_NAMED = 10
NO_STEP = "no_step_in_name"
WITHOUT_STEPS = ("runs", "logs", "lightning_logs", "wandb", "README.md", "latest", "latest_checkpointed_iteration.txt")
"""What frameworks put beside their steps by themselves."""


@dataclass
class _Seen:
    """A step that is not sealed yet: since when it has looked like this, by a clock that nobody sets."""

    stamp: str
    since: float


@dataclass(frozen=True)
class _Candidate:
    place: str
    ranks: tuple[int, ...]
    step: int
    listing: Listing
    passed_over: int = 0

    @property
    def key(self) -> str:
        return f"{self.place}/{self.listing.name}"


class ProgramWatch:
    """The snapshot folder of one job on this node."""

    def __init__(self, *, ssd_dir: Path, memory_dir: Path, ssd: DirectoryTier, job: str) -> None:
        self._folder = ProgramFolder.of(ssd_dir, job)
        self._job_folder = memory_dir / job
        self._ssd = ssd
        self._job = job
        self._attempt = Attempt()
        self._known: dict[str, Known] | None = None
        self._mine: dict[str, Known] | None = None
        self._seen: dict[str, _Seen] = {}
        self._late: dict[str, Late] = {}
        self._checked_at: dict[str, float] = {}
        self._sealed_at: dict[str, float] = {}
        self._next_look = 0.0
        self._looked_at: JobRecord | None = None
        self.at: Shard | None = None
        """The shard that was written last, or that could not be."""

    def is_done(self, record: JobRecord) -> bool:
        """Return whether all that could be sealed of a job was, as its record now is."""
        return record.snapshot_folder is None or self._looked_at == record

    def look(self, record: JobRecord) -> list[Shard]:
        """Seal one step if one is whole; return its shards on the SSD, none when there was nothing to do.

        Raises TierError when the SSD cannot take it; it is tried again.
        """
        rule = program_folders.rule_of(record.snapshot_folder)
        if rule is None or steady() < self._next_look:
            return []
        began = steady()
        try:
            return self._look(rule, record)
        finally:
            self._next_look = steady() + max(LOOK_S, (steady() - began) / SHARE_OF_TIME)

    def _look(self, rule: FolderRule, record: JobRecord) -> list[Shard]:
        attempt = self._folder.attempt()
        if not attempt.ready:
            return []
        if attempt != self._attempt:
            self._attempt, self._seen, self._late, self._mine = attempt, {}, {}, None
            program_aside.trim(self._folder.aside, rule.aside_bytes)  # here, where no start waits for it
        self._look_for_late(rule, record)
        found = [each for each in self._candidates(rule, record) if not self._is_sealed(each)]
        settling = [each for each in found if self._settles(each, rule, record)]
        whole = [each for each in settling if self._is_whole(each, rule, record)]
        whole = [each for each in whole if not self._is_doubted(each, rule)]
        if whole:
            return self._seal_newest(whole, rule)
        if not settling:
            self._looked_at = record
        return []

    def _seal_newest(self, whole: list[_Candidate], rule: FolderRule) -> list[Shard]:
        newest = max(whole, key=lambda each: each.step)
        try:
            passed_over = self._steps(newest.place, rule).between(self._newest_sealed(newest.place), newest.step)
            return self._seal(replace(newest, passed_over=passed_over))
        except ChangedStep:
            self._seen.pop(newest.key, None)
        except UnfitStep as error:
            for rank in newest.ranks:  # those without files are there already
                self._ssd.delete(Shard(self._attempt.epoch, newest.step, rank).flat_key)
            self._pass_over(newest.key, newest.step, newest.ranks[0], error)
        return []

    # What is there

    def _candidates(self, rule: FolderRule, record: JobRecord) -> Iterator[_Candidate]:
        for place, ranks in self._folder.places(rule, record.ranks).items():
            newest = self._newest_sealed(place)
            for name in program_folder.names(self._folder.out / place):
                if rule.is_unfinished(name) or f"{place}/{name}" in self._attempt.before:
                    continue
                step = rule.step_of(name)
                if step is None:
                    self._name_without_step(place, name, ranks[0])
                elif self._due(f"{place}/{name}", step, newest) and (
                    listing := self._listed(place, name, step, ranks[0])
                ):
                    yield _Candidate(place, tuple(ranks), step, listing)

    def _listed(self, place: str, name: str, step: int, rank: int) -> Listing | None:
        try:
            return program_listing.listed(self._folder.out / place, name)
        except (FileNotFoundError, ChangedStep):
            return None
        except UnfitStep as error:
            self._pass_over(f"{place}/{name}", step, rank, error)
        except OSError as error:
            with copying.tier_errors(self._folder.out / place / name):
                raise error
        return None

    def _due(self, key: str, step: int, newest: int) -> bool:
        """Whether a step is to be looked at: not one older than a sealed one, which nobody wants any more and which
        the program may be removing; sealed ones again and again, those that were sealed long ago seldom."""
        known = self._of_attempt().get(key)
        if known is None:
            return step >= newest
        if known.why_not:
            return False
        pause_s = LOOK_S if steady() - self._sealed_at.get(key, 0.0) < FRESH_S else SELDOM_S
        return steady() - self._checked_at.get(key, 0.0) >= pause_s

    def _all_known(self) -> dict[str, Known]:
        if self._known is None:
            self._known = self._folder.known()
        return self._known

    def _is_sealed(self, found: _Candidate) -> bool:
        """Whether a step was sealed; then it is looked at again."""
        if found.key not in self._of_attempt():
            return False
        self._check_again(found)
        return True

    def _newest_sealed(self, place: str) -> int:
        mine = self._of_attempt().items()
        sealed = (each.step for key, each in mine if each.stamp and key.startswith(f"{place}/"))
        return max(sealed, default=-1)

    def _of_attempt(self) -> dict[str, Known]:
        if self._mine is None:
            known = self._all_known().items()
            self._mine = {key: each for key, each in known if each.epoch == self._attempt.epoch}
        return self._mine

    def _settles(self, found: _Candidate, rule: FolderRule, record: JobRecord) -> bool:
        """Whether a step may become whole with time alone; notes since when it has looked as it does."""
        seen = self._seen.get(found.key)
        if seen is None or seen.stamp != found.listing.stamp:
            self._seen[found.key] = _Seen(found.listing.stamp, steady())
        if not found.listing.files:
            return False
        if self._is_marked(found, rule):
            return True
        if rule.sealed_by is not SealedBy.QUIET:
            return False
        if not all(self._lives(rank, record) for rank in found.ranks):
            del self._seen[found.key]  # it may have been killed while it wrote this
            return False
        return True

    def _is_whole(self, found: _Candidate, rule: FolderRule, record: JobRecord) -> bool:
        """Whether it has looked the same for long enough, also where the program says so: it may be removing it."""
        told = self._is_marked(found, rule) or self._ended_well(found.ranks, record)
        return steady() - self._seen[found.key].since >= (STILL_S if told else rule.quiet_s)

    def _is_marked(self, found: _Candidate, rule: FolderRule) -> bool:
        place = self._folder.out / found.place
        return rule.sealed_by is SealedBy.RENAME or program_folder.has_marker(place, found.listing.name, rule)

    def _lives(self, rank: int, record: JobRecord) -> bool:
        if record.started_epoch != self._attempt.epoch:
            return False
        if rank in record.ended_well:
            return True
        return record.training and rank not in record.exits_reported and program_folder.is_alive(self._job_folder, rank)

    def _ended_well(self, ranks: tuple[int, ...], record: JobRecord) -> bool:
        return record.started_epoch == self._attempt.epoch and set(ranks) <= set(record.ended_well)

    def _steps(self, place: str, rule: FolderRule) -> Steps:
        return Steps(self._folder, place, rule, self._attempt, self._of_attempt())

    def _look_for_late(self, rule: FolderRule, record: JobRecord) -> None:
        """Tell of steps that are not sealed because a higher one was; a lone one that they refute is thrown away."""
        for place, ranks in self._folder.places(rule, record.ranks).items():
            mine = {key: it for key, it in self._of_attempt().items() if key.startswith(f"{place}/") and it.stamp}
            sealed = {key: it for key, it in mine.items() if not it.why_not}
            if not sealed:
                continue
            newest = max(sealed, key=lambda key: sealed[key].step)
            step, steps = sealed[newest].step, self._steps(place, rule)
            seen = self._late.setdefault(place, Late())
            late = seen.look(newest, step, steps.unsealed())
            if len(set(late.values())) >= ENOUGH and steps.is_jump(step, set(late.values()), without=newest):
                message = f"{newest} is no step {step}: {', '.join(sorted(late)[:3])} came after it; it is thrown away."
                self._throw_away(newest, ranks, DoubtedStep(message))
                self._note(newest, Known(epoch=self._attempt.epoch, step=step, why_not=DoubtedStep.code))
            elif seen.is_news(len(late)):
                message = f"{len(late)} steps came after {newest}, are lower, and are not sealed: {sorted(late)[0]}."
                hint = f"If step {step} is none, distrust it on its page and set snapshot_folder.pattern."
                self._say(Shard(self._attempt.epoch, min(late.values()), ranks[0]), DoubtedStep(message, hint=hint))

    def _is_doubted(self, found: _Candidate, rule: FolderRule) -> bool:
        steps = self._steps(found.place, rule)
        others = set(steps.unsealed().values()) - {found.step}
        if not steps.is_jump(found.step, others):
            return False
        message = f"{found.key} would be step {found.step}, far beyond all others: it is not sealed."
        self._pass_over(found.key, found.step, found.ranks[0], DoubtedStep(message))
        return True

    # What is done

    def _seal(self, found: _Candidate) -> list[Shard]:
        made = [Shard(self._attempt.epoch, found.step, rank) for rank in found.ranks]
        twin = next((key for key, each in self._of_attempt().items() if self._is_twin(key, each, found)), None)
        if twin is not None:
            error = UnfitStep(f"{found.key} is step {found.step} as {twin} is, which was sealed already.")
            self._pass_over(found.key, found.step, found.ranks[0], error)
            return []
        source = Source(
            job=self._job,
            key=found.key,
            stamp=found.listing.stamp,
            taken_at=found.listing.written_at,
            passed_over=found.passed_over,
        )
        for shard in reversed(made):  # the one with the files last
            self.at = shard
            listing = found.listing if shard is made[0] else None
            program_sealing.put(self._ssd, shard, source, place=self._folder.out / found.place, listing=listing)
        if self._folder.attempt() != self._attempt:
            for shard in made:  # an attempt began meanwhile: whose step it was cannot be told
                self._ssd.delete(shard.flat_key)
            return []
        self._note(found.key, Known(epoch=self._attempt.epoch, step=found.step, stamp=found.listing.stamp))
        self._sealed_at[found.key] = self._checked_at[found.key] = steady()
        self._seen.pop(found.key, None)
        return made

    def _is_twin(self, key: str, known: Known, found: _Candidate) -> bool:
        return known.step == found.step and known.stamp != "" and key.startswith(f"{found.place}/")

    def _check_again(self, found: _Candidate) -> None:
        """A step that is not what was sealed any more was not whole then: it must never be restored."""
        key, known = found.key, self._all_known()[found.key]
        self._checked_at[key] = steady()
        if known.stamp == found.listing.stamp or self._only_less(found, known):
            return
        hint = "Let the program write under another name and rename, write a marker, or choose a longer quiet_s."
        message = f"{key} was changed after it was sealed as step {known.step}: that snapshot is thrown away."
        self._throw_away(key, found.ranks, DigestMismatch(message, hint=hint))
        self._note(key, replace(known, why_not="changed"))

    def _throw_away(self, key: str, ranks: Sequence[int], error: TierError) -> None:
        """Remove what was sealed under a name. Told first, and the one that shows it last: a kill has it repeated."""
        known = self._all_known()[key]
        made = [Shard(known.epoch, known.step, rank) for rank in ranks]
        for shard in made:
            self._say(shard, error, never_whole=True)
        for shard in reversed(made):
            self._ssd.throw_away(shard.flat_key)

    def _say(self, shard: Shard, error: TierError, **more: bool) -> None:
        say("snapshot_problem", self._job, {**where_is(shard), "tier": Tier.SSD, **error.detail, **more})

    def _only_less(self, found: _Candidate, known: Known) -> bool:
        """Whether the program is only removing it: all that is left is what was sealed."""
        shard = Shard(known.epoch, known.step, found.ranks[0])
        try:
            sealed = program_shards.listing_of(self._ssd.data_path(shard.flat_key))
        except TierError:
            return True  # it is gone here, or the tier itself names it: the program's files say nothing about that
        return not found.listing.changed_since(sealed)

    def _pass_over(self, key: str, step: int, rank: int, error: TierError) -> None:
        """Tell once why a step is none."""
        if key in self._of_attempt():
            return
        self._say(Shard(self._attempt.epoch, step, rank), error)
        self._note(key, Known(epoch=self._attempt.epoch, step=step, why_not=error.code))

    def _name_without_step(self, place: str, name: str, rank: int) -> None:
        key = f"{place}/{name}"
        told = [each for each in self._all_known().values() if each.why_not == NO_STEP]
        if name in WITHOUT_STEPS or key in self._all_known() or len(told) >= MOST_NAMED:
            return
        message = f"{name} in the snapshot folder of rank {rank} names no step, so it is no snapshot."
        hint = "Names like checkpoint-100 or step-100 do; a job may set snapshot_folder.pattern."
        where = {"snapshot_epoch": self._attempt.epoch, "step": None, "rank": rank, "tier": Tier.SSD}
        say("snapshot_problem", self._job, {**where, "code": NO_STEP, "message": message, "hint": hint})
        self._note(key, Known(epoch=self._attempt.epoch, step=0, why_not=NO_STEP))

    def _note(self, key: str, known: Known) -> None:
        kept = {each: it for each, it in self._all_known().items() if it.why_not == NO_STEP} | self._of_attempt()
        self._folder.keep_known({**kept, key: known})
        self._known, self._mine = {**kept, key: known}, None
