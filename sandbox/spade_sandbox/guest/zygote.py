"""The first process of a jail: it holds one source, forks a child for every episode, and never runs generated code.

It obeys messages on the control socket (SOCK_SEQPACKET), one letter each:

    P            import what most environments use (a warm jail, while nobody waits)
    R            forget the text held
    B <bytes>    append to the text held
    S            the text is complete and is source: import the trusted modules it names
    X            the text is complete and is byte code
    F <id>       fork a child that serves the attached descriptor
    K <id>       kill and reap that child; answered by D <id> <wait status> <cpu microseconds> <peak KiB>

and says `H` once it is ready and `E <id> <errno>` when it cannot fork. The end of the control socket is the end of
the jail: as process 1 of its namespace it takes every child along.

Standard library only: this runs inside the jail.
"""

from __future__ import annotations

import _socket
import gc
import os
import resource
import struct
import sys

from . import child, seccomp

TYPE_CHECKING = False  # as in typing, which would cost a cold jail three milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Never

COMMON = ("random", "math", "re", "json", "collections", "functools", "itertools", "string", "copy", "enum")
# Imported in the zygote when the source names them: trusted code, paid once per jail instead of once per episode.
KNOWN = (
    *(
        "abc",
        "bisect",
        "calendar",
        "contextlib",
        "dataclasses",
        "datetime",
        "typing",
        "decimal",
        "difflib",
        "fractions",
        "hashlib",
        "heapq",
    ),
    *(
        "inspect",
        "logging",
        "operator",
        "os",
        "pprint",
        "statistics",
        "sys",
        "textwrap",
        "threading",
        "time",
        "types",
        "uuid",
    ),
)


class Limits:
    """What a child may use; from the command line, in this order."""

    def __init__(self, values: list[str]) -> None:
        cpu, memory, processes, output, reply, filtered = (int(value) for value in values)
        self.cpu_s = cpu
        self.memory_mb = memory
        self.processes = processes
        self.output_bytes = output
        self.reply_bytes = reply
        self.filtered = bool(filtered)


def load(names: Iterable[str]) -> None:
    for name in names:
        try:
            __import__(name)
        except ImportError:  # absent from this interpreter: the environment will see the same itself
            continue


def prepare(source: bytes) -> dict[str, Any]:
    """Import what the source names, then let the collector forget everything so that forks share its pages."""
    text = source.decode("utf-8", "replace")
    load(name for name in COMMON + KNOWN if name in text)
    if "numpy" in text or "np." in text:
        sys.path.append(child.SITE)
        load(("numpy", "numpy.random"))
    namespace = child.namespace(text)
    gc.collect()
    gc.freeze()
    return namespace


def main(argv: list[str]) -> Never:
    """`argv`: the control descriptor, then the limits in the order of `Limits`."""
    control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, int(argv[0]))
    limits = Limits(argv[1:])
    if limits.filtered and not seccomp.supported():
        sys.exit(f"no system call table for {os.uname().machine}")
    gc.set_threshold(100_000, 10, 10)  # a collection writes to every page of a child that it looks at
    ancillary = _socket.CMSG_SPACE(4)
    children: dict[bytes, int] = {}
    text, is_source = bytearray(), True
    namespace: dict[str, Any] = {}
    for descriptor in (1, 2):
        os.dup2(0, descriptor)  # /dev/null: what is written past Python's own streams goes nowhere
    preparations: list[Callable[[], None]] = [lambda: lower(limits)]
    if os.getpid() != 1:  # process 1 takes its namespace along anyway
        preparations.append(seccomp.prepare_death())
    if limits.filtered:
        seccomp.confine_zygote()
        preparations.append(seccomp.prepare_child())
    control.send(b"H")
    while True:
        data, attached, _, _ = control.recvmsg(65536, ancillary)
        order = data[:1]
        if order == b"F":
            identity = data[1:5]
            descriptor = struct.unpack("i", attached[0][2])[0]
            try:
                pid = os.fork()
            except OSError as error:
                os.close(descriptor)
                control.send(b"E" + identity + struct.pack("<i", error.errno))
                continue
            if pid == 0:
                child.run(descriptor, bytes(text), is_source, namespace, limits, preparations)
            os.close(descriptor)
            children[identity] = pid
        elif order == b"K":
            identity = data[1:5]
            pid = children.pop(identity, 0)
            if pid:
                os.kill(pid, 9)  # a child that has ended keeps the status it ended with
                _, status, used = os.wait4(pid, 0)
                spent = int((used.ru_utime + used.ru_stime) * 1e6)
                control.send(b"D" + identity + struct.pack("<iQQ", status, spent, used.ru_maxrss))
        elif order == b"B":
            text += data[1:]
        elif order == b"R":
            text.clear()
        elif order == b"S":
            is_source, namespace = True, prepare(bytes(text))
        elif order == b"X":
            is_source = False
        elif order == b"P":
            load(COMMON)
        elif not data:
            os._exit(0)


def lower(limits: Limits) -> None:
    """The child's own limits, below the jail's."""
    cpu = limits.cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    space = (limits.memory_mb + (NUMPY_SPACE_MB if "numpy" in sys.modules else BASE_SPACE_MB)) << 20
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_NPROC, (limits.processes, limits.processes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


BASE_SPACE_MB = 96  # address space of an idle child, measured and rounded up
NUMPY_SPACE_MB = 512
