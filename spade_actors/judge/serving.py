"""What the judge answers: deliveries of designers and agents, and the learner's fetches.

Always holds: a delivery is answered after its commit; a delivery that cannot be used is refused with its reason and
changes nothing.
"""

from collections.abc import Sequence
from functools import partial

from spade_actors.judge import spool
from spade_actors.judge.desk import Desk
from spade_actors.judge.machine import Delivered
from spade_actors.judge.samples import BadDelivery, ages, array, fetch
from spade_actors.judge.trials import Outcome
from spade_actors.runtime.errors import CallError
from spade_actors.runtime.metrics import Metrics
from spade_actors.runtime.server import CallContext
from spade_actors.runtime.store import Store
from spade_protocols.design import DeliverDesign, DesignStored
from spade_protocols.play import DeliverTrajectory, TrajectoryStored
from spade_protocols.sample import FetchSamples, Samples


class Serving:
    """Handlers over one desk."""

    def __init__(self, desk: Desk, store: Store, metrics: Metrics) -> None:
        self._desk = desk
        self._store = store
        self._metrics = metrics

    async def design(self, call: CallContext) -> DesignStored:
        """`design.deliver`."""
        message = call.message
        assert isinstance(message, DeliverDesign)
        try:
            bulk, delivered = generation(message, call.buffers, self._desk.machine.meta.version)
        except BadDelivery as error:
            raise self._refused(f"design {message.design}: {error}") from error
        new = self._desk.machine.design_delivered(delivered)
        if new:
            self._desk.touch(spool.generation_statement(bulk))
        await self._desk.saved()
        return DesignStored(duplicate=not new)

    async def trajectory(self, call: CallContext) -> TrajectoryStored:
        """`trajectory.deliver`."""
        message = call.message
        assert isinstance(message, DeliverTrajectory)
        try:
            bulk, outcome = trajectory(message, call.buffers, self._desk.machine.meta.version)
        except BadDelivery as error:
            raise self._refused(f"play {message.play}: {error}") from error
        new = self._desk.machine.play_delivered(message.trial, message.play, outcome)
        if new:
            self._desk.touch(spool.trajectory_statement(bulk))
            self._metrics.count("turns", len(message.turns))
            self._metrics.count("tokens_sampled", outcome.trained)
        await self._desk.saved()
        return TrajectoryStored(duplicate=not new)

    async def samples(self, call: CallContext) -> tuple[Samples, Sequence[bytes]]:
        """`sample.fetch`."""
        message = call.message
        assert isinstance(message, FetchSamples)
        return await self._store.read(partial(fetch, ids=message.ids))

    def _refused(self, text: str) -> CallError:
        self._metrics.count("deliveries_refused")
        return CallError("bad_delivery", text)


def generation(message: DeliverDesign, buffers: Sequence[bytes], version: int) -> tuple[spool.Generation, Delivered]:
    """A delivered design, checked: its bulk and what it says; `version` stands in where nothing was sampled."""
    output = array(message.output, buffers, "i4")
    prompt = array(message.prompt, buffers, "i4")
    length = len(output) // 4
    logprobs = array(message.logprobs, buffers, "f4", length)
    age = ages(message.versions, length, version)
    bulk = spool.Generation(
        message.design, message.attempt, prompt, output, logprobs, message.versions, message.temperature, message.text
    )
    return bulk, Delivered(
        design=message.design,
        attempt=message.attempt,
        environment=message.environment,
        oldest=age.oldest,
        first=age.first,
        trained=age.tokens,
        length=length + len(prompt) // 4,
    )


def trajectory(message: DeliverTrajectory, buffers: Sequence[bytes], version: int) -> tuple[spool.Trajectory, Outcome]:
    """A delivered play, checked: its bulk and what it says. Held-out plays keep their turns, not their arrays."""
    tokens = array(message.tokens, buffers, "i4")
    length = len(tokens) // 4
    mask = array(message.mask, buffers, "u1", length)
    logprobs = array(message.logprobs, buffers, "f4", length)
    if message.outcome not in ("finished", "failed"):
        raise BadDelivery(f"outcome {message.outcome!r}, expected finished or failed")
    age = ages(message.versions, length, version)
    trainable = message.purpose != "eval" and message.outcome == "finished"
    bulk = spool.Trajectory(
        play=message.play,
        trial=message.trial,
        attempt=message.attempt,
        tokens=tokens if trainable else None,
        mask=mask if trainable else None,
        logprobs=logprobs if trainable else None,
        versions=message.versions,
        temperature=message.temperature,
        turns=message.turns,
        agent=message.agent,
        seconds=message.seconds,
    )
    return bulk, Outcome(
        finished=message.outcome == "finished",
        ending=message.ending,
        blame=message.blame,
        rewards=tuple(message.rewards),
        terminated=message.terminated,
        turns=len(message.turns),
        trained=mask.count(1),
        length=length,
        oldest=age.oldest,
        newest=age.newest,
        version=age.mean,
    )
