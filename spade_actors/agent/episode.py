"""One episode as a state machine: what the policy sees next, what it sampled, how it ended. No tasks, sockets or clocks.

Always holds: `tokens` only grows and nothing that was sampled is tokenised again; `mask`, `logprobs` and `tokens` are of
one length; mask is 1 exactly on sampled tokens; `versions` covers exactly those. After `ending` is set nothing changes.

A turn: `prompt` and `room` go to a generator, `sampled` takes its answer and gives the action (or ends the episode),
`observed` takes the environment's answer (or ends the episode), and so on.
"""

from array import array
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from spade_actors.prompts.agent import ActionFormat, extract_action, first_message
from spade_actors.prompts.chat import Chat


class Ending(StrEnum):
    """How a finished episode ended. The first two are the environment's word, the others the policy's doing."""

    TERMINATED = "terminated"
    TRUNCATED = "truncated"
    MAX_TURNS = "max_turns"
    CONTEXT = "context"
    """no room for another answer, or the answer was cut by it"""
    FORMAT = "format"
    """the answer did not end within its tokens"""


class Bounds(NamedTuple):
    """What ends an episode: turns; tokens of the whole context; tokens of one answer."""

    turns: int
    context: int
    answer: int


class Played(NamedTuple):
    """One turn for the record."""

    observation: str
    action: str
    reward: float


class Episode:
    """The growing context of one play."""

    def __init__(
        self,
        chat: Chat,
        decode: Callable[[Sequence[int]], str],
        bounds: Bounds,
        *,
        hint: str | None = None,
        action_format: ActionFormat = ActionFormat.RAW,
    ) -> None:
        self._chat = chat
        self._decode = decode
        self._bounds = bounds
        self._hint = hint
        self._format = action_format
        self._observation = ""
        self._action = ""
        self.tokens = array("i")
        self.mask = bytearray()
        self.logprobs = array("f")
        self.versions: list[tuple[int, int, int]] = []
        self.turns: list[Played] = []
        self.rewards: list[float] = []
        self.ending: Ending | None = None

    @property
    def turn(self) -> int:
        """Number of the turn being played, from 0."""
        return len(self.turns)

    @property
    def room(self) -> int:
        """Tokens the next answer may have."""
        return min(self._bounds.answer, self._bounds.context - len(self.tokens))

    @property
    def prompt(self) -> list[int]:
        """The whole context, as the next generation's input."""
        return self.tokens.tolist()

    def begin(self, observation: str) -> Ending | None:
        """The first observation; an ending when it leaves no room for an answer."""
        self._observation = observation
        self._extend(self._chat.start(first_message(observation, self._hint, self._format)))
        return self._check_room()

    def sampled(
        self, ids: Sequence[int], logprobs: Sequence[float], spans: Sequence[tuple[int, int, int]]
    ) -> str | None:
        """An answer of the policy, with (weight version, start, end) spans over it: the action for the environment.

        None when the answer did not end in time: then the episode has ended.
        """
        start, cut_by_context = len(self.tokens), self.room < self._bounds.answer
        self.tokens.extend(ids)
        self.mask.extend(b"\x01" * len(ids))
        self.logprobs.extend(logprobs)
        self.versions.extend((version, start + first, start + last) for version, first, last in spans if last > first)
        text = self._decode(self._chat.spoken(ids))
        if not ids or ids[-1] not in self._chat.stop_ids:
            self._end_turn(text, 0.0)
            self.ending = Ending.CONTEXT if cut_by_context else Ending.FORMAT
            return None
        self._action, _ = extract_action(text, self._format)
        return self._action

    def observed(self, observation: str, reward: float, terminated: bool, truncated: bool) -> Ending | None:
        """The environment's answer to the action; an ending when the episode is over."""
        self._end_turn(self._action, reward)
        if terminated or truncated:
            self.ending = Ending.TERMINATED if terminated else Ending.TRUNCATED
        elif len(self.turns) >= self._bounds.turns:
            self.ending = Ending.MAX_TURNS
        else:
            self._observation = observation
            # Which token the sample ended with decides whether its end has to be added.
            self._extend(self._chat.follow(self.tokens[-1:].tolist(), observation))
            self._check_room()
        return self.ending

    def _end_turn(self, action: str, reward: float) -> None:
        self.turns.append(Played(self._observation, action, reward))
        self.rewards.append(reward)

    def _extend(self, ids: Sequence[int]) -> None:
        self.tokens.extend(ids)
        self.mask.extend(bytes(len(ids)))
        self.logprobs.extend([0.0] * len(ids))

    def _check_room(self) -> Ending | None:
        if self.room < 1:
            self.ending = Ending.CONTEXT
        return self.ending


def turn_seed(sampling_seed: int, turn: int) -> int | None:
    """The generator's seed for a turn of a play with fixed randomness; None when its randomness is free."""
    if sampling_seed < 0:
        return None
    return (sampling_seed * 1_000_003 + turn * 7_919 + 1) & 0x7FFFFFFF
