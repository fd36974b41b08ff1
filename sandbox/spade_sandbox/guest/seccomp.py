"""The filters of the guest (classic BPF, installed by `prctl`; neither can be taken off again).

* The zygote's, installed once and inherited: an allow list. Computing, memory, reading files, waiting, and reads and
  writes of descriptors it already has; whatever is not named fails with EPERM, so an environment sees an ordinary
  `PermissionError`. No socket can be made, nothing opened for writing, no limit or priority of another process
  changed, no asynchronous signal owner set on a descriptor.
* The child's, put on each child before generated code is loaded: takes away what only the zygote needs. No process
  but threads of its own, no program, no signal to anyone else, no messages with descriptors. It is short because the
  kernel compiles it anew for every episode.

Standard library only: this runs inside the jail.
"""

from __future__ import annotations

import ctypes
import os
import struct

TYPE_CHECKING = False  # as in typing, which would cost a cold jail three milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Call = tuple[int | None, int | None]

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _EACCES, _ENOSYS, _ENOTTY = 1, 13, 38, 25
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_WRITING = 0o3 | 0o100 | 0o1000 | 0o20000000  # access mode, O_CREAT, O_TRUNC, O_TMPFILE
_CLONE_THREAD = 0x10000
_CLONE_NEW = 0x7E020080  # any new namespace
_FCNTL = (
    0,
    1,
    2,
    3,
    4,
    1030,
)  # dup, get/set fd flags, get/set status flags, dup with close-on-exec: no F_SETOWN, F_SETSIG
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # isatty, window size, FIONREAD, FIONBIO, close-on-exec

# Numbers: (x86_64, aarch64); None where the call does not exist.
_PLAIN: dict[str, Call] = {
    "read": (0, 63), "write": (1, 64), "futex": (202, 98), "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226),
    "brk": (12, 214), "madvise": (28, 233), "mremap": (25, 216), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62),
    "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66), "newfstatat": (262, 79), "statx": (332, 291),
    "getdents64": (217, 61), "readlinkat": (267, 78), "faccessat": (269, 48), "faccessat2": (439, 439), "getcwd": (79, 17),
    "chdir": (80, 49), "dup": (32, 23), "dup3": (292, 24), "pipe2": (293, 59), "close_range": (436, 436),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132), "restart_syscall": (219, 128), "exit": (60, 93),
    "exit_group": (231, 94), "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "gettimeofday": (96, 169), "times": (100, 153), "getitimer": (36, 102),
    "setitimer": (38, 103), "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "getgroups": (115, 158), "uname": (63, 160),
    "sysinfo": (99, 179), "umask": (95, 166), "getrandom": (318, 278), "getrusage": (98, 165), "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123), "set_robust_list": (273, 99), "rseq": (334, 293), "ppoll": (271, 73),
    "pselect6": (270, 72), "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_pwait": (281, 22),
    "eventfd2": (290, 19), "membarrier": (324, 283),
    "stat": (4, None), "lstat": (6, None), "access": (21, None), "readlink": (89, None), "poll": (7, None),
    "select": (23, None), "dup2": (33, None), "pipe": (22, None), "pause": (34, None), "alarm": (37, None),
    "time": (201, None), "epoll_wait": (232, None), "getrlimit": (97, None), "getpgrp": (111, None),
}  # fmt: skip
_ZYGOTE: dict[str, Call] = {
    "wait4": (61, 260),
    "recvmsg": (47, 212),
    "sendto": (44, 206),
    "prctl": (157, 167),
    "kill": (62, 129),
    "tgkill": (234, 131),
}
_ABSENT: dict[str, Call] = {  # probed by libraries that then fall back: they must look unimplemented, not forbidden
    "clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "openat2": (437, 437), "pidfd_open": (434, 434), "memfd_create": (319, 279),
}  # fmt: skip
_GUARDED: dict[str, Call] = {
    "clone": (56, 220), "openat": (257, 56), "open": (2, None), "prlimit64": (302, 261), "setrlimit": (160, None),
    "fcntl": (72, 25), "ioctl": (16, 29),
}  # fmt: skip
_CHILD_LOSES: dict[str, Call] = {
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None), "prctl": (157, 167),
    "recvmsg": (47, 212), "sendto": (44, 206), "wait4": (61, 260),
}  # fmt: skip


