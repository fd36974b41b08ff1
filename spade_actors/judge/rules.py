"""What the trial machine needs of the configuration, and every number it derives from the run's seed."""

import hashlib
import math

import msgspec

from spade_actors.config.schema import Config


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one run; names as in `[judge]` and `[learner]`."""

    eta: int
    batch: int
    pairs: int
    min_pairs: int
    design_group: int
    skills: tuple[str, ...]
    seed: int = 1
    steps: int = 1
    max_turns: int = 14
    train_agent: bool = True
    train_hinted: bool = False
    train_designer: bool = True
    invalid_reward: float = -0.1
    negative_scale: float = 1.0
    agent_bound: int = 4
    designer_bound: int = 8
    eval_every: int = 0
    eval_plays: int = 1
    eval_hinted: int = 0
    eval_small: int = 1

    @property
    def arms_trained(self) -> tuple[str, ...]:
        """Arms whose plays become samples."""
        if not self.train_agent:
            return ()
        return ("plain", "hinted") if self.train_hinted else ("plain",)

    @property
    def per_trial(self) -> int:
        """Trainable samples one design can yield, its own included."""
        return self.pairs * len(self.arms_trained) + self.train_designer


def rules_of(config: Config, skills: tuple[str, ...]) -> Rules:
    """The rules of a configuration. A role whose loss weight is 0 is frozen: it has no samples."""
    judge, learner = config.judge, config.learner
    return Rules(
        eta=judge.eta,
        batch=learner.batch,
        pairs=judge.pairs,
        min_pairs=min(judge.min_pairs, judge.pairs),
        design_group=judge.design_group,
        skills=tuple(judge.skills) or skills,
        seed=config.run.seed,
        steps=config.run.steps,
        max_turns=config.agent.max_turns,
        train_agent=learner.agent_weight > 0,
        train_hinted=judge.train_hinted,
        train_designer=learner.designer_weight > 0,
        invalid_reward=judge.invalid_reward,
        negative_scale=judge.negative_scale,
        agent_bound=judge.staleness_bound("agent"),
        designer_bound=judge.staleness_bound("designer"),
        eval_every=judge.eval_every,
        eval_plays=judge.eval_plays,
        eval_hinted=judge.eval_hinted,
        eval_small=judge.eval_small,
    )


def derive(*parts: object) -> int:
    """A 31-bit seed that is the same for the same parts on every machine."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") & 0x7FFFFFFF


def grants_allowed(capacity: int, per_trial: int) -> int:
    """Designs that may be granted: ceil(capacity / samples per trial), none when there is no capacity."""
    return math.ceil(capacity / per_trial) if capacity > 0 and per_trial > 0 else 0
