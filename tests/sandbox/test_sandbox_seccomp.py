"""The guest's filters, decided by a small interpreter of classic BPF: no kernel needed, both machines covered."""

import struct

import pytest

from spade_sandbox.guest import seccomp

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PID = 4242
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CALLS = {
    "read": (0, 63),
    "openat": (257, 56),
    "clone": (56, 220),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
    "execve": (59, 221),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "ptrace": (101, 117),
    "mount": (165, 40),
    "unshare": (272, 97),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "unlinkat": (263, 35),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "setpriority": (141, 140),
    "prctl": (157, 167),
    "recvmsg": (47, 212),
    "shmget": (29, 194),
}


def run(code: bytes, number: int, arguments: tuple[int, ...] = (), arch: int = ARCH["x86_64"]) -> int:
    """The action of a filter for one call."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number, arch, 0, *padded)
    steps = [struct.unpack_from("<HBBI", code, at) for at in range(0, len(code), 8)]
    at = accumulator = 0
    while True:
        operation, yes, no, k = steps[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif operation == 0x06:
            return k
        else:
            taken = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[operation]
            at += yes if taken else no


@pytest.fixture(params=list(ARCH))
def decide(request):
    machine = request.param
    filters = (seccomp.zygote_program(machine), seccomp.child_program(machine, PID))

    def decide(name, *arguments, child=True):
        number = CALLS[name][0 if machine == "x86_64" else 1]
        actions = [run(code, number, arguments, ARCH[machine]) for code in filters[: 2 if child else 1]]
        refusals = [action for action in actions if action != ALLOW]
        return refusals[0] if refusals else ALLOW

    return decide


def test_what_an_episode_may_do(decide):
    assert decide("read", 3) == ALLOW
    assert decide("openat", 0, 0, 0o2000000) == ALLOW  # reading, close-on-exec
    assert decide("clone", 0x3D0F00) == ALLOW  # a thread, as the C library makes it
    assert decide("kill", PID, 9) == ALLOW
    assert decide("prlimit64", 0) == ALLOW
    assert decide("fcntl", 3, 1) == ALLOW


def test_what_only_the_zygote_may_do(decide):
    assert decide("clone", 0x1200011, child=False) == ALLOW  # fork
    for name, arguments in (("kill", (7, 9)), ("prctl", (22, 2)), ("recvmsg", (3,))):
        assert decide(name, *arguments, child=False) == ALLOW
        assert decide(name, *arguments) == ERRNO | 1
    assert decide("clone", 0x1200011) == ERRNO | 1


@pytest.mark.parametrize(
    "name",
    [
        *("socket", "socketpair", "ptrace", "mount", "unshare", "bpf", "keyctl", "perf_event_open", "userfaultfd"),
        *("unlinkat", "setpriority", "shmget", "execve"),
    ],
)
def test_what_nobody_may_do(decide, name):
    assert decide(name, child=False) == ERRNO | 1
    assert decide(name) == ERRNO | 1


def test_by_argument(decide):
    for flags in (0o1, 0o2, 0o100, 0o1000, 0o20200000, 0o2000102):
        assert decide("openat", 0, 0, flags) == ERRNO | 13
    for namespace in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80):
        assert decide("clone", namespace, child=False) == ERRNO | 1
        assert decide("clone", namespace) == ERRNO | 1
    for target in (0, 1, PID + 1, 0xFFFFFFFF):
        assert decide("kill", target, 9) == ERRNO | 1
        assert decide("tgkill", target, 1, 9) == ERRNO | 1
    assert decide("prlimit64", 1) == ERRNO | 1
    for command in (8, 10, 1034):  # owner, signal, seals
        assert decide("fcntl", 3, command) == ERRNO | 1
    assert decide("ioctl", 3, 0x8901) == ERRNO | 25  # socket owner


def test_probed_calls_look_absent(decide):
    assert decide("io_uring_setup") == ERRNO | 38
    assert decide("memfd_create") == ERRNO | 38


def test_another_architecture_is_killed():
    for machine, other in (("x86_64", 0x40000003), ("aarch64", 0x40000028)):
        assert run(seccomp.zygote_program(machine), 0, (), other) == 0x80000000
        assert run(seccomp.child_program(machine, PID), 0, (), other) == 0x80000000


def test_x32_numbers_are_absent():
    assert run(seccomp.zygote_program("x86_64"), 0x40000000 | 59) == ERRNO | 38
    assert run(seccomp.child_program("x86_64", PID), 0x40000000 | 59) == ERRNO | 38
