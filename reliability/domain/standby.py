"""Which standby takes the slot, and is it fit (M3, M4)?"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Outcome of a validation. Only PASS makes a standby fit; no answer is never a pass."""

    PASS = "pass"  # noqa: S105 -- a verdict, not a password
    FAIL = "fail"
    CRASH = "crash"
    TIMEOUT = "timeout"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What is known of a standby. `validation_age_s` is None when it never passed; tier 1 is the best.

    `condition` says in words why it is not healthy, or degraded, or why it is `unknown` whether it is well: such a one
    is used when there is no other, and is checked before.
    """

    node: str
    tier: int
    healthy: bool
    degraded: bool = False
    unknown: bool = False
    condition: str = ""
    held_by: str = ""
    occupied_by: str = ""
    preemptible: bool = False
    runtime_fits: bool = True
    image_present: bool = False
    warm: bool = False
    validation: Verdict | None = None
    validation_age_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A candidate with its place and the reasons in words. `eligible` is False when it may not be used."""

    candidate: Candidate
    eligible: bool
    preempts: bool
    fresh: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PairBandwidth:
    """Measured bandwidth between two nodes in one run, bytes per second."""

    first: str
    second: str
    bytes_per_s: float


def _refusals(candidate: Candidate, max_age_s: float) -> list[str]:
    """Say why a candidate may not be used; empty when it may."""
    told = []
    if not candidate.healthy:
        told.append(f"Not healthy: {candidate.condition}" if candidate.condition else "Not healthy.")
    if candidate.held_by:
        told.append(f"Held by {candidate.held_by}.")
    if not candidate.runtime_fits:
        told.append("Its runtime cannot run this job.")
    if candidate.occupied_by and not candidate.preemptible:
        told.append(f"Occupied by job {candidate.occupied_by}, which must not be stopped.")
    if candidate.validation is Verdict.FAIL:
        told.append("Its last validation failed: it must pass a new one first.")
    elif _broke_recently(candidate, max_age_s):
        told.append(f"Its last validation ended in a {candidate.validation} {candidate.validation_age_s:.0f} s ago.")
    return told


def _broke_recently(candidate: Candidate, max_age_s: float) -> bool:
    broke = candidate.validation in (Verdict.CRASH, Verdict.TIMEOUT)
    return broke and candidate.validation_age_s is not None and candidate.validation_age_s <= max_age_s


def _is_fresh(candidate: Candidate, max_age_s: float) -> bool:
    age_s = candidate.validation_age_s
    return candidate.validation is Verdict.PASS and age_s is not None and age_s <= max_age_s


def _validation_told(candidate: Candidate, fresh: bool, max_age_s: float) -> str:
    age_s = candidate.validation_age_s
    if fresh:
        return f"Passed its validation {age_s:.0f} s ago."
    if candidate.validation is None:
        return "Never validated: it is checked before use."
    if candidate.validation is not Verdict.PASS:
        return f"Its last validation ended in a {candidate.validation}: it is checked again before use."
    if age_s is None:
        return "Passed a validation of unknown age: it is checked again before use."
    return f"Passed its validation {age_s:.0f} s ago, older than {max_age_s:.0f} s: it is checked again before use."


def _qualities(candidate: Candidate, fresh: bool, max_age_s: float) -> list[str]:
    told = [f"Tier {candidate.tier}."]
    if candidate.unknown:
        told.append(f"Not known to be well, so used only when there is no other: {candidate.condition}".rstrip(": "))
    if candidate.degraded:
        told.append(f"Degraded, so used after the others of its tier: {candidate.condition}".rstrip(": "))
    if candidate.occupied_by:
        told.append(f"Taking it would preempt job {candidate.occupied_by}, which may be stopped.")
    told.append(_validation_told(candidate, fresh, max_age_s))
    if candidate.warm:
        told.append("Its container is warm.")
    elif candidate.image_present:
        told.append("The image is on it; its container is cold.")
    else:
        told.append("The image must be fetched first.")
    return told


def _ranked(candidate: Candidate, max_age_s: float) -> Ranked:
    refusals = _refusals(candidate, max_age_s)
    fresh = _is_fresh(candidate, max_age_s)
    return Ranked(
        candidate=candidate,
        eligible=not refusals,
        preempts=bool(candidate.occupied_by) and candidate.preemptible,
        fresh=fresh,
        reasons=tuple(refusals or _qualities(candidate, fresh, max_age_s)),
    )


def _place(ranked: Ranked) -> tuple[bool, bool, int, bool, bool, bool, bool, bool, bool, str]:
    candidate = ranked.candidate
    broke = candidate.validation in (Verdict.CRASH, Verdict.TIMEOUT)
    return (
        not ranked.eligible,
        candidate.unknown,
        candidate.tier,
        ranked.preempts,
        candidate.degraded,
        broke,
        not ranked.fresh,
        not candidate.warm,
        not candidate.image_present,
        candidate.node,
    )


