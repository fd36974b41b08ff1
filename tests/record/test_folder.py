"""Locks, socket folders and small files of a run folder."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from spade_actors.config import load
from spade_actors.record.folder import (
    LONGEST_ADDRESS,
    LONGEST_NAME,
    FolderError,
    RunFolder,
    RunInfo,
    remove_left_sockets,
    sockets,
    sockets_inside,
)

INFO = RunInfo(hub="ipc://x", sockets="/nowhere", pid=1, started=2.0, state="running")


def test_a_second_supervisor_is_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        folder.write_info(INFO)
        assert folder.running() == INFO
        with (
            pytest.raises(FolderError, match=rf"in use by process {os.getpid()}; watch it .*spade-actors down"),
            folder.lock(),
        ):
            pass
    assert folder.running() is None
    assert folder.info() == INFO
    with folder.lock():
        pass


def test_a_killed_holder_frees_the_folder(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from spade_actors.record.folder import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).lock(): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=30)
    with RunFolder(tmp_path).lock():
        pass


def test_configuration_is_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert not folder.exists()
    with pytest.raises(FolderError, match=r"has no config\.toml"):
        folder.require()
    config = load(None, ["learner.lr=0.25"])
    folder.write_config(config)
    assert folder.require().config() == config


def test_a_damaged_info_file_is_one_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.info_file.write_text("{")
    with pytest.raises(FolderError, match="is damaged"):
        folder.info()


def test_sockets_are_private_and_vanish(tmp_path: Path) -> None:
    short = Path(os.path.relpath(tmp_path))
    with sockets(short) as folder:
        assert folder.is_absolute()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "hub.sock").touch()
    assert not folder.exists()


def test_long_paths_get_a_short_private_folder(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    assert sockets_inside(deep) is None
    with sockets(deep) as folder:
        assert len(str(folder / ("n" * LONGEST_NAME + ".sock"))) <= LONGEST_ADDRESS
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


def test_a_killed_sessions_folder_is_removed_but_nothing_else(tmp_path: Path) -> None:
    with sockets(tmp_path / ("d" * 90)) as folder:
        remove_left_sockets(RunInfo(hub="", sockets=str(tmp_path), pid=1, started=0.0, state="running"))
        assert tmp_path.exists()
        remove_left_sockets(RunInfo(hub="", sockets=str(folder), pid=1, started=0.0, state="running"))
        assert not folder.exists()
