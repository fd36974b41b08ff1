"""Briefs, designs and proposals: judge -> memory -> designer -> sandbox.

Bodies of queue items are the `...Item` structs of this module and of `play` and `sample`, as maps.
"""

from spade_protocols.codec import Buffer
from spade_protocols.common import Ack
from spade_protocols.registry import Call, Message, Reply, message_type


class Grant(Message, frozen=True, kw_only=True):
    """The judge's permission for one design. The design's id is the grant's."""

    id: str
    group: str
    """design group: advantages are centred within it"""
    skill: str
    seed: int


@message_type("brief.granted", reply=Ack)
class GrantBriefs(Call, frozen=True, kw_only=True):
    """Judge -> memory: writes one brief per grant and puts it into `designs`; idempotent by grant id."""

    grants: list[Grant]


class Exemplar(Message, frozen=True, kw_only=True):
    """An earlier environment shown to the designer."""

    environment: str
    source: str
    hint: str
    regret: float
    win_rate: float


class Passage(Message, frozen=True, kw_only=True):
    """A piece of the corpus."""

    id: str
    domain: str
    title: str
    text: str


@message_type("brief.body")
class Brief(Reply, frozen=True, kw_only=True):
    """All a designer needs for one design."""

    id: str
    group: str
    skill: str
    difficulty: str
    seed: int
    passage: Passage
    exemplars: list[Exemplar]
    negative: str
    """one line on an environment that was too easy or too hard, or empty"""
    parent: str = ""
    """environment hash of the first exemplar: lineage"""


@message_type("brief.get", reply=Brief)
class GetBrief(Call, frozen=True, kw_only=True):
    """Designer -> memory."""

    id: str


class DesignItem(Message, frozen=True, kw_only=True):
    """Body of an item in `designs`."""

    brief: str
    group: str
    skill: str
    seed: int


class ProposalItem(Message, frozen=True, kw_only=True):
    """Body of an item in `proposals`; its id is the design's id."""

    design: str
    group: str
    skill: str
    environment: str
    """content hash of source and hint"""
    max_turns: int


class Verdict(Message, frozen=True, kw_only=True):
    """The outcome of one check."""

    name: str
    verdict: str
    """pass | fail | skipped"""
    reason: str = ""
    evidence: str = ""
    ms: float = 0.0


class Admission(Message, frozen=True, kw_only=True):
    """Result of an item in `proposals`: the one decision about a proposal."""

    admitted: bool
    environment: str
    failed: str = ""
    """name of the check that failed"""
    reason: str = ""
    verdicts: list[Verdict] = []
    ms: float = 0.0


class DesignResult(Message, frozen=True, kw_only=True):
    """Result of an item in `designs`."""

    proposed: bool
    environment: str = ""
    reason: str = ""
    """why there is no proposal: no_code | no_hint | unterminated | too_long | ..."""


@message_type("design.stored")
class DesignStored(Reply, frozen=True, kw_only=True):
    """Durable. `duplicate`: an earlier delivery of this design won."""

    duplicate: bool


@message_type("design.deliver", reply=DesignStored)
class DeliverDesign(Call, frozen=True, kw_only=True):
    """Designer -> judge's spool: the tokens of one generation, before the proposal is made."""

    design: str
    group: str
    skill: str
    attempt: int
    environment: str
    """content hash, empty when nothing could be extracted"""
    reason: str = ""
    prompt: Buffer
    """i4 token ids"""
    output: Buffer
    """i4 token ids"""
    logprobs: Buffer
    """f4, one per output token, at the sampling temperature"""
    versions: list[tuple[int, int, int]]
    """(weight version, start, end) spans over the output"""
    temperature: float
    text: str
    """the generation as text, for the record"""


@message_type("environment.put", reply=Ack)
class PutEnvironment(Call, frozen=True, kw_only=True):
    """Anyone -> memory: stores source and hint under their content hash, durable when answered."""

    environment: str
    source: str
    hint: str


@message_type("environment.body")
class Environment(Reply, frozen=True, kw_only=True):
    """A stored environment."""

    environment: str
    source: str
    hint: str


@message_type("environment.get", reply=Environment)
class GetEnvironment(Call, frozen=True, kw_only=True):
    """Source and hint by content hash; error `unknown` if it was never put."""

    environment: str


@message_type("environment.duplicate_reply")
class DuplicateVerdict(Reply, frozen=True, kw_only=True):
    """Whether an admitted environment is the same, exactly or after AST normalisation."""

    duplicate: bool
    of: str = ""
    how: str = ""
    """exact | normalised"""


@message_type("environment.duplicate", reply=DuplicateVerdict)
class CheckDuplicate(Call, frozen=True, kw_only=True):
    """Sandbox -> memory during the gate; does not record anything. A proposal is no duplicate of itself (same design id)."""

    design: str
    source: str


@message_type("environment.judged", reply=Ack)
class StoreJudged(Call, frozen=True, kw_only=True):
    """Judge -> memory: an environment with everything known about it; idempotent by design id."""

    design: str
    environment: str
    skill: str
    parent: str
    version: int
    """weight version that wrote its first token"""
    admitted: bool
    verdicts: list[Verdict]
    scores: dict[str, float] = {}


@message_type("memory.stats_reply")
class MemoryStats(Reply, frozen=True, kw_only=True):
    """Sizes."""

    environments: int
    judged: int
    passages: int
    exemplars: dict[str, int]


@message_type("memory.stats", reply=MemoryStats)
class GetMemoryStats(Call, frozen=True, kw_only=True):
    """How much memory holds."""
