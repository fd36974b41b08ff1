"""Rules between settings, which no single field's type can say. Each is one line naming both keys and the way out."""

from spade_actors.config.errors import ConfigError
from spade_actors.config.schema import Config


def check(config: Config) -> None:
    """Raises `ConfigError` for the first contradiction."""
    judge, learner, sandbox, generator = config.judge, config.learner, config.sandbox, config.generator
    rules = [
        (
            judge.min_pairs <= judge.pairs,
            f"judge.min_pairs = {judge.min_pairs}: expected at most judge.pairs = {judge.pairs}, or no trial is ever scored",
        ),
        (
            judge.plateau_lo < judge.plateau_hi,
            f"judge.plateau_lo = {judge.plateau_lo}: expected less than judge.plateau_hi = {judge.plateau_hi}",
        ),
        (
            learner.min_batch <= learner.batch,
            f"learner.min_batch = {learner.min_batch}: expected at most learner.batch = {learner.batch}",
        ),
        (
            learner.agent_weight > 0 or learner.designer_weight > 0,
            "learner.agent_weight = 0 and learner.designer_weight = 0: at least one above 0 expected, or there is nothing to train",
        ),
        (
            sandbox.provider != "process" or sandbox.allow_unsafe,
            'sandbox.provider = "process": runs generated code without a jail; set sandbox.allow_unsafe = true to permit that',
        ),
        (
            generator.kind != "sglang-url" or generator.url.startswith(("http://", "https://")),
            f'generator.url = "{generator.url}": generator.kind = "sglang-url" needs the server\'s address, e.g. "http://127.0.0.1:30000"',
        ),
        (
            config.agent.max_context <= generator.max_len or generator.kind != "embedded",
            f"agent.max_context = {config.agent.max_context}: expected at most generator.max_len = {generator.max_len}, "
            "what the embedded engine holds of one sequence",
        ),
    ]
    for holds, line in rules:
        if not holds:
            raise ConfigError(line)
