"""Measures a micro model: are its designs valid and varied, and how often does it win.

What always holds: what the model wrote is checked in limited processes (`check`), never run here; the environments it
plays are our own. Standard errors are given by the counts beside each figure.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import torch

from spade_actors.micro import play
from spade_actors.micro.check import check
from spade_actors.micro.decode import sample
from spade_actors.micro.documents import draw_variant
from spade_actors.micro.families import DIFFICULTIES, SKILLS, WARM, Variant
from spade_actors.micro.signature import signature
from spade_actors.micro.titles import draw_title
from spade_actors.model.qwen3 import Qwen3
from spade_actors.prompts import agent, designer
from spade_actors.prompts.chat import Chat
from spade_actors.prompts.designer import Brief, Exemplar
from spade_actors.prompts.extract import Design, extract, title

MOST_SOURCE, MOST_ACTION, MOST_TURNS = 260, 6, 14


def measure_designs(
    model: Qwen3, chat: Chat, decode: Any, count: int, with_exemplar: bool, seed: int = 0
) -> dict[str, Any]:
    """`count` sampled designs at temperature 1: shares valid, families made, titles kept, fingerprints.

    With exemplars also: how many copied the exemplar's source, how many stayed in its family.
    """
    rng = Random(seed)
    prompts, shown, titles = [], [], []
    for i in range(count):
        variant = draw_variant(WARM[i % len(WARM)], rng, rng.choice(DIFFICULTIES))
        exemplars = (Exemplar(variant.source, variant.hint, 0.0, 0.0),) if with_exemplar else ()
        titles.append(draw_title(rng))
        skill = variant.family.skill if with_exemplar else SKILLS[i % len(SKILLS)]
        brief = Brief(skill, rng.choice(DIFFICULTIES), titles[-1], exemplars=exemplars)
        prompts.append(chat.start(designer.render_micro(brief)))
        shown.append(variant)
    drawn = sample(model, prompts, MOST_SOURCE, chat.end_id, torch.Generator().manual_seed(seed))
    texts = [decode(chat.spoken(ids)) if ids[-1] == chat.end_id else "" for ids in drawn]
    designs = [extract(text) for text in texts]
    kept = [(i, d) for i, d in enumerate(designs) if isinstance(d, Design)]
    verdicts = check([d.source for _, d in kept])
    valid = [(i, d) for (i, d), verdict in zip(kept, verdicts, strict=True) if verdict == "ok"]
    families = Counter(signature(d.source) for _, d in valid)
    wrong_skill = sum(
        1
        for i, d in valid
        if (name := signature(d.source))
        and _skill(name) != (shown[i].family.skill if with_exemplar else SKILLS[i % len(SKILLS)])
    )
    out: dict[str, Any] = {
        "count": count,
        "valid": len(valid) / count,
        "families": {str(name): n for name, n in families.most_common()},
        "other_skill": wrong_skill / max(1, len(valid)),
        "title_kept": sum(title(d.source) == titles[i] for i, d in valid) / max(1, len(valid)),
        "different": len({d.source.partition('"""\n')[2] for _, d in valid}) / max(1, len(valid)),
        "reasons": dict(Counter(v.partition(":")[0] for v in verdicts if v != "ok").most_common(6)),
        "tokens": sum(len(ids) for ids in drawn) / count,
    }
    if with_exemplar:
        out["same_family"] = sum(signature(d.source) == shown[i].family.name for i, d in valid) / max(1, len(valid))
        out["copied"] = sum(d.source == shown[i].source for i, d in valid) / max(1, len(valid))
        out["one_line_changed"] = sum(_changed(d.source, shown[i].source) <= 2 for i, d in valid) / max(1, len(valid))
    return out


def _skill(family: str) -> str:
    return next((f.skill for f in WARM if f.name == family), "")


def _changed(one: str, two: str) -> int:
    """Lines of code that differ, titles apart."""
    ours, theirs = (set(s.partition('"""\n')[2].splitlines()) for s in (one, two))
    return len(ours - theirs)


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
