"""Training samples and weights: judge -> learner -> generators."""

from typing import Any

from spade_protocols.codec import Buffer
from spade_protocols.registry import Call, Event, Message, Reply, message_type


class SampleItem(Message, frozen=True, kw_only=True):
    """Body of an item in `samples`; the item's group is its advantage group, which is taken whole."""

    role: str
    """agent | designer"""
    trial: str
    advantage: float
    tokens: int
    """trained tokens (mask 1)"""
    length: int
    oldest: int
    """oldest weight version among its trained tokens"""
    ready_version: int
    """newest published version when it was released"""


class SampleData(Message, frozen=True, kw_only=True):
    """One sample's arrays, as frames of the reply."""

    id: str
    role: str
    advantage: float
    temperature: float
    tokens: Buffer
    mask: Buffer
    logprobs: Buffer
    versions: list[tuple[int, int, int]]
    turns: int


@message_type("sample.data")
class Samples(Reply, frozen=True, kw_only=True):
    """The arrays of the samples asked for; ids the spool does not have are in `missing`."""

    samples: list[SampleData]
    missing: list[str] = []


@message_type("sample.fetch", reply=Samples)
class FetchSamples(Call, frozen=True, kw_only=True):
    """Learner -> judge's spool, at most 64 ids a call."""

    ids: list[str]


@message_type("learner.started")
class LearnerStarted(Event, frozen=True, kw_only=True):
    """The learner (re)started from this point."""

    step: int
    version: int


@message_type("learner.stepped")
class LearnerStepped(Event, frozen=True, kw_only=True):
    """One optimizer step is done. Consumption is exactly the batch taken."""

    step: int
    version: int
    """the version its weights were published as"""
    samples: int
    stale: int
    """samples dropped by age when this batch was taken"""
    by_role: dict[str, int]
    staleness: dict[str, int]
    """weight versions -> samples"""
    metrics: dict[str, float]
    seconds: float
    final: bool = False
    """the configured number of steps is reached"""


@message_type("learner.checkpointed")
class LearnerCheckpointed(Event, frozen=True, kw_only=True):
    """A checkpoint is durable; the leases of its samples are completed in the same transaction as this event."""

    step: int
    version: int
    path: str


@message_type("weights.published")
class WeightsPublished(Event, frozen=True, kw_only=True):
    """New weights, written once; retained. Versions only move forward."""

    version: int
    step: int
    parent: int
    path: str
    """folder in Hugging Face format, relative to the run folder"""
    sha256: str


@message_type("weights.applied")
class WeightsApplied(Event, frozen=True, kw_only=True):
    """A generator's server has them."""

    version: int
    generator: str
    paused_ms: float
    total_ms: float
    """from the event's commit to the server's continue"""


@message_type("trial.scored")
class TrialScored(Event, frozen=True, kw_only=True):
    """The judge closed a trial: scored, failed (the environment broke in play) or withdrawn."""

    trial: str
    environment: str
    skill: str
    title: str
    state: str
    """scored | failed | withdrawn"""
    reason: str = ""
    scores: dict[str, float] = {}


@message_type("evaluation.done")
class EvaluationDone(Event, frozen=True, kw_only=True):
    """A held-out evaluation ended; retained by version."""

    version: int
    label: str
    """first | version | last"""
    pinned: bool
    """all tokens by one version"""
    scores: dict[str, float]
    """split or arm -> share of plays with return > 0, and counts"""


@message_type("run.state")
class RunState(Event, frozen=True, kw_only=True):
    """running | draining | complete | failed; retained."""

    state: str
    reason: str = ""


@message_type("log.fact")
class Fact(Event, frozen=True, kw_only=True):
    """Something worth keeping in the record that no other event says, e.g. a process restart."""

    name: str
    values: dict[str, Any] = {}
