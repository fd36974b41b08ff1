"""Plays, sessions and trajectories: judge -> agent -> sandbox, agent -> judge."""

from typing import Any

from spade_protocols.codec import Buffer
from spade_protocols.common import Ack
from spade_protocols.registry import Call, Message, Reply, message_type

PLAIN = "plain"
HINTED = "hinted"


class PlayItem(Message, frozen=True, kw_only=True):
    """Body of an item in `plays`; the item's group is the pair, so both arms of a seed are leased together."""

    trial: str
    environment: str
    arm: str
    """plain | hinted"""
    index: int
    """which pair of the trial"""
    seed: int
    """of the environment's instance"""
    purpose: str = "train"
    """train | eval"""
    hint: str = ""
    max_turns: int
    sampling_seed: int = -1
    """>= 0: fixed randomness of the policy (held-out plays)"""


@message_type("session.opened")
class SessionOpened(Reply, frozen=True, kw_only=True):
    """An episode is ready; or, with `failure`, the environment failed at reset."""

    session: str
    observation: str
    failure: str = ""
    """reason of an environment failure, or empty"""


@message_type("session.open", reply=SessionOpened)
class OpenSession(Call, frozen=True, kw_only=True):
    """Agent -> sandbox. Refused `busy` when the bounded queue is full.

    A second open of the same play and attempt answers with the same session.
    """

    play: str
    attempt: int
    environment: str
    seed: int
    holder: str
    """the agent's name: its death ends the session"""
    max_turns: int


@message_type("session.stepped")
class SessionStepped(Reply, frozen=True, kw_only=True):
    """What the environment answered, or how it failed."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    failure: str = ""
    evidence: str = ""


@message_type("session.step", reply=SessionStepped)
class StepSession(Call, frozen=True, kw_only=True):
    """Idempotent by turn: the same turn again gets the same answer. Error `unknown_session` is an infrastructure failure."""

    session: str
    turn: int
    """from 0"""
    action: str


@message_type("session.close", reply=Ack)
class CloseSession(Call, frozen=True, kw_only=True):
    """Ends a session; closing an unknown one is fine."""

    session: str


class Turn(Message, frozen=True, kw_only=True):
    """One turn for the record."""

    observation: str
    action: str
    reward: float


@message_type("trajectory.stored")
class TrajectoryStored(Reply, frozen=True, kw_only=True):
    """Durable (after fsync). `duplicate`: an earlier result of this play won."""

    duplicate: bool


@message_type("trajectory.deliver", reply=TrajectoryStored)
class DeliverTrajectory(Call, frozen=True, kw_only=True):
    """Agent -> judge's spool. The agent keeps the trajectory until the reply."""

    play: str
    trial: str
    attempt: int
    arm: str
    index: int
    purpose: str
    outcome: str
    """finished | failed"""
    ending: str
    """terminated | truncated | max_turns | context | format, or the failure's reason"""
    blame: str = ""
    """environment | infrastructure, of a failure"""
    rewards: list[float]
    terminated: bool
    turns: list[Turn]
    tokens: Buffer
    """i4: the whole context"""
    mask: Buffer
    """u1: 1 where the policy sampled"""
    logprobs: Buffer
    """f4, 0 where mask is 0"""
    versions: list[tuple[int, int, int]]
    """(weight version, start, end) spans over `tokens`, sampled tokens only"""
    temperature: float
    agent: str
    seconds: float = 0.0


class PlayResult(Message, frozen=True, kw_only=True):
    """Result of an item in `plays`."""

    outcome: str
    ending: str
    duplicate: bool = False


class PlayScore(Message, frozen=True, kw_only=True):
    """What a scorer sees of one play."""

    play: str
    arm: str
    index: int
    rewards: list[float]
    terminated: bool
    ending: str
    turns: int
    version: float
    """mean weight version of its tokens"""


@message_type("score.scored")
class TrialScore(Reply, frozen=True, kw_only=True):
    """Returns, regret, rewards and advantages of one trial."""

    returns: dict[str, float]
    """play id -> episode return"""
    advantages: dict[str, float]
    """play id -> advantage; a play that is left out is not trained"""
    designer_reward: float
    """before centring in the design group"""
    scores: dict[str, float]
    """mean_return, win_rate, regret, regret_se, plateau, blend, blend_published, in_band, version_gap ..."""


@message_type("score.trial", reply=TrialScore)
class ScoreTrial(Call, frozen=True, kw_only=True):
    """Judge -> scorer: a complete trial. Pure: the same trial gets the same score."""

    trial: str
    environment: str
    skill: str
    plays: list[PlayScore]
    settings: dict[str, Any] = {}
