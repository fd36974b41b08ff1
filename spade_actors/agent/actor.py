"""The agent role: leases plays, plays them, delivers trajectories. Thin; the episode itself is in `episode.py`.

Always holds: a lease is completed only after the judge has the trajectory durably; a failure of the machinery gives the
lease back and delivers nothing; whatever ends a play, its session is closed and its running generation aborted.
"""

import time
from typing import ClassVar

import msgspec
import trio

from spade_actors.agent.delivery import FAILED, FINISHED, trajectory
from spade_actors.agent.episode import Bounds, Episode, turn_seed
from spade_actors.agent.executors import Executors
from spade_actors.prompts.agent import ActionFormat
from spade_actors.runtime.actor import Actor
from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import CallFailed, CallTimeout, PeerGone
from spade_actors.runtime.leasing import LeasedWork
from spade_actors.sampling.client import SamplingParams
from spade_actors.sampling.errors import SamplingError
from spade_actors.sampling.servers import Conversation, Servers
from spade_actors.sampling.setup import language, spans_of
from spade_protocols.play import (
    HINTED,
    CloseSession,
    DeliverTrajectory,
    OpenSession,
    PlayItem,
    PlayResult,
    SessionOpened,
    SessionStepped,
    StepSession,
    TrajectoryStored,
)
from spade_protocols.queues import PLAYS, Completion, Leased

_OPEN_S = 60.0
_STEP_MARGIN_S = 10.0
_DELIVER_S = 30.0
_LET_GO_S = 3.0
_NO_ROOM = ("busy", "unavailable", "draining", "unhandled_type")


class Lost(Exception):
    """The machinery failed under a play; the text says what."""


class Place:
    """A session at an executor."""

    def __init__(self, name: str, address: str, session: str, observation: str, failure: str) -> None:
        self.name, self.address, self.session = name, address, session
        self.observation, self.failure = observation, failure