def rank_candidates(candidates: Iterable[Candidate], *, max_age_s: float) -> list[Ranked]:
    """Return the candidates best first, those that may not be used last, each with its reasons in words (M3).

    Those of which it is not known whether they are well come last of all that may be used. A lower tier comes after
    every usable node of a better one. Within a tier: free ones before those whose work would
    be stopped, then those that are not degraded, a validation passed at most `max_age_s` seconds ago, a warm
    container, a present image, the name.
    """
    return sorted((_ranked(candidate, max_age_s) for candidate in candidates), key=_place)


def _measured(pairs: Iterable[PairBandwidth]) -> list[float]:
    """Bandwidths that are numbers; a broken pair counts as 0, so that it cannot be left out to pass."""
    return [pair.bytes_per_s if math.isfinite(pair.bytes_per_s) else 0.0 for pair in pairs]


def _mb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.1f} MB/s"


def judge_bandwidth(candidate: str, pairs: Sequence[PairBandwidth], *, factor: float = 4.0) -> tuple[Verdict, str]:
    """Judge a candidate's network against the other pairs of the same run (M4): the verdict and why.

    Passes when the median over the candidate's pairs is at least 1/factor of the median over the pairs without it.
    Without a measurement of it, or without a reference above 0, it does not pass.
    """
    own = _measured(pair for pair in pairs if candidate in (pair.first, pair.second))
    others = _measured(pair for pair in pairs if candidate not in (pair.first, pair.second))
    if not own:
        return Verdict.FAIL, f"No bandwidth of {candidate} was measured, which is not a pass."
    reference = statistics.median(others) if others else 0.0
    if reference <= 0:
        return Verdict.FAIL, f"No pair without {candidate} was measured in the same run: nothing to compare with."
    reached = statistics.median(own)
    compared = f"{_mb(reached)} over {len(own)} {_pairs(len(own))} against {_mb(reference)} between the others"
    if reached * factor < reference:
        return Verdict.FAIL, f"{compared}: less than 1/{factor:g} of it."
    return Verdict.PASS, f"{compared}: at least 1/{factor:g} of it."


def _pairs(count: int) -> str:
    return "pair" if count == 1 else "pairs"


def _majority(digests: Sequence[str]) -> str | None:
    """The digest that more than half of the nodes gave, None when there is none."""
    if not digests:
        return None
    digest, votes = Counter(digests).most_common(1)[0]
    return digest if 2 * votes > len(digests) else None


def _judge_alone(rounds: Sequence[str], fleet: Mapping[str, Sequence[str]]) -> tuple[Verdict, str]:
    """Fewer than two others: a single other node can raise doubt, but cannot say who is wrong."""
    if len(set(rounds)) > 1:
        return Verdict.FAIL, "Its own rounds of the same computation differ."
    for node, theirs in fleet.items():
        if list(theirs[: len(rounds)]) != list(rounds):
            return Verdict.FAIL, f"It differs from {node}, the only other node, and it cannot be told which is wrong."
    with_whom = f"and with {next(iter(fleet))}" if fleet else "only with itself: no other node answered"
    return Verdict.PASS, f"All {len(rounds)} rounds agree {with_whom}; a majority needs two other nodes."


def judge_digests(candidate_rounds: Sequence[str], fleet: Mapping[str, Sequence[str]]) -> tuple[Verdict, str]:
    """Judge a candidate's results bit for bit against the majority of the fleet, round by round (M4).

    All rounds repeat the same computation. `fleet` holds the rounds of other nodes; nodes that gave none do not vote.
    One mismatch fails. With fewer than two voters the rounds are compared among themselves, and the text says so.
    """
    voters = {node: rounds for node, rounds in fleet.items() if rounds}
    if not candidate_rounds or not all(candidate_rounds):
        return Verdict.FAIL, "A round gave no result, which is not a pass."
    if len(voters) < 2:
        return _judge_alone(candidate_rounds, voters)
    for index, digest in enumerate(candidate_rounds):
        expected = _majority([rounds[index] for rounds in voters.values() if index < len(rounds)])
        if expected is None:
            return Verdict.FAIL, f"The fleet itself has no majority in round {index + 1}: nothing to compare with."
        if digest != expected:
            return Verdict.FAIL, f"Round {index + 1} of {len(candidate_rounds)} differs from the majority of the fleet."
    return Verdict.PASS, f"All {len(candidate_rounds)} rounds agree with the majority of {len(voters)} other nodes."
