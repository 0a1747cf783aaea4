"""Health: when silence counts, what proves a loss, and when our own side is suspected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.health import control_plane_suspected, liveness, two_proofs

seconds = st.floats(0, 1e6)


def test_silence_counts_from_the_last_word() -> None:
    assert not liveness(now=106.0, last_seen=100.0, listening_since=0.0, silence_s=6.0)
    assert liveness(now=106.1, last_seen=100.0, listening_since=0.0, silence_s=6.0)


def test_time_in_which_nobody_listened_is_not_the_nodes_silence() -> None:
    assert not liveness(now=700.0, last_seen=100.0, listening_since=695.0, silence_s=6.0)
    assert liveness(now=702.0, last_seen=100.0, listening_since=695.0, silence_s=6.0)


def test_a_node_never_heard_is_silent_once_we_listened_long_enough() -> None:
    assert not liveness(now=5.0, last_seen=None, listening_since=0.0, silence_s=6.0)
    assert liveness(now=7.0, last_seen=None, listening_since=0.0, silence_s=6.0)


def proofs(
    silent_for_s: float = 10.0, no_progress_for_s: float | None = None, peers_report_gone: bool = False
) -> tuple[str, ...] | None:
    return two_proofs(
        silent_for_s=silent_for_s,
        silence_s=6.0,
        no_progress_for_s=no_progress_for_s,
        proof_s=3.0,
        peers_report_gone=peers_report_gone,
    )


def test_silence_alone_proves_nothing() -> None:
    assert proofs() is None
    assert proofs(no_progress_for_s=2.0) is None


def test_silence_and_no_progress_are_two_proofs() -> None:
    found = proofs(no_progress_for_s=4.0)
    assert found is not None
    assert len(found) == 2
    assert "10.0 s" in found[0]


def test_silence_and_the_word_of_the_peers_are_two_proofs() -> None:
    assert len(proofs(peers_report_gone=True) or ()) == 2
    assert len(proofs(peers_report_gone=True, no_progress_for_s=9.0) or ()) == 3


def test_a_node_that_is_heard_from_is_never_lost() -> None:
    assert proofs(silent_for_s=6.0, no_progress_for_s=1e6, peers_report_gone=True) is None


@given(seconds, st.one_of(st.none(), seconds), st.booleans(), seconds)
def test_longer_silence_never_takes_a_proof_away(silent: float, stuck: float | None, gone: bool, more: float) -> None:
    if proofs(silent, stuck, gone) is not None:
        assert proofs(silent + more, stuck, gone) is not None


@pytest.mark.parametrize(
    ("silent", "total", "suspected"),
    [(0, 0, False), (1, 1, False), (1, 2, False), (2, 2, True), (2, 3, True), (2, 4, False), (3, 4, True)],
)
def test_most_nodes_silent_at_once_accuses_our_own_side(silent: int, total: int, suspected: bool) -> None:
    assert control_plane_suspected(silent=silent, total=total) is suspected
