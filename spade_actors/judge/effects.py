"""What the trial machine asks of the world. Effects are journalled with the decision and carried out at least once.

Always holds: every effect is idempotent (ids are derived, puts and publishes are acknowledged twice); effects of one
lane happen in the order they were decided, so a cancellation never overtakes the put it cancels.
"""

from typing import Any

import msgspec

from spade_protocols.design import Grant


class Effect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base; `lane` names the queue of effects it waits in."""


class GrantDesigns(Effect, frozen=True, kw_only=True):
    """memory: write briefs for these."""

    grants: list[Grant]


class FetchHint(Effect, frozen=True, kw_only=True):
    """memory: source and hint of a trial's environment, then `Machine.hint_ready`."""

    trial: str
    environment: str


class StoreHeldOut(Effect, frozen=True, kw_only=True):
    """memory: store the environments of an evaluation, then `Machine.heldout_ready`."""

    evaluation: str


class TellMemory(Effect, frozen=True, kw_only=True):
    """memory: what is known of a design's environment by now."""

    design: str
    environment: str
    skill: str
    version: int
    admitted: bool
    verdicts: list[dict[str, Any]] = []
    scores: dict[str, float] = {}


class PutPlays(Effect, frozen=True, kw_only=True):
    """hub: release a trial's plays, all in one call."""

    trial: str
    hint: str


class PutEvalPlays(Effect, frozen=True, kw_only=True):
    """hub: release an evaluation's plays."""

    evaluation: str


class PutSamples(Effect, frozen=True, kw_only=True):
    """hub: release one group of samples; bodies are `SampleItem`s by id."""

    group: str
    items: dict[str, dict[str, Any]]


class CancelItems(Effect, frozen=True, kw_only=True):
    """hub: end items that are no longer wanted."""

    queue: str
    ids: list[str]
    reason: str


class Announce(Effect, frozen=True, kw_only=True):
    """hub: publish an event of the judge's own; `event` is its type, `body` its fields."""

    event: str
    body: dict[str, Any]
    id: str
    key: str = ""
    retain: bool = False


class WriteDesign(Effect, frozen=True, kw_only=True):
    """record: `environments/<design>/`."""

    design: str
    environment: str
    state: str
    reason: str
    skill: str
    verdicts: list[dict[str, Any]] = []
    scores: dict[str, float] = {}


class WriteEpisodes(Effect, frozen=True, kw_only=True):
    """record: `episodes/<trial>.jsonl` and the end of its bulk; `keep` are plays that became samples."""

    trial: str
    returns: dict[str, float]
    keep: list[str]


class WriteEvaluation(Effect, frozen=True, kw_only=True):
    """record: `evaluations/<evaluation>.json` and `.jsonl`."""

    evaluation: str


LANES: dict[type[Effect], str] = {
    GrantDesigns: "memory",
    FetchHint: "memory",
    StoreHeldOut: "memory",
    TellMemory: "memory",
    PutPlays: "hub",
    PutEvalPlays: "hub",
    PutSamples: "hub",
    CancelItems: "hub",
    Announce: "hub",
    WriteDesign: "record",
    WriteEpisodes: "record",
    WriteEvaluation: "record",
}

AnyEffect = (
    GrantDesigns
    | FetchHint
    | StoreHeldOut
    | TellMemory
    | PutPlays
    | PutEvalPlays
    | PutSamples
    | CancelItems
    | Announce
    | WriteDesign
    | WriteEpisodes
    | WriteEvaluation
)
