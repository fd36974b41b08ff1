"""The command line: exit codes, one-line errors, light imports."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from spade_actors import __version__
from spade_actors.cli.app import app, run_command
from spade_actors.config import load, to_toml
from spade_actors.record.folder import RunFolder, RunInfo


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_command(app, list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_help_and_version_import_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['spade-actors', '--help']\n"
        "from spade_actors.cli.app import app, run_command\n"
        "code = run_command(app, ['--help'])\n"
        "heavy = {'torch', 'zmq', 'trio', 'numpy', 'rich', 'httpx'} & set(sys.modules)\n"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for command in (
        "up",
        "run",
        "status",
        "top",
        "down",
        "logs",
        "show",
        "audit-record",
        "config",
        "bench",
        "bootstrap",
        "doctor",
    ):
        assert f"\n  {command} " in done.stdout


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version") == (0, f"spade-actors, version {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["upp"], ["up", "--nope"], ["status"], ["run", "agent"]])
def test_wrong_use_is_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert call(capsys, *arguments)[0] == 2


def test_a_wrong_setting_is_one_line_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "up", "--dry-run", "--set", "learner.min_bach=3")
    assert (code, out) == (2, "")
    assert err == "spade-actors: unknown key learner.min_bach: did you mean learner.min_batch?\n"


def test_dry_run_prints_each_process_and_starts_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = call(capsys, "up", "--dry-run", "--set", "agent.count=2", "--steps", "3", "--seed", "9")
    assert code == 0
    assert list(tmp_path.iterdir()) == []
    parts = out.split("# ")[1:]
    names = [part.split(":", 1)[0] for part in parts]
    assert names == [
        "hub",
        "memory",
        "judge",
        "generator-1",
        "learner",
        "sandbox-1",
        "agent-1",
        "agent-2",
        "designer-1",
    ]
    learner = tomllib.loads(parts[names.index("learner")].split("\n", 1)[1])
    assert learner["run"]["steps"] == 3
    assert learner["run"]["seed"] == 9
    assert set(learner) == {"run", "learner", "judge"}


def test_config_prints_toml_that_means_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = call(capsys, "config", "--set", "learner.lr=0.125")
    assert code == 0
    file = tmp_path / "a.toml"
    file.write_text(out)
    assert load(file).learner.lr == 0.125
    assert "# AdamW learning rate; a number >= 0\nlr = 0.125\n" in out


def test_continuing_keeps_the_configuration(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(to_toml(load(None, ["learner.lr=0.5", "run.steps=10", "run.seed=4"])))
    code, out, _ = call(capsys, "up", str(tmp_path), "--dry-run", "--steps", "+5", "--set", "agent.temperature=0.5")
    assert code == 0
    assert "steps = 15" in out
    assert "lr = 0.5" in out
    assert "temperature = 0.5" in out
    code, _, err = call(capsys, "up", str(tmp_path), "--dry-run", "--seed", "5")
    assert code == 2
    assert "has seed 4" in err
    assert call(capsys, "up", str(tmp_path), "--dry-run", "--run-dir", "x")[0] == 2
    code, _, err = call(capsys, "up", "--dry-run", "--run-dir", str(tmp_path))
    assert code == 2
    assert f"continue it with `spade-actors up {tmp_path}`" in err


@pytest.mark.parametrize(
    ("steps", "said"), [("x", "expected a number"), ("+3", "only continues"), ("0", "run.steps = 0")]
)
def test_wrong_steps(capsys: pytest.CaptureFixture[str], steps: str, said: str) -> None:
    code, _, err = call(capsys, "up", "--dry-run", "--steps", steps)
    assert code == 2
    assert said in err


@pytest.mark.parametrize("command", [["status"], ["top"], ["down"], ["logs"], ["show", "x"], ["audit-record"]])
def test_a_folder_that_is_no_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]) -> None:
    code, _, err = call(capsys, command[0], str(tmp_path), *command[1:])
    assert code == 2
    assert "is not a run folder" in err
    assert err.count("\n") == 1


def test_run_refuses_an_unknown_role(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = call(
        capsys, "run", "refferee", "--run-dir", str(tmp_path), "--hub", "ipc://x", "--sockets", str(tmp_path)
    )
    assert code == 2
    assert "expected hub, memory, judge" in err
    code, _, err = call(capsys, "run", "agent", "--run-dir", str(tmp_path))
    assert code == 2
    assert "no --hub" in err
    info = RunInfo(
        hub="ipc://x", sockets=str(tmp_path), pid=1, started=0.0, state="complete", reason="", sessions=1, version="0"
    )
    RunFolder(tmp_path).write_info(info)
    code, _, err = call(capsys, "run", "agent", "--run-dir", str(tmp_path))
    assert code == 2
    assert "is not running (complete); continue it with `spade-actors up" in err
    code, _, err = call(
        capsys,
        "run",
        "no.such:make",
        "--run-dir",
        str(tmp_path),
        "--hub",
        "ipc://x",
        "--role",
        "agent",
        "--sockets",
        ".",
    )
    assert code == 2
    assert "there is no module no" in err


def test_logs_shows_the_ends_of_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "hub.log").write_text("one\ntwo\nthree\n")
    (tmp_path / "logs" / "agent-1.out").write_text("trouble\n")
    code, out, _ = call(capsys, "logs", str(tmp_path), "-n", "2")
    assert (code, out) == (0, "agent-1  trouble\nhub      two\nhub      three\n")
    code, _, err = call(capsys, "logs", str(tmp_path), "judge")
    assert code == 2
    assert "there are agent-1, hub" in err


def test_show_finds_an_environment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    place = tmp_path / "environments" / "d000001"
    place.mkdir(parents=True)
    (place / "env.py").write_text("class GameEnv: ...\n")
    code, out, _ = call(capsys, "show", str(tmp_path), "d0")
    assert code == 0
    assert "class GameEnv: ..." in out
    code, out, _ = call(capsys, "show", str(tmp_path), "d0", "--json")
    assert json.loads(out)["id"] == "d000001"
    assert call(capsys, "show", str(tmp_path), "e9")[0] == 2
