"""The warm-up corpus: designs and plays, generated without end from a seed.

What always holds: only warm-up families and rules that are not held out occur; document n of a seed is always the same.
A design with an exemplar is mostly a variation of it, which is how the designer learns that exemplars steer it.
"""

from dataclasses import dataclass
from random import Random

from spade_actors.micro import play
from spade_actors.micro.families import DIFFICULTIES, SKILLS, WARM, Family, Variant
from spade_actors.micro.titles import draw_title
from spade_actors.prompts import agent, designer
from spade_actors.prompts.designer import Brief, Exemplar

EXEMPLAR_SHARE = 0.5
SAME_FAMILY_SHARE = 0.8
HINTED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Crowd:
    """Who plays the warm-up episodes: shares of experts, weak and random players, plain and hinted.

    A weak player acts as the expert in `weak_skill` of its turns; all but experts say any word in `noise` of theirs.
    """

    plain: tuple[float, float, float]
    hinted: tuple[float, float, float]
    weak_skill: tuple[float, float]
    noise: float


CROWD = Crowd(plain=(0.35, 0.4, 0.25), hinted=(0.5, 0.35, 0.15), weak_skill=(0.3, 0.7), noise=0.1)
"""Good play is there to be learned, but is not the rule: that leaves room for self-play."""


@dataclass(frozen=True, slots=True)
class Document:
    """A chat: user and assistant texts in turn, the user's first; as many of one as of the other."""

    users: tuple[str, ...]
    answers: tuple[str, ...]


def families_of(skill: str) -> list[Family]:
    """The warm-up families of a skill."""
    return [family for family in WARM if family.skill == skill]


def draw_variant(family: Family, rng: Random, difficulty: str, held_out: bool = False) -> Variant:
    """A variant of a family with fresh params, style and title."""
    return Variant(family, family.sample(rng, difficulty, held_out), rng.randrange(3), draw_title(rng))


def draw_design(rng: Random) -> Document:
    """A brief and its answer."""
    skill, difficulty, title = rng.choice(SKILLS), rng.choice(DIFFICULTIES), draw_title(rng)
    family = rng.choice(families_of(skill))
    exemplars: tuple[Exemplar, ...] = ()
    variant = Variant(family, family.sample(rng, difficulty, False), rng.randrange(3), title)
    if rng.random() < EXEMPLAR_SHARE:
        if rng.random() < SAME_FAMILY_SHARE:
            shown = draw_variant(family, rng, rng.choice(DIFFICULTIES))
            style = shown.style if rng.random() < 0.7 else variant.style
            variant = Variant(family, family.mutate(shown.params, rng, difficulty), style, title)
        else:
            other = rng.choice([f for f in families_of(skill) if f is not family])
            shown = draw_variant(other, rng, rng.choice(DIFFICULTIES))
        exemplars = (Exemplar(shown.source, shown.hint, 0.0, 0.0),)
    prompt = designer.render_micro(Brief(skill, difficulty, title, exemplars=exemplars))
    return Document((prompt,), (designer.answer(variant.source, variant.hint),))


def draw_play(rng: Random) -> Document:
    """One episode of a warm-up environment by one of the crowd, in either arm.

    Every action starts with a space: a word then is the same token in an observation, a hint and an action.
    """
    variant = draw_variant(rng.choice(WARM), rng, rng.choice(DIFFICULTIES))
    hinted = rng.random() < HINTED_SHARE
    kinds = (1.0, rng.uniform(*CROWD.weak_skill), 0.0)
    skill = rng.choices(kinds, CROWD.hinted if hinted else CROWD.plain)[0]
    player = play.mixed(variant, hinted, rng, skill, noise=0.0 if skill == 1.0 else CROWD.noise)
    done = play.play(play.load(variant), rng.getrandbits(31), player)
    first = agent.first_message(done.observations[0], variant.hint if hinted else None)
    return Document((first, *done.observations[1:]), tuple(" " + action for action in done.actions))
