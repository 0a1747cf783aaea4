"""Is a node heard from, what proves that it is lost, and when is our own side to blame?"""


def liveness(*, now: float, last_seen: float | None, listening_since: float, silence_s: float) -> bool:
    """Return whether a node counts as silent: nothing received for more than `silence_s` seconds.

    All instants are the server's own receive times, seconds. Time in which the server was not listening is not the
    node's silence, so the count starts at `listening_since` at the earliest.
    """
    heard = listening_since if last_seen is None else max(last_seen, listening_since)
    return now - heard > silence_s


def two_proofs(
    *,
    silent_for_s: float,
    silence_s: float,
    no_progress_for_s: float | None,
    proof_s: float,
    peers_report_gone: bool,
    lone_s: float | None = None,
) -> tuple[str, ...] | None:
    """Return the proofs, in words, that a node is lost; None while there are not two.

    Silence is always one of them: a node that is heard from is not lost, whatever its ranks do. The second comes from
    training itself: no rank made a step for more than `proof_s` seconds, or the other ranks lost the connection.
    `no_progress_for_s` is None when nothing is known of the steps, which proves nothing. `lone_s` is given when no
    other node of the job is heard, so that nobody could tell more: then a silence longer than that has to do.
    """
    if silent_for_s <= silence_s:
        return None
    proofs = [f"Nothing was heard from the node for {silent_for_s:.1f} s (limit {silence_s:g} s)."]
    if no_progress_for_s is not None and no_progress_for_s > proof_s:
        proofs.append(f"No rank of the job made a step for {no_progress_for_s:.1f} s (limit {proof_s:g} s).")
    if peers_report_gone:
        proofs.append("Ranks on other nodes report that the connection to it was lost.")
    if lone_s is not None and silent_for_s > lone_s:
        proofs.append(f"No other node of the job could tell more, and the silence is longer than {lone_s:g} s.")
    return tuple(proofs) if len(proofs) > 1 else None


def control_plane_suspected(*, silent: int, total: int) -> bool:
    """Return whether so many nodes are silent at once that our own side is the likelier cause.

    Most of the nodes, and more than one: then no node is blamed and nothing is moved.
    """
    return silent > 1 and 2 * silent > total
