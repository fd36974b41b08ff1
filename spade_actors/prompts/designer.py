"""The designer's prompt: a brief in, one user message out. Its answer is parsed by `extract`.

Two styles. `micro` is a few words, for the shipped model that was warmed up on exactly this form: skill, difficulty,
title, and the first exemplar's source and hint when the brief has one (the model then writes a variation of it).
`full` is an instruction for a general instruct model and uses everything in the brief.
Which exemplars a brief carries, and whether any, is decided by memory; this module only renders.
"""

from dataclasses import dataclass
from enum import StrEnum

from spade_actors.prompts.agent import ActionFormat
from spade_actors.prompts.topics import topics_of

FENCE_OPEN = "```python\n"
FENCE_CLOSE = "```\nHINT: "


class DesignerStyle(StrEnum):
    """Which prompt a designer uses."""

    MICRO = "micro"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Exemplar:
    """An archived environment shown to the designer. regret in [-1, 1]; win_rate of the plain arm in [0, 1]."""

    source: str
    hint: str
    regret: float
    win_rate: float


@dataclass(frozen=True, slots=True)
class Brief:
    """What one design is asked for. `difficulty` is easy, medium or hard; `negative` was too easy or too hard."""

    skill: str
    difficulty: str
    title: str
    passage: str = ""
    exemplars: tuple[Exemplar, ...] = ()
    negative: Exemplar | None = None
    seed: int = 0


def render(brief: Brief, style: DesignerStyle, action_format: ActionFormat = ActionFormat.RAW) -> str:
    """The user message for a brief; `action_format` is how this run's agents hand their actions to `step`."""
    return render_micro(brief) if style is DesignerStyle.MICRO else render_full(brief, action_format)


def answer(source: str, hint: str) -> str:
    """The answer a designer should give: what `extract` reads back as (source, hint)."""
    return f"{FENCE_OPEN}{source.rstrip()}\n{FENCE_CLOSE}{hint}"


def short_title(brief: Brief) -> str:
    """The brief's passage as one to three topic words."""
    return " ".join(topics_of(brief.title, brief.passage))


def render_micro(brief: Brief) -> str:
    """The short form, about 15 tokens without and 150 with an exemplar.

    The title stands in the quotes in which the class docstring repeats it, so that it is the same tokens there.
    """
    text = f'design {brief.skill} {brief.difficulty}\n    """{short_title(brief)}"""'
    if brief.exemplars:
        best = brief.exemplars[0]
        text += "\n\n" + answer(best.source, best.hint)
    return text


_TASK = """\
Write one small interactive text environment as a Python class, and a hint for it. A player will act in it over \
several turns and sees only the observations.

Skill it must exercise: {skill}
Difficulty: {difficulty} ({meaning})
"""

_MEANING = {
    "easy": "a careful beginner wins about three plays of four",
    "medium": "a competent player wins about half of the plays",
    "hard": "a strong player wins about one play of four",
}

_CONTRACT = """\
The class
- stands at module level, is the only class whose name ends in Env, and needs no constructor arguments;
- sets self.max_turns (between 4 and 20) in __init__;
- has reset(self, seed=None) returning (observation: str, info: dict). All randomness comes from random.Random(seed), \
so that one seed always gives one instance and different seeds give different instances;
- has step(self, action: str) returning exactly (observation: str, reward: float, terminated: bool, \
truncated: bool, info: dict).{action_line} The reward is 0.0 until the last turn, and then a float from 0.0 to 1.0; 1.0 is a full win;
- answers any action text it does not understand with a short reminder of the valid form, and counts the turn;
- ends by itself: truncated is True once max_turns turns are used;
- keeps a hidden state that the player must find out by acting; guessing, repeating the observation or sending nothing \
must not win;
- may import only from Python's standard library, and uses no files, no network, no input and no printing.

The hint
- states the rule behind the environment that a player would otherwise have to discover;
- holds for every seed, and never gives one instance's answer;
- is one or two sentences.
"""

_BOXED_LINE = " The action arrives as \\boxed{x}: take x out of the box, and remind the player when there is no box."

_FORMAT = """\
Answer with the source in one python code block, and after it one line that starts with HINT: and holds the hint:

```python
...
```
HINT: ...
"""


def render_full(brief: Brief, action_format: ActionFormat = ActionFormat.RAW) -> str:
    """The instruction form for a general model: task, contract, passage, exemplars, negative, answer format."""
    meaning = _MEANING.get(brief.difficulty, "a competent player wins about half of the plays")
    parts = [_TASK.format(skill=brief.skill, difficulty=brief.difficulty, meaning=meaning)]
    parts.append(_CONTRACT.format(action_line=_BOXED_LINE if action_format is ActionFormat.BOXED else ""))
    if brief.passage:
        parts.append(
            f"Take the setting and, where you can, the mechanism from this passage, titled {brief.title!r}. Do not"
            f" quote it; the player never sees it.\n\n<passage>\n{brief.passage.strip()}\n</passage>\n"
        )
    for number, shown in enumerate(brief.exemplars, 1):
        parts.append(
            f"Example {number}, which taught players well (win rate {shown.win_rate:.2f} without and higher with the"
            f" hint, gap {shown.regret:.2f}). Write a different one.\n\n{answer(shown.source, shown.hint)}\n"
        )
    if brief.negative is not None:
        fault = "too easy" if brief.negative.win_rate > 0.5 else "too hard"
        parts.append(
            f"This one was {fault} (win rate {brief.negative.win_rate:.2f}). Avoid its fault.\n\n"
            f"```python\n{brief.negative.source.rstrip()}\n```\n"
        )
    parts.append(_FORMAT)
    return "\n".join(parts)
