"""Measures a micro model: are its designs valid and varied, and how often does it win.

What always holds: what the model wrote is checked in limited processes (`check`), never run here; the environments it
plays are our own. Standard errors are given by the counts beside each figure.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from spade_actors.micro import play
from spade_actors.micro.check import check
from spade_actors.micro.decode import sample
from spade_actors.micro.documents import draw_variant
from spade_actors.micro.families import ALL, DIFFICULTIES, SKILLS, WARM, Variant
from spade_actors.micro.signature import signature
from spade_actors.micro.titles import draw_title
from spade_actors.model.qwen3 import Qwen3
from spade_actors.prompts import agent, designer
from spade_actors.prompts.chat import Chat
from spade_actors.prompts.designer import Brief, Exemplar
from spade_actors.prompts.extract import Design, extract, title

MOST_SOURCE, MOST_ACTION, MOST_TURNS = 260, 6, 14


@dataclass(frozen=True, slots=True)
class _Asked:
    """One brief put to the model: its prompt, what it should keep, and the variant shown or (without) none."""

    prompt: list[int]
    skill: str
    title: str
    shown: Variant | None


def _ask(chat: Chat, rng: Random, number: int, with_exemplar: bool) -> _Asked:
    """Brief `number`: skills, and families of exemplars, in turn."""
    shown = draw_variant(WARM[number % len(WARM)], rng, rng.choice(DIFFICULTIES)) if with_exemplar else None
    exemplars = (Exemplar(shown.source, shown.hint, 0.0, 0.0),) if shown else ()
    skill = shown.family.skill if shown else SKILLS[number % len(SKILLS)]
    brief = Brief(skill, rng.choice(DIFFICULTIES), draw_title(rng), exemplars=exemplars)
    return _Asked(chat.start(designer.render_micro(brief)), skill, brief.title, shown)


def measure_designs(
    model: Qwen3, chat: Chat, decode: Any, count: int, with_exemplar: bool, seed: int = 0
) -> dict[str, Any]:
    """`count` sampled designs at temperature 1: share valid, families made; of the valid ones, shares that keep skill
    and title and that differ from each other; why the others are not valid.
    """
    rng = Random(seed)
    asked = [_ask(chat, rng, number, with_exemplar) for number in range(count)]
    drawn = sample(model, [a.prompt for a in asked], MOST_SOURCE, chat.end_id, torch.Generator().manual_seed(seed))
    parsed = [extract(decode(chat.spoken(ids))) if ids[-1] == chat.end_id else None for ids in drawn]
    designs = [(a, p) for a, p in zip(asked, parsed, strict=True) if isinstance(p, Design)]
    verdicts = check([d.source for _, d in designs])
    valid = [(a, d.source) for (a, d), verdict in zip(designs, verdicts, strict=True) if verdict == "ok"]
    families = [signature(source) for _, source in valid]
    out: dict[str, Any] = {
        "count": count,
        "valid": len(valid) / count,
        "families": dict(Counter(map(str, families)).most_common()),
        "skill_kept": _share(
            name in ALL and ALL[name].skill == a.skill for name, (a, _) in zip(families, valid, strict=True)
        ),
        "title_kept": _share(title(source) == a.title for a, source in valid),
        "different": len({_code(source) for _, source in valid}) / max(1, len(valid)),
        "reasons": dict(Counter(v.partition(":")[0] for v in verdicts if v != "ok").most_common(6)),
        "tokens": sum(len(ids) for ids in drawn) / count,
    }
    if with_exemplar:
        out |= _nearness([(source, a.shown) for a, source in valid if a.shown], rng)
    return out


def _nearness(pairs: Sequence[tuple[str, Variant]], rng: Random) -> dict[str, float]:
    """How far designs follow their exemplars: share in its family, and of those the share of telling lines they keep,
    beside the share that they have in common with another variant of the family (chance).
    """
    near = [(source, shown) for source, shown in pairs if signature(source) == shown.family.name]
    kept = [_kept(source, shown.source) for source, shown in near]
    other = [_kept(source, draw_variant(v.family, rng, rng.choice(DIFFICULTIES)).source) for source, v in near]
    return {
        "same_family": len(near) / max(1, len(pairs)),
        "copied": _share(share == 1.0 for share in kept),
        "lines_kept": sum(kept) / max(1, len(kept)),
        "lines_kept_by_chance": sum(other) / max(1, len(other)),
    }


def _share(true: Iterable[bool]) -> float:
    found = list(true)
    return sum(found) / max(1, len(found))


def _code(source: str) -> str:
    """The source after its title."""
    return source.partition('"""\n')[2]


def _kept(source: str, exemplar: str) -> float:
    """Share of the source's lines with a number or a word in them that stand in the exemplar too."""
    ours, theirs = (
        {line for line in _code(text).splitlines() if any(c.isdigit() or c == '"' for c in line)}
        for text in (source, exemplar)
    )
    return len(ours & theirs) / max(1, len(ours))


def measure_plays(
    model: Qwen3,
    chat: Chat,
    decode: Any,
    variants: Sequence[Variant],
    plays: int,
    hinted: bool,
    greedy: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Win rates over `plays` seeds per variant, all and by family; tokens and turns per episode."""
    draw = torch.Generator().manual_seed(seed)
    games, contexts, names, wins = [], [], [], Counter[str]()
    for variant in variants:
        make = play.load(variant)
        for k in range(plays):
            env = make()
            observation, _ = env.reset(seed * 1000 + k)
            games.append(env)
            contexts.append(chat.start(agent.first_message(observation, variant.hint if hinted else None)))
            names.append(variant.family.name)
    alive, turns = list(range(len(games))), 0
    for _ in range(MOST_TURNS):
        said = sample(model, [contexts[i] for i in alive], MOST_ACTION, chat.end_id, draw, greedy, batch=512)
        turns += len(alive)
        going = []
        for i, ids in zip(alive, said, strict=True):
            action, _ = agent.extract_action(decode(chat.spoken(ids)))
            observation, reward, terminated, truncated, _ = games[i].step(action)
            wins[names[i]] += reward > 0
            contexts[i] += ids
            if not (terminated or truncated):
                contexts[i] += chat.follow(ids, observation)
                going.append(i)
        alive = going
        if not alive:
            break
    of = Counter(names)
    return {
        "plays": len(games),
        "win_rate": wins.total() / len(games),
        "by_family": {name: round(wins[name] / n, 3) for name, n in of.items()},
        "turns": turns / len(games),
        "tokens": sum(map(len, contexts)) / len(games),
    }
