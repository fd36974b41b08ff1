"""The skills briefs rotate through when `judge.skills` is empty."""

from spade_actors.micro.families import SKILLS as MICRO

FULL = (
    "pattern recognition",
    "logical deduction",
    "strategic planning",
    "mathematical reasoning",
    "spatial reasoning",
    "causal inference",
    "memory recall",
    "optimization",
    "language understanding",
)
"""the published cognitive skills"""


def profile_skills(profile: str) -> tuple[str, ...]:
    """The micro model knows the skills it was warmed up with; a real LLM gets the published ones."""
    return MICRO if profile == "micro" else FULL
