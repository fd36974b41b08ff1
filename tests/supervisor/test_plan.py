"""Which processes a configuration means."""

import re
from pathlib import Path

from spade_actors.config import Config, load
from spade_actors.config.describe import sections
from spade_actors.supervisor.plan import TABLES, plan

ROOT = Path(__file__).parents[2]


def test_the_default_is_every_role_once_hub_first() -> None:
    assert [process.name for process in plan(load())] == [
        "hub", "memory", "judge", "generator-1", "learner", "sandbox-1", "agent-1", "designer-1",
    ]  # fmt: skip


def test_counts_scale_and_zero_leaves_a_role_out() -> None:
    names = [p.name for p in plan(load(None, ["agent.count=3", "designer.count=0", "generator.count=2"]))]
    assert names == [
        "hub",
        "memory",
        "judge",
        "generator-1",
        "generator-2",
        "learner",
        "sandbox-1",
        "agent-1",
        "agent-2",
        "agent-3",
    ]


def test_the_tables_of_a_role_are_those_its_code_reads() -> None:
    for role, tables in TABLES.items():
        source = ROOT / ("sandbox/spade_sandbox" if role == "sandbox" else f"spade_actors/{role}")
        text = "".join(path.read_text() for path in source.rglob("*.py"))
        read = set(re.findall(rf"\bconfig\.({'|'.join(sections(Config))})\b", text))
        assert read <= set(tables), f"{role} reads {sorted(read - set(tables))} too"
