from hypothesis import given
from hypothesis import strategies as st

from spade_actors.runtime.follow import Follower, Verdict


def test_known_and_foreign_events_are_dropped_and_a_gap_asks_for_a_replay() -> None:
    follower = Follower(frozenset({"a"}), cursor=5)
    assert follower.on_event("a", 5, {}) is Verdict.DROP
    assert follower.on_event("b", 6, {"a": 6}) is Verdict.DROP
    assert follower.on_event("a", 7, {"a": 4, "b": 6}) is Verdict.DELIVER
    assert follower.on_event("a", 9, {"a": 7}) is Verdict.REPLAY
    assert follower.on_event("", 0, {"a": 5, "b": 99}) is Verdict.DROP
    assert follower.on_event("", 0, {"a": 6}) is Verdict.REPLAY


@given(
    history=st.lists(st.sampled_from("abc"), max_size=60),
    followed=st.sampled_from([frozenset("a"), frozenset("ab"), frozenset()]),
    start=st.integers(0, 60),
    data=st.data(),
)
def test_whatever_frames_are_lost_or_doubled_everything_arrives_once_in_order(
    history: list[str], followed: frozenset[str], start: int, data: st.DataObject
) -> None:
    """The journal has `history`; the socket loses and repeats frames; a final heartbeat closes the tail."""
    start = min(start, len(history))
    wanted = [n for n, t in enumerate(history, 1) if n > start and (not followed or t in followed)]
    follower = Follower(followed, cursor=start)
    delivered: list[int] = []

    def replay(upto: int) -> None:
        for n, type_ in enumerate(history[:upto], 1):
            if n > follower.cursor and (not followed or type_ in followed):
                delivered.append(n)
                follower.delivered(n)
        follower.delivered(upto)

    latest: dict[str, int] = {}
    for n, type_ in enumerate(history, 1):
        before = dict(latest)
        latest[type_] = n
        for _ in range(data.draw(st.integers(0, 2))):
            verdict = follower.on_event(type_, n, before)
            if verdict is Verdict.DELIVER:
                delivered.append(n)
                follower.delivered(n)
            elif verdict is Verdict.REPLAY:
                replay(n)
    if follower.behind(latest):
        replay(len(history))
    assert delivered == wanted