class Agent(Actor):
    """One agent process."""

    role: ClassVar[str] = "agent"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.config = ctx.config.agent
        self.language = language(ctx.config)
        self.servers = Servers(ctx)
        self.executors = Executors()
        self.work = LeasedWork(ctx, PLAYS, most=self.config.concurrency, least=2, gauge="plays")

    async def run(self) -> None:
        """Plays until drain; then plays still running may end within `agent.drain_s`, and the rest go back unplayed.
        Cancelled: every lease goes back at once."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.servers.follow)
            await self.ctx.ready()
            async with trio.open_nursery() as plays:
                await self.work.take(plays, self._play)
                plays.cancel_scope.deadline = trio.current_time() + self.config.drain_s
            nursery.cancel_scope.cancel()
        self.servers.close()

    async def _play(self, item: Leased) -> None:
        """One leased play to its end; never raises for what goes wrong in it."""
        try:
            play = msgspec.convert(item.body, PlayItem)
            result = await self._episode(item, play)
        except msgspec.ValidationError as error:
            await self.work.give_back(item, f"not a play: {error}")
        except (Lost, SamplingError) as error:
            await self.work.give_back(item, f"{type(error).__name__}: {error}")
        except trio.Cancelled:
            with trio.move_on_after(_LET_GO_S, shield=True):
                await self.work.give_back(item, "the agent stops", counts=False)
            raise
        else:
            body = msgspec.to_builtins(result)
            ends = await self.ctx.hub.complete(PLAYS, [Completion(id=item.id, lease=item.lease, result=body)])
            if ends.lost:
                self.ctx.metrics.count("leases_lost")

    async def _episode(self, item: Leased, play: PlayItem) -> PlayResult:
        """Plays and delivers. Raises `Lost` or `SamplingError` for a failure of the machinery."""
        started = time.time()
        bounds = Bounds(min(play.max_turns, self.config.max_turns), self.config.max_context, self.config.max_tokens)
        episode = Episode(
            self.language.chat,
            self.language.decode,
            bounds,
            hint=play.hint if play.arm == HINTED else None,
            action_format=ActionFormat(self.config.action_format),
        )
        place = await self._open(item, play, bounds.turns)
        self.executors.opened(place.name)
        try:
            failure = place.failure or await self._turns(item, play, episode, place)
        finally:
            self.executors.closed(place.name)
            if place.session:
                await self._close(place)
        message, buffers = trajectory(
            play,
            episode,
            id_=item.id,
            attempt=item.attempt,
            failure=failure.partition(":")[0],
            temperature=self.config.temperature,
            agent=self.ctx.name,
            seconds=time.time() - started,
        )
        stored = await self._deliver(message, buffers)
        self.ctx.metrics.count("episodes_failed" if failure else "episodes_finished")
        return PlayResult(outcome=FAILED if failure else FINISHED, ending=message.ending, duplicate=stored.duplicate)

    async def _turns(self, item: Leased, play: PlayItem, episode: Episode, place: Place) -> str:
        """Plays an open session to the episode's ending; returns the environment's failure, or nothing."""
        conversation = Conversation()
        step_s = self.ctx.config.sandbox.step_s + _STEP_MARGIN_S
        episode.begin(place.observation)
        while episode.ending is None:
            turn = episode.turn
            params = SamplingParams(
                max_new_tokens=episode.room,
                temperature=self.config.temperature,
                stop_token_ids=self.language.chat.stop_ids,
                seed=turn_seed(play.sampling_seed, turn),
            )
            made = await self.servers.generate(
                conversation, episode.prompt, params, rid=item.id, timeout=self.config.timeout_s
            )
            self.ctx.metrics.count("tokens_sampled", len(made.output_ids))
            self.ctx.metrics.count("turns")
            action = episode.sampled(made.output_ids, made.logprobs.tolist(), spans_of(made.version_spans))
            if action is None:
                break
            step = StepSession(session=place.session, turn=turn, action=action)
            said = await self._step(place, step, step_s)
            if said.failure:
                return f"{said.failure}: {said.evidence}"
            episode.observed(said.observation, said.reward, said.terminated, said.truncated)
        return ""

    async def _open(self, item: Leased, play: PlayItem, max_turns: int) -> Place:
        """A session, at the first executor that has room; waits while none has. Raises `Lost`."""
        message = OpenSession(
            play=item.id,
            attempt=item.attempt,
            environment=play.environment,
            seed=play.seed,
            holder=self.ctx.name,
            max_turns=max_turns,
        )
        pause = 0.05
        while True:
            peers = {peer.name: peer for peer in self.ctx.peers.of("sandbox") if peer.address}
            for name in self.executors.order(peers, trio.current_time(), item.attempt):
                address = peers[name].address
                try:
                    answer = await self.ctx.caller(address).call(message, timeout=_OPEN_S)
                except CallFailed as error:
                    if error.code not in _NO_ROOM:
                        raise Lost(f"{name} could not open a session: {error}") from None
                except (CallTimeout, PeerGone):
                    self.ctx.metrics.count("opens_unanswered")
                else:
                    opened = answer.message
                    assert isinstance(opened, SessionOpened)
                    return Place(name, address, opened.session, opened.observation, opened.failure)
                self.executors.refused(name, trio.current_time())
            with self.ctx.waits("an executor with room", on="sandbox"):
                await trio.sleep(pause)
            pause = min(1.0, 2 * pause)

    async def _step(self, place: Place, message: StepSession, timeout: float) -> SessionStepped:
        try:
            answer = await self.ctx.caller(place.address).call(message, timeout=timeout)
        except (CallTimeout, CallFailed, PeerGone) as error:
            raise Lost(f"{place.name} lost the session: {error}") from None
        assert isinstance(answer.message, SessionStepped)
        return answer.message

    async def _close(self, place: Place) -> None:
        """Ends the session; the executor would end it too, a little later."""
        with trio.move_on_after(_LET_GO_S, shield=True):
            try:
                await self.ctx.caller(place.address).call(CloseSession(session=place.session), timeout=_LET_GO_S)
            except (CallTimeout, CallFailed, PeerGone):
                self.ctx.metrics.count("closes_failed")

    async def _deliver(self, message: DeliverTrajectory, buffers: list[bytes]) -> TrajectoryStored:
        """Until the judge says it has it: an agent keeps a trajectory till then. Raises `Lost` when the judge refuses it."""
        while True:
            try:
                judge = await self.ctx.peer("judge", deadline=time.time() + _DELIVER_S)
                with self.ctx.waits("deliver a trajectory", on="judge"):
                    answer = await judge.call(message, timeout=_DELIVER_S, buffers=buffers)
            except (CallTimeout, PeerGone):
                self.ctx.metrics.count("deliveries_repeated")
            except CallFailed as error:
                if not error.retry and error.code not in ("failed", "deadline"):
                    raise Lost(f"the judge refused the trajectory: {error}") from None
                self.ctx.metrics.count("deliveries_repeated")
                await trio.sleep(0.5)
            else:
                assert isinstance(answer.message, TrajectoryStored)
                return answer.message
