"""The run folder: which file is where, who runs it, and the lock that keeps two supervisors apart.

What always holds: a folder has at most one supervisor (an flock that dies with its holder); `run.json` and `config.toml` are
replaced as wholes; sockets live in a 0700 folder whose paths fit into a socket address.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from spade_actors.config import Config, load, to_toml

LONGEST_ADDRESS = 103
"""bytes of a Unix socket path that ZeroMQ and every system take"""
LONGEST_NAME = 32
"""bytes kept for a process's name in a socket path"""


class FolderError(Exception):
    """One line for the user: the folder, what is wrong with it, what to do."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`run.json`: how to reach a run, or how it ended."""

    hub: str
    """the hub's address"""
    sockets: str
    pid: int
    """of the supervisor"""
    started: float
    """of this session, seconds since the epoch"""
    state: str
    """running | complete | interrupted | failed"""
    reason: str = ""
    sessions: int = 1
    """how often `up` was started on this folder"""
    version: str = ""


class RunFolder:
    """Paths and small files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.info_file = path / "run.json"
        self.lock_file = path / "lock"
        self.logs = path / "logs"
        self.metrics_file = path / "metrics.jsonl"
        self.summary_file = path / "summary.json"
        self.hub_journal = path / "journal.sqlite"
        self.judge_spool = path / "judge.sqlite"
        self.environments = path / "environments"
        self.episodes = path / "episodes"
        self.evaluations = path / "evaluations"

    def exists(self) -> bool:
        """Whether a run was ever started here."""
        return self.config_file.is_file()

    def require(self) -> "RunFolder":
        """Itself, or `FolderError` when there is no run here."""
        if not self.exists():
            what = "has no config.toml, so it is not a run folder" if self.path.is_dir() else "does not exist"
            raise FolderError(
                f"run folder {self.path} {what}; start a run with `spade-actors up --run-dir {self.path}`"
            )
        return self

    def config(self) -> Config:
        """The resolved configuration of the run; raises `ConfigError` if the file was damaged."""
        return load(self.config_file)

    def info(self) -> RunInfo | None:
        """What `run.json` says, or None before the first session.

        Raises:
            FolderError: the file is damaged.
        """
        try:
            return msgspec.json.decode(self.info_file.read_bytes(), type=RunInfo)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise FolderError(
                f"{self.info_file} is damaged ({error}); remove it, the run itself does not need it"
            ) from None

    def running(self) -> RunInfo | None:
        """`run.json` if a supervisor holds the folder now, else None."""
        return self.info() if self._locked() else None

    def write_config(self, config: Config) -> None:
        """Saves the resolved configuration."""
        replace(self.config_file, to_toml(config, comments=True).encode())

    def write_info(self, info: RunInfo) -> None:
        """Saves `run.json`."""
        replace(self.info_file, msgspec.json.format(msgspec.json.encode(info)) + b"\n")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Makes the folder and holds it.

        Raises:
            FolderError: another supervisor holds it, or it cannot be made.
        """
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise FolderError(f"run folder {self.path}: {error.strerror}; choose another with --run-dir") from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "?"
                raise FolderError(
                    f"run folder {self.path} is in use by process {pid}; watch it with `spade-actors top {self.path}`"
                    f" or end it with `spade-actors down {self.path}`"
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def _locked(self) -> bool:
        try:
            descriptor = os.open(self.lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def replace(path: Path, data: bytes) -> None:
    """Writes a file as a whole: readers see the old bytes or the new ones."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)


def sockets_inside(run_dir: Path) -> Path | None:
    """The folder for sockets within the run folder, or None where its paths would be too long for an address."""
    candidate = run_dir.resolve() / "sockets"
    longest = len(os.fsencode(candidate)) + 1 + LONGEST_NAME + len(".sock")
    return candidate if longest <= LONGEST_ADDRESS else None


@contextlib.contextmanager
def sockets(run_dir: Path) -> Iterator[Path]:
    """A private, empty folder for sockets, removed at the end."""
    inside = sockets_inside(run_dir)
    if inside is not None:
        shutil.rmtree(inside, ignore_errors=True)
        inside.mkdir(mode=0o700)
        folder = inside
    else:
        folder = Path(tempfile.mkdtemp(prefix="spade-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_sockets(info: RunInfo | None) -> None:
    """Removes the private socket folder of a session whose supervisor was killed."""
    if info is None:
        return
    left = Path(info.sockets)
    private = left.name.startswith("spade-") and left.parent == Path(tempfile.gettempdir())
    if private and left.is_dir() and left.stat().st_uid == os.getuid():
        shutil.rmtree(left, ignore_errors=True)
