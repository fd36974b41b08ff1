"""The designer role: leases designs, writes one generation each, proposes it. Thin.

Always holds: the judge has the tokens, and memory the source, before the lease is completed; the proposal is put in the
same transaction; a failure of the machinery gives the lease back.
"""

import time
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, TypeVar

import msgspec
import trio

from spade_actors.designer.design import Proposed, prompt, proposal
from spade_actors.prompts.agent import ActionFormat
from spade_actors.runtime.actor import Actor
from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import CallFailed, CallTimeout, PeerGone
from spade_actors.runtime.leasing import LeasedWork
from spade_actors.sampling.client import Generation, SamplingParams
from spade_actors.sampling.errors import SamplingError
from spade_actors.sampling.servers import Conversation, Servers
from spade_actors.sampling.setup import language, spans_of
from spade_protocols.codec import pack_buffer
from spade_protocols.common import Ack
from spade_protocols.design import (
    Brief,
    DeliverDesign,
    DesignItem,
    DesignResult,
    DesignStored,
    GetBrief,
    ProposalItem,
    PutEnvironment,
)
from spade_protocols.queues import DESIGNS, PROPOSALS, Completion, Item, Leased, PutTo
from spade_protocols.registry import Call, Reply

_CALL_S = 30.0
_ASK_AGAIN_S = 0.5
_LET_GO_S = 3.0

R = TypeVar("R", bound=Reply)


class Lost(Exception):
    """The machinery failed under a design; the text says what."""


class Written(NamedTuple):
    """A generation and what it proposes."""

    prompt: list[int]
    made: Generation
    text: str
    proposed: Proposed


class Designer(Actor):
    """One designer process."""

    role: ClassVar[str] = "designer"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.config = ctx.config.designer
        self.format = ActionFormat(ctx.config.agent.action_format)
        self.language = language(ctx.config)
        self.servers = Servers(ctx)
        self.work = LeasedWork(ctx, DESIGNS, most=self.config.concurrency, least=1, gauge="generations")

    async def run(self) -> None:
        """Designs until drain; then generations still running may end within `designer.drain_s`, and the rest go back.
        Cancelled: every lease goes back at once."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.servers.follow)
            await self.ctx.ready()
            async with trio.open_nursery() as designs:
                await self.work.take(designs, self._design)
                designs.cancel_scope.deadline = trio.current_time() + self.config.drain_s
            nursery.cancel_scope.cancel()
        self.servers.close()

    async def _design(self, item: Leased) -> None:
        """One leased design to its end; never raises for what goes wrong in it."""
        try:
            wanted = msgspec.convert(item.body, DesignItem)
            brief = await self._ask("memory", GetBrief(id=wanted.brief), Brief)
            written = await self._write(item.id, brief)
            proposed = written.proposed
            if proposed.environment:
                put = PutEnvironment(environment=proposed.environment, source=proposed.source, hint=proposed.hint)
                await self._ask("memory", put, Ack)
            await self._deliver(item, wanted, written)
        except msgspec.ValidationError as error:
            await self.work.give_back(item, f"not a design: {error}")
        except (Lost, SamplingError) as error:
            await self.work.give_back(item, f"{type(error).__name__}: {error}")
        except trio.Cancelled:
            with trio.move_on_after(_LET_GO_S, shield=True):
                await self.work.give_back(item, "the designer stops", counts=False)
            raise
        else:
            await self._complete(item, wanted, proposed)

    async def _write(self, name: str, brief: Brief) -> Written:
        """The one generation of a design."""
        asked = self.language.chat.start(prompt(brief, self.ctx.config.run.profile, self.format))
        params = SamplingParams(
            max_new_tokens=self.config.max_tokens,
            temperature=self.config.temperature,
            stop_token_ids=self.language.chat.stop_ids,
        )
        made = await self.servers.generate(Conversation(), asked, params, rid=name, timeout=self.config.timeout_s)
        self.ctx.metrics.count("tokens_sampled", len(made.output_ids))
        text = self.language.decode(self.language.chat.spoken(made.output_ids))
        return Written(asked, made, text, proposal(text, ended=made.finish == "stop"))

    async def _deliver(self, item: Leased, wanted: DesignItem, written: Written) -> None:
        """The tokens, to the judge's spool."""
        asked, asked_bytes = pack_buffer(written.prompt, "i4", 0)
        output, output_bytes = pack_buffer(written.made.output_ids, "i4", 1)
        logprobs, logprob_bytes = pack_buffer(written.made.logprobs.tolist(), "f4", 2)
        message = DeliverDesign(
            design=item.id,
            group=wanted.group,
            skill=wanted.skill,
            attempt=item.attempt,
            environment=written.proposed.environment,
            reason=written.proposed.reason,
            prompt=asked,
            output=output,
            logprobs=logprobs,
            versions=spans_of(written.made.version_spans),
            temperature=self.config.temperature,
            text=written.text,
        )
        await self._ask("judge", message, DesignStored, [asked_bytes, output_bytes, logprob_bytes])

    async def _complete(self, item: Leased, wanted: DesignItem, proposed: Proposed) -> None:
        """Ends the design; what it proposes goes into `proposals` in the same transaction."""
        self.ctx.metrics.count("proposed" if proposed.environment else f"not_proposed_{proposed.reason}")
        result = DesignResult(
            proposed=bool(proposed.environment), environment=proposed.environment, reason=proposed.reason
        )
        puts = []
        if proposed.environment:
            body = ProposalItem(
                design=item.id,
                group=wanted.group,
                skill=wanted.skill,
                environment=proposed.environment,
                max_turns=self.ctx.config.agent.max_turns,
            )
            # No group: a gate takes one proposal at a time, and its death counts against that one alone.
            puts = [PutTo(queue=PROPOSALS, items=[Item(id=item.id, body=msgspec.to_builtins(body))])]
        completion = Completion(id=item.id, lease=item.lease, result=msgspec.to_builtins(result))
        ends = await self.ctx.hub.complete(DESIGNS, [completion], puts=puts)
        if ends.lost:
            self.ctx.metrics.count("leases_lost")

    async def _ask(self, role: str, message: Call, kind: type[R], buffers: Sequence[bytes] = ()) -> R:
        """A call that is repeated while its role is silent or away; raises `Lost` when it is refused."""
        while True:
            try:
                peer = await self.ctx.peer(role, deadline=time.time() + _CALL_S)
                with self.ctx.waits(type(message).__name__, on=role):
                    answer = await peer.call(message, timeout=_CALL_S, buffers=buffers)
            except (CallTimeout, PeerGone):
                self.ctx.metrics.count("calls_repeated")
            except CallFailed as error:
                if not error.retry and error.code not in ("failed", "deadline"):
                    raise Lost(f"{role} refused: {error}") from None
                self.ctx.metrics.count("calls_repeated")
                await trio.sleep(_ASK_AGAIN_S)
            else:
                assert isinstance(answer.message, kind)
                return answer.message
