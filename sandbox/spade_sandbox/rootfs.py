"""The private root file system of every jail: a Python runtime and nothing else of the host.

Built once per (interpreter, numpy, guest) into a cache folder, in a temporary sibling that is renamed into place,
under a file lock: readers see a whole root or none. Files are copied, never linked, and are world-readable, so the
interpreter's own home may be 0700. The cache itself must be reachable for the jail's outside user: root's jails run
as nobody, so a cache below `/root` is replaced by one below `/var/cache`.

Byte code is compiled for the paths it has inside (unchecked hash files: no source is looked at when importing).
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import SandboxSetupError

_FORMAT = 3  # part of the key: raise it when the layout below changes
_SKIP_DIRS = {
    *(
        "__pycache__",
        "test",
        "tests",
        "idlelib",
        "tkinter",
        "turtledemo",
        "ensurepip",
        "lib2to3",
        "distutils",
        "site-packages",
    ),
    *("dist-packages", "pydoc_data", "venv", "_pyrepl", "f2py", "typing_tests"),
}
_SKIP_EXTENSIONS = re.compile(
    r"^(_test|_xxtest|xx|_ctypes_test|_tkinter|_curses|readline|nis|ossaudiodev|_dbm|_gdbm|_crypt|spwd|_xxsub)"
)
_GUEST_DIR = Path(__file__).parent / "guest"
_LIB_DIR = "usr/lib/spade"  # shared libraries, flat
SITE_DIR = "/usr/lib/spade-site"  # numpy lives here, off sys.path until a source names it


@dataclass(frozen=True, slots=True)
class RootFs:
    """A finished root: `path` on the host; what is inside is fixed by the class attributes."""

    path: Path
    numpy: bool

    python: str = "/usr/bin/python3"
    library_path: str = "/" + _LIB_DIR
    python_home: str = "/usr"
    guest_path: str = "/usr/lib/spade-guest"


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/spade-actors`, or `~/.cache/spade-actors`."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "spade-actors"


def ensure_rootfs(cache: Path | None = None) -> RootFs:
    """The root for the running interpreter, built if it is not there yet (seconds, once).

    Blocking: call it before the event loop starts, or on a thread. Concurrent builders wait for one another. Raises
    `SandboxSetupError` when the cache cannot be written or the interpreter's files cannot be found.
    """
    numpy = _numpy_dir()
    where = _reachable(cache or default_cache()) / "jail-root"
    target = where / _key(numpy)
    if not (target / ".complete").exists():
        try:
            where.mkdir(mode=0o755, parents=True, exist_ok=True)
            with _locked(where / ".lock"):
                if not (target / ".complete").exists():
                    _build(where, target, numpy)
        except OSError as error:
            raise SandboxSetupError(
                f"jail root {target}: cannot be built ({error}); set a cache folder that can be written"
            ) from error
    return RootFs(target, numpy is not None)


def _reachable(cache: Path) -> Path:
    """`cache`, or where root's jails can reach it: they are nobody outside and cannot pass a 0700 folder."""
    cache = cache.absolute()
    if os.geteuid() != 0 or all(_passable(folder) for folder in (cache, *cache.parents)):
        return cache
    for other in (Path("/var/cache/spade-actors"), Path("/var/tmp/spade-actors-0")):
        try:
            other.mkdir(mode=0o755, exist_ok=True)
        except OSError:
            continue
        status = other.lstat()
        if status.st_uid == 0 and not status.st_mode & 0o022 and other.is_dir() and not other.is_symlink():
            return other
    raise SandboxSetupError(
        f"jail root: {cache} cannot be passed by uid 65534 and neither /var/cache nor /var/tmp can be used; "
        "set a cache folder whose parents are all o+x"
    )


def _passable(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & 0o001)
    except FileNotFoundError:
        return True  # will be made by us


def _key(numpy: Path | None) -> str:
    """Folder name: readable version first, then a hash of all that went in."""
    digest = hashlib.sha256(
        f"{_FORMAT} {sys.version} {os.path.realpath(_interpreter())} {_stamp(Path(_interpreter()))} {numpy}".encode()
    )
    if numpy is not None:
        digest.update(_stamp(numpy / "version.py").encode())
    for file in sorted(_GUEST_DIR.glob("*.py")):
        digest.update(file.read_bytes())
    return f"py{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}-{digest.hexdigest()[:16]}"


