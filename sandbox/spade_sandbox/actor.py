"""The sandbox role: serves episode sessions and runs the admission gate, over the library beside it. Thin.

Always holds: a proposal's lease is completed with the whole verdict or given back, never anything between; an environment's
failure is an answer, the machinery's an error; while the breaker is open no new work is taken, and `status` says so.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec
import trio

from spade_actors.runtime.actor import Actor
from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import CallError, CallFailed, CallTimeout, PeerGone
from spade_actors.runtime.server import CallContext
from spade_protocols.common import Ack
from spade_protocols.design import CheckDuplicate, DuplicateVerdict, Environment, GetEnvironment, ProposalItem
from spade_protocols.directory import PeerDown
from spade_protocols.play import CloseSession, OpenSession, SessionOpened, SessionStepped, StepSession
from spade_protocols.queues import PROPOSALS, Completion, Leased, Return
from spade_sandbox import gate
from spade_sandbox.admission import admission, gate_seeds
from spade_sandbox.breaker import Breaker, State
from spade_sandbox.errors import InfrastructureFailure
from spade_sandbox.limits import JailLimits
from spade_sandbox.provider import Environment as Handle
from spade_sandbox.provider import NsjailProvider, ProcessProvider
from spade_sandbox.replies import Facts
from spade_sandbox.sessions import BadTurn, Busy, SessionTable, UnknownSession

if TYPE_CHECKING:
    from spade_actors.config.schema import SandboxConfig

_MEMORY_S = 15.0
_LEASE_S = 10.0
_DRAIN_S = 25.0
_TICK_S = 1.0
_LET_GO_S = 2.0
_SOURCES = 512
_UNREACHABLE = (CallTimeout, PeerGone)


class Stored(NamedTuple):
    """An environment as memory has it."""

    source: str
    hint: str


def provider_of(config: SandboxConfig) -> NsjailProvider | ProcessProvider:
    """The configured provider; entering it raises `SandboxSetupError` where it cannot run."""
    limits = JailLimits(
        memory_mb=config.memory_mb,
        cpu_s=config.cpu_s,
        sessions=max(config.sessions, 16),
        observation_chars=config.output_bytes,
        step_s=config.step_s,
    )
    twins = max(1, config.gates)
    if config.provider == "process":
        return ProcessProvider(
            limits,
            allow_unsafe=config.allow_unsafe,
            warm=config.pool,
            twins=twins,
            keep_idle=config.keep_idle,
            fresh=config.fresh,
        )
    return NsjailProvider(limits, warm=config.pool, twins=twins, keep_idle=config.keep_idle, fresh=config.fresh)


class Sandbox(Actor):
    """One executor process."""

    role: ClassVar[str] = "sandbox"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.config = ctx.config.sandbox
        self.breaker = Breaker()
        self._sources: OrderedDict[str, Stored] = OrderedDict()

    async def run(self) -> None:
        """Serves until drain, then until the open episodes have ended or a bound has passed. Cancelled: ends every jail at once."""
        async with provider_of(self.config) as self.provider, trio.open_nursery() as nursery:
            self.nursery = nursery
            self.table = SessionTable(
                self._handle,
                slots=self.config.sessions,
                backlog=self.config.backlog,
                session_s=self.config.session_s,
                name=f"{self.ctx.name}-{self.ctx.incarnation[:8]}",
            )
            await self.ctx.serve({OpenSession: self._on_open, StepSession: self._on_step, CloseSession: self._on_close})
            await self.ctx.ready()
            nursery.start_soon(self._follow_peers)
            nursery.start_soon(self._tick)
            async with trio.open_nursery() as gates:
                for _ in range(self.config.gates):
                    gates.start_soon(self._gate_proposals)
                await self.ctx.draining.wait()
                gates.cancel_scope.cancel()
            with trio.move_on_after(_DRAIN_S):
                await self.table.emptied()
            self.table.close_all()
            nursery.cancel_scope.cancel()

    # Sessions. Handlers are plain functions with tasks of their own: opens that wait for a slot must never keep a step,
    # which would free one, from being served.

    def _on_open(self, call: CallContext) -> None:
        call.defer()
        self.nursery.start_soon(self._open, call)

    def _on_step(self, call: CallContext) -> None:
        call.defer()
        self.nursery.start_soon(self._step, call)

    def _on_close(self, call: CallContext) -> Ack:
        message = call.message
        assert isinstance(message, CloseSession)
        self.table.close(message.session)
        return Ack()

    async def _open(self, call: CallContext) -> None:
        m = call.message
        assert isinstance(m, OpenSession)

        async def opened() -> SessionOpened:
            if not self.breaker.allow(trio.current_time()):
                raise CallError(
                    "unavailable", f"the sandbox pauses after repeated failures: {self.breaker.reason}", retry=True
                )
            o = await self.table.open(m.play, m.attempt, m.environment, m.seed, m.holder, m.max_turns)
            self._went_through()
            return SessionOpened(session=o.session, observation=o.observation, failure=o.failure)

        await self._answer(call, opened)

    async def _step(self, call: CallContext) -> None:
        m = call.message
        assert isinstance(m, StepSession)

        async def stepped() -> SessionStepped:
            s = await self.table.step(m.session, m.turn, m.action)
            return SessionStepped(
                observation=s.observation,
                reward=s.reward,
                terminated=s.terminated,
                truncated=s.truncated,
                failure=s.failure,
                evidence=s.evidence,
            )

        await self._answer(call, stepped)

    async def _answer(self, call: CallContext, work: Callable[[], Awaitable[SessionOpened | SessionStepped]]) -> None:
        """Answers a deferred call with what the work gives, or with the error its failure maps to; stops at the call's deadline."""
        with trio.move_on_after(call.remaining):
            try:
                call.answer(await work())
            except CallError as error:
                call.fail(error)
            except Busy:
                self.ctx.metrics.count("refused_busy")
                call.fail(
                    CallError(
                        "busy", f"{self.ctx.name} has no slot and its queue is full; try another executor", retry=True
                    )
                )
            except UnknownSession as error:
                call.fail(CallError("unknown_session", f"session {error} has ended or never was"))
            except BadTurn as error:
                call.fail(CallError("bad_turn", str(error)))
            except InfrastructureFailure as failure:
                self._failed(failure)
                call.fail(CallError("infrastructure", str(failure), retry=True))
            except _UNREACHABLE as error:
                call.fail(CallError("memory", f"the environment could not be fetched: {error}", retry=True))
            except Exception as error:  # a fault here is the caller's answer, never the end of all other episodes
                self.ctx.log.error("handler failed", sender=call.header.sender, exc_info=error)
                self.ctx.metrics.count("handler_failures")
                call.fail(CallError("failed", f"{type(error).__name__}: {error}"[:300]))
            return
        call.fail(CallError("deadline", "the deadline passed during the work"))

    async def _handle(self, environment: str) -> Handle:
        stored = await self._stored(environment)
        return await self.provider.environment(stored.source)

    async def _stored(self, environment: str) -> Stored:
        """Source and hint by content hash, from memory, kept for a while. Raises the runtime's call errors."""
        known = self._sources.get(environment)
        if known is None:
            memory = await self.ctx.peer("memory", deadline=time.time() + _MEMORY_S)
            answer = await memory.call(GetEnvironment(environment=environment), timeout=_MEMORY_S)
            assert isinstance(answer.message, Environment)
            known = self._sources[environment] = Stored(answer.message.source, answer.message.hint)
            while len(self._sources) > _SOURCES:
                self._sources.popitem(last=False)
        else:
            self._sources.move_to_end(environment)
        return known

    # The gate

    async def _gate_proposals(self) -> None:
        """Leases proposals one after the other."""
        while True:
            pause = self.breaker.wait_s(trio.current_time())
            if pause > 0:
                with self.ctx.waits("breaker: jails fail", on="sandbox", deadline=time.time() + pause):
                    await trio.sleep(pause)
            for item in await self.ctx.hub.lease(PROPOSALS, 1, wait_s=_LEASE_S):
                await self._gate(item)

    async def _gate(self, item: Leased) -> None:
        try:
            proposal = msgspec.convert(item.body, ProposalItem)
        except msgspec.ValidationError as error:
            await self._give_back(item, f"not a proposal: {error}")
            return
        if not self.breaker.allow(trio.current_time()):
            await self._give_back(item, "the breaker is open", counts=False)
            return

        async def duplicate(source: str, facts: Facts) -> str | None:
            memory = await self.ctx.peer("memory", deadline=time.time() + _MEMORY_S)
            answer = await memory.call(CheckDuplicate(design=proposal.design, source=source), timeout=_MEMORY_S)
            assert isinstance(answer.message, DuplicateVerdict)
            return f"{answer.message.of} ({answer.message.how})" if answer.message.duplicate else None

        try:
            stored = await self._stored(proposal.environment)
            report = await gate.run(
                self.provider,
                stored.source,
                stored.hint,
                seeds=gate_seeds(self.config.gate_seeds),
                max_turns=proposal.max_turns,
                settings=gate.GateSettings(trivial_rate=self.config.trivial_rate, step_s=self.config.step_s),
                duplicate=duplicate,
            )
        except InfrastructureFailure as failure:
            self._failed(failure)
            await self._give_back(item, f"infrastructure: {failure}")
        except (*_UNREACHABLE, CallFailed) as error:
            await self._give_back(item, f"memory: {error}")
        except trio.Cancelled:
            with trio.move_on_after(_LET_GO_S, shield=True):
                await self._give_back(item, "the sandbox stops", counts=False)
            raise
        else:
            self._went_through()
            self.ctx.metrics.count("admitted" if report.admitted else "rejected")
            result = admission(report, proposal.environment)
            await self.ctx.hub.complete(PROPOSALS, [Completion(id=item.id, lease=item.lease, result=result)])

    async def _give_back(self, item: Leased, reason: str, *, counts: bool = True) -> None:
        if counts:
            self.ctx.metrics.count("gates_returned")
            self.ctx.log.warning("proposal given back", proposal=item.id, attempt=item.attempt, reason=reason)
        await self.ctx.hub.release(
            PROPOSALS, [Return(id=item.id, lease=item.lease, reason=reason[:300], counts=counts)]
        )

    # Health

    def _went_through(self) -> None:
        if self.breaker.success():
            self.ctx.log.info("breaker closed: jails work again")

    def _failed(self, failure: InfrastructureFailure) -> None:
        self.ctx.metrics.count("infrastructure_failures")
        if self.breaker.failure(str(failure), trio.current_time()):
            self.ctx.log.error("breaker open: the sandbox takes no work for a while", reason=str(failure))

    async def _follow_peers(self) -> None:
        """Ends the episodes of agents that are gone."""
        async with self.ctx.events(PeerDown, snapshot=False) as events:
            async for stored in events:
                down = stored.message
                if isinstance(down, PeerDown) and down.peer.role == "agent":
                    when = trio.current_time() - max(0.0, time.time() - stored.at)
                    ended = self.table.end_holder(down.peer.name, opened_before=when)
                    if ended:
                        self.ctx.log.info("ended a gone agent's episodes", agent=down.peer.name, episodes=ended)

    async def _tick(self) -> None:
        gauge = self.ctx.metrics.gauge
        while True:
            expired = self.table.expire()
            if expired:
                self.ctx.metrics.count("sessions_expired", expired)
            stats = self.provider.stats()
            gauge("sessions", self.table.open_count)
            gauge("sessions_waiting", self.table.waiting)
            gauge("slots_free", self.table.free)
            gauge("env_steps", self.table.steps_total)
            gauge("episodes", self.table.opened_total)
            gauge("jails_warm", stats.warm)
            gauge("jails_busy", stats.busy)
            gauge("jails_lost", stats.jails_lost)
            gauge("jail_cpu_s", stats.cpu_s_total)
            gauge("breaker_open", float(self.breaker.state is not State.CLOSED))
            await trio.sleep(_TICK_S)


def make(ctx: Context) -> Actor:
    """The role's actor."""
    return Sandbox(ctx)
