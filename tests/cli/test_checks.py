"""Checks before a run, and `doctor`."""

import importlib.util
import json
from pathlib import Path

import pytest

from spade_actors.cli import checks
from spade_actors.cli.app import app, run_command
from spade_actors.config import Config, load


def test_doctor_says_everything_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(app, ["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)["checks"]
    names = {check["name"] for check in told}
    assert {"python", "glibc", "cores", "disk", "sockets", "shm", "pidfd", "nsjail", "torch", "model"} == names
    assert code == (0 if all(check["ok"] for check in told) else 1)


def test_a_missing_model_stops_up_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "jail", lambda config: checks.Check("nsjail", True, ""))
    run_dir = tmp_path / "run"
    code = run_command(app, ["up", "--no-ui", "--run-dir", str(run_dir), "--set", f"run.model={tmp_path / 'nothing'}"])
    err = capsys.readouterr().err
    assert code == 1
    assert err.startswith(
        f"spade-actors: model: {tmp_path / 'nothing'} lacks config.json, tokenizer.json, *.safetensors; set run.model"
    )
    assert err.count("\n") == 1
    assert not run_dir.exists()


def test_a_machine_without_torch_is_told_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check = checks.torch(Config())
    assert not check.ok
    assert "spade-actors[learner]" in check.fix


def test_a_machine_without_jails_stops_unless_unsafe_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    from spade_sandbox.errors import SandboxSetupError

    def broken() -> None:
        raise SandboxSetupError("user namespaces are switched off")

    monkeypatch.setattr("spade_sandbox.rootfs.ensure_rootfs", broken)
    check = checks.jail(Config())
    assert not check.ok
    assert check.fix.startswith("user namespaces are switched off; set sandbox.allow_unsafe = true")
    assert checks.jail(load(None, ["sandbox.allow_unsafe=true"])).ok
    assert checks.jail(load(None, ["sandbox.count=0"])).ok


def test_files_named_in_the_configuration_must_exist(tmp_path: Path) -> None:
    config = load(None, [f"memory.corpus={tmp_path / 'no.jsonl'}", "sandbox.count=0"])
    assert "memory.corpus" in [check.name for check in checks.needed(config)]
