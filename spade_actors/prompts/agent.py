"""The agent's side of an episode: the first message of either arm, and the action taken from a generation.

Formats: `raw` (the whole answer is the action) and `boxed` (the action is the content of the last `\\boxed{...}`).
"""

from enum import StrEnum


class ActionFormat(StrEnum):
    """How an action is written by the policy."""

    RAW = "raw"
    BOXED = "boxed"


BOXED_INSTRUCTION = "Answer every turn with one action inside \\boxed{...}."
_BOX = "\\boxed"
_THINK_END = "</think>"


def first_message(observation: str, hint: str | None = None, action_format: ActionFormat = ActionFormat.RAW) -> str:
    """The user text of turn 1. `hint` is None in the plain arm; in the hinted arm it follows the observation.

    With the boxed format one instruction line stands before the observation.
    """
    text = observation if hint is None else f"{observation}\n\nHINT: {hint}"
    return f"{BOXED_INSTRUCTION}\n\n{text}" if action_format is ActionFormat.BOXED else text


def after_thinking(text: str) -> str:
    """The part of a generation after the last `</think>`; all of it when there is none."""
    return text.rpartition(_THINK_END)[2]


def extract_boxed(text: str) -> str | None:
    """Content of the last complete `\\boxed{...}`, braces balanced, up to two redundant brace layers stripped.

    Returns None when no box is complete; an empty box gives "".
    """
    at = text.rfind(_BOX)
    while at >= 0:
        body = _balanced(text, at + len(_BOX))
        if body is not None:
            return _strip_layers(body.strip())
        at = text.rfind(_BOX, 0, at)
    return None


def _balanced(text: str, at: int) -> str | None:
    """The text between the brace at `at` (after spaces) and its match; None if there is no brace or no match."""
    while at < len(text) and text[at].isspace():
        at += 1
    if at >= len(text) or text[at] != "{":
        return None
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[at + 1 : i]
    return None


def _strip_layers(body: str) -> str:
    for _ in range(2):
        if not (body.startswith("{") and _balanced(body, 0) == body[1:-1]):
            break
        body = body[1:-1].strip()
    return body


def extract_action(text: str, action_format: ActionFormat = ActionFormat.RAW) -> tuple[str, bool]:
    """The action handed to `step`, and whether the answer kept the format.

    raw: the stripped text after thinking; well formed unless empty. boxed: a non-empty box is passed on as
    `\\boxed{content}`, as published environments expect; otherwise the stripped text is passed and False returned.
    """
    said = after_thinking(text).strip()
    if action_format is ActionFormat.RAW:
        return said, bool(said)
    boxed = extract_boxed(said)
    return (f"\\boxed{{{boxed}}}", True) if boxed else (said, False)