def _stamp(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:
        return "absent"
    return f"{status.st_size}:{status.st_mtime_ns}"


def _interpreter() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _numpy_dir() -> Path | None:
    spec = importlib.util.find_spec("numpy")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _build(where: Path, target: Path, numpy: Path | None) -> None:
    """Fill a temporary folder and rename it to `target`; older roots stay (a running executor may use them)."""
    staging = Path(tempfile.mkdtemp(prefix=".building-", dir=where))
    try:
        root = staging / "root"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        stdlib = root / "usr" / sys.platlibdir / version
        for folder in ("usr/bin", _LIB_DIR, "tmp", "dev", "proc"):
            (root / folder).mkdir(parents=True)
        shutil.copy(_interpreter(), root / "usr/bin/python3")
        _copy_tree(Path(sysconfig.get_path("stdlib")), stdlib, root)
        if not (stdlib / "lib-dynload").exists():
            _copy_tree(_dynload(), stdlib / "lib-dynload", root)
        _copy_tree(_GUEST_DIR, root / "usr/lib/spade-guest/spade_guest", root)
        if numpy is not None:
            _copy_tree(numpy, root / SITE_DIR[1:] / "numpy", root)
            bundled = numpy.parent / "numpy.libs"
            if bundled.is_dir():
                _copy_tree(bundled, root / SITE_DIR[1:] / "numpy.libs", root)
        _copy_libraries(root, numpy)
        _make_readable(root)
        (root / ".complete").write_text("")
        os.rename(root, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _copy_tree(source: Path, target: Path, root: Path) -> None:
    """Copy Python sources (each with its byte code) and shared objects; leave tests, tools and stale caches behind."""
    for folder, names, files in os.walk(source):
        names[:] = [name for name in names if name not in _SKIP_DIRS and not name.startswith("config-")]
        here = target / Path(folder).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        for name in files:
            if name.endswith((".pyi", ".a", ".pyc", ".exe", ".h", ".c", ".pyx", ".pxd", ".txt", ".rst")):
                continue
            if ".so" in name and _SKIP_EXTENSIONS.match(name):
                continue
            copy = here / name
            shutil.copyfile(os.path.join(folder, name), copy)
            if name.endswith(".py"):
                inside = "/" + str(copy.relative_to(root))
                try:
                    py_compile.compile(
                        str(copy),
                        dfile=inside,
                        doraise=True,
                        quiet=1,
                        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                    )
                except py_compile.PyCompileError:
                    continue  # templates of another Python version: importing them fails in the same way as on the host


def _copy_libraries(root: Path, numpy: Path | None) -> None:
    """Copy what the interpreter and the extension modules load, found by asking the dynamic loader itself."""
    loader = _loader()
    objects = [Path(_interpreter()), *_extensions(_dynload())]
    if numpy is not None:
        objects += _extensions(numpy / "_core") or _extensions(numpy / "core")
    found: dict[str, str] = {}
    for item in objects:
        for name, path in _needed(loader, str(item)):
            if "numpy.libs" not in path:
                found.setdefault(name, path)
    if not any(name.startswith("libc.") for name in found):
        raise SandboxSetupError(
            f"jail root: the loader {loader} names no C library for {_interpreter()}; a dynamically linked Python is needed"
        )
    for name, path in found.items():
        shutil.copyfile(path, root / _LIB_DIR / name)
    inside = root / loader.lstrip("/")
    inside.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(loader, inside)


def _extensions(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.glob("*.so")) if not _SKIP_EXTENSIONS.match(p.name)]


def _dynload() -> Path:
    """The base interpreter's folder of extension modules (a virtual environment's own scheme does not name it)."""
    for entry in sys.path:
        if entry.endswith("lib-dynload"):
            return Path(entry)
    raise SandboxSetupError(f"jail root: {_interpreter()} has no lib-dynload on sys.path; use a regular CPython build")


def _loader() -> str:
    """The program interpreter (ELF PT_INTERP) of the running Python."""
    data = Path(_interpreter()).read_bytes()[:8192]
    match = re.search(rb"/[^\0]*/ld[-.][^\0]*", data)
    if match is None:
        raise SandboxSetupError(
            f"jail root: {_interpreter()} names no dynamic loader; a dynamically linked Python is needed"
        )
    return match.group().decode()


def _needed(loader: str, item: str) -> Iterator[tuple[str, str]]:
    """(soname, path) of every library `item` needs, transitively, as the loader resolves them on the host."""
    result = subprocess.run(
        [loader, "--list", item], capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
    )
    for line in result.stdout.splitlines():
        match = re.match(r"\s*(\S+) => (/\S+) \(", line)
        if match:
            yield os.path.basename(match.group(1)), match.group(2)


def _make_readable(root: Path) -> None:
    """World-readable, writable by nobody; programs and loaders executable."""
    for folder, _, files in os.walk(root):
        os.chmod(folder, 0o755)
        for name in files:
            path = os.path.join(folder, name)
            executable = ".so" in name or name == "python3"
            os.chmod(path, 0o755 if executable else 0o644)