class _Program:
    """Instructions under construction. The system call number is loaded first and is loaded still wherever `when` looks at it."""

    def __init__(self, machine: str) -> None:
        self.column = 0 if machine == "x86_64" else 1
        self.code: list[bytes] = []
        self.put(0x20, 4)
        self.put(0x15, _AUDIT[machine], 1, 0)
        self.give(_KILL)
        self.put(0x20, 0)
        if machine == "x86_64":  # the x32 table would name other calls by these numbers
            self.put(0x35, 0x40000000, 0, 1)
            self.give(_ERRNO | _ENOSYS)

    def put(self, operation: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        self.code.append(struct.pack("<HBBI", operation, if_true, if_false, value))

    def give(self, action: int) -> None:
        self.put(0x06, action)

    def argument(self, index: int) -> None:  # its low word, little endian
        self.put(0x20, 16 + 8 * index)

    def always(self, calls: dict[str, Call], action: int) -> None:
        for pair in calls.values():
            number = pair[self.column]
            if number is not None:
                self.put(0x15, number, 0, 1)
                self.give(action)

    def when(self, call: Call, body: Callable[[], None]) -> None:
        """For one call run `body`, which must return on every path."""
        number = call[self.column]
        if number is not None:
            mark = len(self.code)
            self.put(0, 0)
            body()
            self.code[mark] = struct.pack("<HBBI", 0x15, 0, len(self.code) - mark - 1, number)

    def only(self, index: int, values: Iterable[int], errno: int) -> Callable[[], None]:
        """Body: allow these values of an argument."""

        def body() -> None:
            self.argument(index)
            for value in values:
                self.put(0x15, value, 0, 1)
                self.give(_ALLOW)
            self.give(_ERRNO | errno)

        return body

    def without(self, index: int, bits: int, errno: int) -> Callable[[], None]:
        """Body: refuse any of these bits."""

        def body() -> None:
            self.argument(index)
            self.put(0x45, bits, 0, 1)
            self.give(_ERRNO | errno)
            self.give(_ALLOW)

        return body

    def needing(self, index: int, bits: int, errno: int) -> Callable[[], None]:
        """Body: refuse unless one of these bits is set."""

        def body() -> None:
            self.argument(index)
            self.put(0x45, bits, 1, 0)
            self.give(_ERRNO | errno)
            self.give(_ALLOW)

        return body


def zygote_program(machine: str) -> bytes:
    """The allow list, as bytes, for `machine` (`os.uname().machine`). KeyError on a machine without a table."""
    made = _Program(machine)
    made.always(_PLAIN, _ALLOW)
    made.always(_ZYGOTE, _ALLOW)
    made.when(_GUARDED["openat"], made.without(2, _WRITING, _EACCES))
    made.when(_GUARDED["open"], made.without(1, _WRITING, _EACCES))
    made.when(_GUARDED["clone"], made.without(0, _CLONE_NEW, _EPERM))
    made.when(_GUARDED["prlimit64"], made.only(0, (0,), _EPERM))
    made.when(_GUARDED["fcntl"], made.only(1, _FCNTL, _EPERM))
    made.when(_GUARDED["ioctl"], made.only(1, _IOCTL, _ENOTTY))
    made.always({"setrlimit": _GUARDED["setrlimit"]}, _ALLOW)
    made.always(_ABSENT, _ERRNO | _ENOSYS)
    made.give(_ERRNO | _EPERM)
    return b"".join(made.code)


def child_program(machine: str, pid: int) -> bytes:
    """What a child loses, as bytes; `pid` is the child's own as it sees itself."""
    made = _Program(machine)
    made.when(_GUARDED["clone"], made.needing(0, _CLONE_THREAD, _EPERM))
    made.when(_ZYGOTE["kill"], made.only(0, (pid,), _EPERM))
    made.when(_ZYGOTE["tgkill"], made.only(0, (pid,), _EPERM))
    made.always(_CHILD_LOSES, _ERRNO | _EPERM)
    made.give(_ALLOW)
    return b"".join(made.code)


_MACHINE = os.uname().machine
_PID_MARK = 0x7FEDCBA9  # stands for the process id in the prepared filter: no call, flag or limit has this value


_SET_PDEATHSIG, _SET_SECCOMP, _NO_NEW_PRIVS = 1, 22, 38


class _SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def supported() -> bool:
    """Whether this machine has a table."""
    return _MACHINE in _AUDIT


def _bind() -> Callable[..., None]:
    """`prctl` taking whole words: it is variadic, and no half of a register may be left over."""
    call = ctypes.CDLL(None, use_errno=True).prctl
    word = ctypes.c_ulong
    call.argtypes = (ctypes.c_int, word, word, word, word)

    def prctl(option: int, first: int, second: int = 0) -> None:
        if call(option, first, second, 0, 0) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"prctl {option}: {os.strerror(error)}")

    return prctl


def confine_zygote() -> None:
    """Install the allow list on the calling process. Raises OSError when the kernel refuses."""
    prctl = _bind()
    code = zygote_program(_MACHINE)
    buffer = ctypes.create_string_buffer(code, len(code))
    fprog = _SockFprog(len(code) // 8, ctypes.addressof(buffer))
    prctl(_NO_NEW_PRIVS, 1)
    prctl(_SET_SECCOMP, 2, ctypes.addressof(fprog))


def prepare_child() -> Callable[[], None]:
    """A function that confines the child which calls it. Raises OSError when the kernel refuses.

    All that can be made before the fork is made here: every page a child need not write is a page it need not copy.
    """
    prctl = _bind()
    code = child_program(_MACHINE, _PID_MARK)
    places = [at + 4 for at in range(0, len(code), 8) if code[at + 4 : at + 8] == struct.pack("<I", _PID_MARK)]
    buffer = ctypes.create_string_buffer(code, len(code))
    fprog = _SockFprog(len(code) // 8, ctypes.addressof(buffer))
    address, view, getpid, put = (
        ctypes.addressof(fprog),
        memoryview(buffer).cast("B"),
        os.getpid,
        struct.Struct("<I").pack_into,
    )

    def confine(_keep: ctypes.Structure = fprog) -> None:
        pid = getpid()
        for place in places:
            put(view, place, pid)
        prctl(_SET_SECCOMP, 2, address)

    return confine


def prepare_death() -> Callable[[], None]:
    """A function that asks the kernel to kill the calling process when its parent ends (for children of a single-threaded parent)."""
    prctl = _bind()
    return lambda: prctl(_SET_PDEATHSIG, 9)
