"""An episode as a message: what was played is what arrives."""

import time

from spade_actors.agent.delivery import trajectory
from spade_protocols.catalog import ROLES
from spade_protocols.codec import Header, decode, encode, unpack_buffer
from spade_protocols.play import DeliverTrajectory, PlayItem
from tests.agent.test_episode import episode, say


def test_a_trajectory_survives_the_wire():
    e = episode()
    e.begin("start")
    say(e, "left", version=3)
    e.observed("wall", 0.0, False, False)
    say(e, "right", version=4)
    e.observed("", 1.0, True, False)
    play = PlayItem(trial="t", environment="e", arm="hinted", index=2, seed=5, hint="h", max_turns=9)
    message, buffers = trajectory(
        play, e, id_="t.2.h", attempt=2, failure="", temperature=0.8, agent="agent-1", seconds=1.5
    )
    header = Header(1, "call", "trajectory.deliver", "i", "r", "", "agent-1", time.time())
    got = decode(encode(header, message, buffers))
    m = got.message
    assert isinstance(m, DeliverTrajectory)
    assert m == message
    assert (m.play, m.attempt, m.outcome, m.ending, m.blame) == ("t.2.h", 2, "finished", "terminated", "")
    assert m.terminated
    assert m.rewards == [0.0, 1.0]
    assert [(t.observation, t.action, t.reward) for t in m.turns] == [("start", "left", 0.0), ("wall", "right", 1.0)]
    assert list(unpack_buffer(m.tokens, got.buffers)) == e.tokens.tolist()
    assert list(unpack_buffer(m.mask, got.buffers)) == list(e.mask)
    assert list(unpack_buffer(m.logprobs, got.buffers)) == e.logprobs.tolist()
    assert "trajectory.deliver" in ROLES["agent"].calls


def test_an_environments_failure_is_a_failed_outcome_with_its_reason():
    e = episode()
    e.begin("start")
    say(e, "left")
    play = PlayItem(trial="t", environment="e", arm="plain", index=0, seed=5, max_turns=9)
    m, _ = trajectory(play, e, id_="p", attempt=1, failure="hang", temperature=1.0, agent="a", seconds=0.0)
    assert (m.outcome, m.ending, m.blame, m.terminated, m.rewards) == ("failed", "hang", "environment", False, [])
