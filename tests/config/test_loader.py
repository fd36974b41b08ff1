"""Loading, overriding, refusing and printing configurations."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from spade_actors.config import Config, ConfigError, load, to_toml
from spade_actors.config.describe import expected, help_of, sections


def refused(*overrides: str, path: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_defaults_are_the_schemas_alone() -> None:
    assert load() == Config()


def test_every_field_has_a_help_and_words_for_what_it_expects() -> None:
    for table, cls in sections(Config).items():
        for field in msgspec.structs.fields(cls):
            assert help_of(field.type), f"{table}.{field.name} has no description"
            assert expected(inspect.type_info(field.type))


def test_file_then_overrides_then_types(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[learner]\nlr = 1\nbatch = 100\n[judge]\nskills = ["a", "b"]\n')
    config = load(
        file, ["learner.lr=0.5", "run.model=some/where", "learner.betas=[0.8, 0.9]", "sandbox.allow_unsafe=true"]
    )
    assert config.learner.lr == 0.5
    assert config.learner.batch == 100
    assert config.learner.betas == (0.8, 0.9)
    assert config.run.model == "some/where"
    assert config.judge.skills == ["a", "b"]
    assert config.sandbox.allow_unsafe


def test_a_base_keeps_what_is_not_overridden() -> None:
    base = load(None, ["learner.lr=0.5"])
    assert load(None, ["run.steps=7"], base=base).learner.lr == 0.5


def test_unknown_names_get_the_nearest_right_one() -> None:
    assert refused("learner.qqq=1").startswith("unknown key learner.qqq: [learner] has batch, designer_share, ")
    assert refused("learner.min_bach=1") == "unknown key learner.min_bach: did you mean learner.min_batch?"
    assert refused("agent.pairs=1") == "unknown key agent.pairs: did you mean judge.pairs?"
    assert refused("lerner.lr=1") == "unknown table [lerner]: did you mean [learner]?"
    assert "[run], [hub]" in refused("zzz.lr=1")


def test_wrong_values_name_key_value_and_expectation() -> None:
    assert refused("learner.lr=fast") == "learner.lr = 'fast': expected a number >= 0 (AdamW learning rate)"
    assert refused("run.steps=0").startswith("run.steps = 0: expected an integer >= 1 (")
    assert refused("run.steps=1.5").startswith("run.steps = 1.5: expected an integer >= 1 (")
    assert refused("generator.kind=vllm").startswith(
        'generator.kind = \'vllm\': expected "embedded", "sglang" or "sglang-url" ('
    )
    assert refused("sandbox.allow_unsafe=1").startswith("sandbox.allow_unsafe = 1: expected true or false")
    assert refused("judge.skills=[1]").startswith("judge.skills = [1]: expected a list, each a text")
    assert refused("learner.betas=[1]").startswith("learner.betas = [1]: expected a list of 2: a number, a number")


@pytest.mark.parametrize("override", ["learner", "learner.lr", "=1", "lr=1", "a.b.c=1", ".lr=1"])
def test_an_override_that_is_no_assignment(override: str) -> None:
    assert refused(override) == f"--set {override}: expected section.key=value, e.g. --set learner.lr=0.001"


def test_contradictions_between_settings() -> None:
    assert refused("judge.pairs=2").startswith("judge.min_pairs = 4: expected at most judge.pairs = 2")
    assert "sandbox.allow_unsafe = true" in refused("sandbox.provider=process")
    assert refused("generator.kind=sglang-url").startswith('generator.url = ""')
    assert "nothing to train" in refused("learner.agent_weight=0", "learner.designer_weight=0")


def test_files_that_are_not_configurations(tmp_path: Path) -> None:
    assert refused(path=tmp_path / "absent.toml").endswith("No such file or directory")
    bad = tmp_path / "bad.toml"
    bad.write_text("[run\n")
    assert "is not TOML" in refused(path=bad)
    flat = tmp_path / "flat.toml"
    flat.write_text("steps = 3\n")
    assert refused(path=flat).endswith("unknown key steps: did you mean run.steps?")
    table = tmp_path / "table.toml"
    table.write_text("learner = 3\n")
    assert refused(path=table).endswith("learner = 3: learner is a table; write its keys under [learner]")


def test_printed_configuration_reads_back(tmp_path: Path) -> None:
    config = load(None, ['judge.skills=["a\\"b", \'é\\n\']', "learner.lr=1e-05", "generator.arguments=['--x']"])
    for comments in (False, True):
        file = tmp_path / "config.toml"
        file.write_text(to_toml(config, comments=comments))
        assert load(file) == config
    assert to_toml(config, only=["hub"]).startswith("[hub]\nheartbeat_s = 1.0\n")


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    number=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
)
def test_any_text_and_number_survive_printing(
    tmp_path_factory: pytest.TempPathFactory, text: str, number: float
) -> None:
    config = msgspec.structs.replace(
        Config(),
        run=msgspec.structs.replace(Config().run, model=text),
        learner=msgspec.structs.replace(Config().learner, lr=number),
    )
    file = tmp_path_factory.mktemp("config") / "config.toml"
    file.write_bytes(to_toml(config).encode())
    assert load(file) == config


def test_the_environment_switches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPADE_ACTORS_LEARNER_LR", "LEARNER_LR", "SPADE_LEARNER__LR", "learner.lr"):
        monkeypatch.setenv(name, "9")
    assert load() == Config()
