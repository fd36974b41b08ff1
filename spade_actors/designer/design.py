"""One design, from brief to what is proposed. Pure.

Always holds: a generation becomes either a proposal with source, hint and content hash, or a reason; never an exception.
"""

from typing import NamedTuple

from spade_actors.prompts.agent import ActionFormat
from spade_actors.prompts.designer import Brief, DesignerStyle, Exemplar, render
from spade_actors.prompts.extract import Design, extract
from spade_protocols.content import content_hash
from spade_protocols.design import Brief as WireBrief

TOO_LONG = "too_long"
"""the generation used all its tokens without an end"""
HINT_TOO_LONG = "hint_too_long"
MAX_HINT = 4_000
"""UTF-8 bytes of a hint: it travels with every hinted play, whose item holds 8 KiB"""
MAX_SOURCE = 200_000
"""characters of source and hint; a proposal travels by hash, but memory and gate should not be fed more"""


class Proposed(NamedTuple):
    """`environment` is the content hash; empty, with a `reason`, when there is nothing to propose."""

    environment: str
    source: str
    hint: str
    reason: str


def prompt(brief: WireBrief, profile: str, action_format: ActionFormat) -> str:
    """The user message for a brief from memory."""
    asked = Brief(
        skill=brief.skill,
        difficulty=brief.difficulty,
        title=brief.passage.title,
        passage=brief.passage.text,
        exemplars=tuple(Exemplar(e.source, e.hint, e.regret, e.win_rate) for e in brief.exemplars),
        seed=brief.seed,
    )
    style = DesignerStyle.MICRO if profile == "micro" else DesignerStyle.FULL
    text = render(asked, style, action_format)
    # The warm-up of the micro model knows no such line.
    return f"{text}\n\n{brief.negative}" if brief.negative and style is DesignerStyle.FULL else text


def proposal(text: str, *, ended: bool) -> Proposed:
    """What a generation (text without its end token) proposes. `ended`: it stopped by itself."""
    found = extract(text)
    if not isinstance(found, Design):
        return Proposed("", "", "", str(found.reason))
    if not ended or len(found.source) + len(found.hint) > MAX_SOURCE:
        return Proposed("", "", "", TOO_LONG)
    if len(found.hint.encode(errors="replace")) > MAX_HINT:
        return Proposed("", "", "", HINT_TOO_LONG)
    return Proposed(content_hash(found.source, found.hint), found.source, found.hint, "")
