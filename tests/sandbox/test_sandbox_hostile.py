"""Attacks and accidents, run for real: what the host sees is a typed reason, and the next environment is served as if nothing had been."""

import dataclasses
import os

import pytest
import trio
from jail_helpers import GUESS, LIMITS, env, needs_jails, with_provider

from spade_sandbox import EnvironmentFailure, Reason, SandboxError

pytestmark = needs_jails

R = Reason
FORGE = "import os, struct\nbody = b'+[\"forged\", 1.0, true, false, {}]'\nframe = struct.pack('<II', len(body), %s) + body\n"
TRY = "try:\n    %s\n    found = 'done'\nexcept OSError as error:\n    found = type(error).__name__\nreturn found, 0.0, False, False, {}"

# name: (source, reasons that are right)
FAILS = {
    "infinite loop": (env(step="while True: pass"), {R.HANG}),
    "infinite loop in reset": (env(reset="while True: pass"), {R.HANG}),
    "infinite loop in the module": (env(head="while True: pass"), {R.HANG}),
    "infinite loop in the constructor": (env(init="while True: pass"), {R.HANG}),
    "sleeping for ever": (env(step="import time; time.sleep(1e6)"), {R.HANG}),
    "waiting for a lock": (env(step="import threading; a = threading.Lock(); a.acquire(); a.acquire()"), {R.HANG}),
    "reading its own channel": (env(step="import os\nwhile True: os.read(40, 1)"), {R.HANG}),
    "ignoring every signal": (
        env(step="import signal\nfor n in (1, 2, 3, 15, 24): signal.signal(n, signal.SIG_IGN)\nwhile True: pass"),
        {R.HANG, R.CPU},
    ),
    "allocation bomb": (env(step="x = []\nwhile True: x.append(bytearray(1 << 20))"), {R.MEMORY}),
    "one huge allocation": (env(step="x = 'a' * 10**10"), {R.MEMORY}),
    "allocation in the module": (env(head="x = [0] * 10**10"), {R.MEMORY, R.LOAD}),
    "fork bomb": (env(step="import os\nwhile True: os.fork()"), {R.EXCEPTION}),
    "subprocess": (env(step="import subprocess; subprocess.run(['/usr/bin/python3', '-c', '1'])"), {R.EXCEPTION}),
    "exec": (env(step="import os; os.execv('/usr/bin/python3', ['python3'])"), {R.EXCEPTION}),
    "thread bomb": (
        env(step="import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,)).start()"),
        {R.EXCEPTION, R.MEMORY},
    ),
    "printing 50 MB": (env(step="print('x' * 50_000_000)"), {R.OUTPUT, R.MEMORY}),
    "printing line by line": (env(step="while True: print('spam')"), {R.OUTPUT}),
    "printing and hiding it": (
        env(step="try:\n    print('x' * 30_000)\nexcept BaseException:\n    pass\nreturn 'x', 0.0, False, False, {}"),
        {R.OUTPUT},
    ),
    "sys.exit": (env(step="import sys; sys.exit(0)"), {R.EXIT}),
    "exit()": (env(head="raise SystemExit"), {R.EXIT}),
    "os._exit": (env(step="import os; os._exit(0)"), {R.EXIT}),
    "os._exit in reset": (env(reset="import os; os._exit(3)"), {R.EXIT}),
    "os.abort": (env(step="import os; os.abort()"), {R.CRASH}),
    "segmentation fault": (env(step="import ctypes; ctypes.string_at(0)"), {R.CRASH}),
    "killing itself": (env(step="import os; os.kill(os.getpid(), 9)"), {R.EXIT, R.CRASH}),
    "killing everybody": (env(step="import os; os.kill(-1, 9)"), {R.EXCEPTION}),
    "killing its parent": (env(step="import os; os.kill(os.getppid(), 9)"), {R.EXCEPTION}),
    "killing its group": (env(step="import os; os.kill(0, 9)"), {R.EXCEPTION}),
    "closing every descriptor": (env(step="import os; os.closerange(0, 1000)\nreturn 'x', 0.0, False, False, {}"), {R.EXIT}),
    "closing and going on": (env(step="import os; os.closerange(0, 1000)\nwhile True: pass"), {R.EXIT}),
    "sockets": (env(step="import socket; socket.socket()"), {R.EXCEPTION}),
    "unix sockets": (env(step="import socket; socket.socket(socket.AF_UNIX)"), {R.EXCEPTION}),
    "socket pair": (env(step="import socket; socket.socketpair()"), {R.EXCEPTION}),
    "writing a file": (env(step="open('/tmp/x', 'w')"), {R.EXCEPTION}),
    "appending to its own runtime": (env(step="open('/usr/lib/python3.11/os.py', 'a')"), {R.EXCEPTION}),
    "making a folder": (env(step="import os; os.mkdir('/tmp/x')"), {R.EXCEPTION}),
    "reading /etc/passwd": (env(step="open('/etc/passwd')"), {R.EXCEPTION}),
    "reading /proc": (env(step="open('/proc/self/mem')"), {R.EXCEPTION}),
    "reading /root": (env(step="import os; os.listdir('/root')"), {R.EXCEPTION}),
    "input()": (env(step="input()"), {R.EXCEPTION}),
    "a BaseException": (env(step="raise BaseException('all')"), {R.EXCEPTION}),
    "KeyboardInterrupt": (env(step="raise KeyboardInterrupt"), {R.EXCEPTION}),
    "GeneratorExit": (env(step="raise GeneratorExit"), {R.EXCEPTION}),
    "an exception that cannot be printed": (
        env(step="class E(Exception):\n    def __str__(self): raise E\nraise E"),
        {R.EXCEPTION},
    ),
    "an exception that loops when printed": (
        env(step="class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E"),
        {R.HANG},
    ),
    "recursion": (env(step="return self.step(action)"), {R.EXCEPTION}),
    "deep data that is spelled out": (
        env(step="x = 1\nfor _ in range(40): x = [x]\n" + FORGE.replace("{}", "' + b'['*40 + b']'*40 + b'") % 2 + "os.write(40, frame)"),
        {R.BAD_REPLY, R.EXCEPTION},
    ),
    "circular data": (env(step="x = {}\nx['x'] = x\nraise SystemError"), {R.EXCEPTION}),
    "a huge observation": (env(step="return 'x' * 100_000, 0.0, False, False, {}"), {R.OUTPUT}),
    "a huge info": (env(step="return 'x', 0.0, False, False, {str(n): n for n in range(20_000)}"), {R.OUTPUT}),
    "NaN": (env(step="return 'x', float('nan'), False, False, {}"), {R.NON_FINITE}),
    "infinity": (env(step="return 'x', float('-inf'), False, False, {}"), {R.NON_FINITE}),
    "an endless integer": (env(step="return 'x', 10**400, False, False, {}"), {R.NON_FINITE}),
    "four results": (env(step="return 'x', 0.0, False, {}"), {R.CONTRACT}),
    "a list": (env(step="return ['x', 0.0, False, False, {}]"), {R.CONTRACT}),
    "an int for a flag": (env(step="return 'x', 0.0, 1, 0, {}"), {R.CONTRACT}),
    "a string for a reward": (env(step="return 'x', '1', False, False, {}"), {R.CONTRACT}),
    "bytes for an observation": (env(step="return b'x', 0.0, False, False, {}"), {R.CONTRACT}),
    "None for info": (env(step="return 'x', 0.0, False, False, None"), {R.CONTRACT}),
    "lone surrogates": (env(step="return '\\ud800', 0.0, False, False, {}"), {R.BAD_REPLY}),
    "an empty first observation": (env(reset="return '  ', {}"), {R.CONTRACT}),
    "no class": ("x = 1", {R.CONTRACT}),
    "a class without step": ("class HalfEnv:\n    def reset(self, seed=None): return 'x', {}", {R.CONTRACT}),
    "a constructor that needs more": ("class NeedyEnv:\n    def __init__(self, a, b): pass\n    reset = step = None", {R.CONTRACT}),
    "a missing package": (env(head="import torch"), {R.LOAD}),
    "no syntax": ("class XEnv(:", {R.SYNTAX}),
    "null bytes": ("x = '\0'", {R.SYNTAX}),
    "parentheses without end": ("(" * 5000, {R.SYNTAX, R.CRASH, R.MEMORY}),
    "a sum without end": ("x = " + "1+" * 100_000 + "1", {R.SYNTAX, R.CRASH, R.MEMORY, R.HANG}),
    "forged replies before the real one": (
        env(step=FORGE % 2 + "os.write(40, frame)\nreturn 'x', 0.0, False, False, {}"),
        {R.BAD_REPLY},
    ),
    "forged replies after the real one": (
        env(
            step=FORGE % 3 + "import threading, time\n"
            "threading.Thread(target=lambda: (time.sleep(0.05), os.write(40, frame)), daemon=True).start()\n"
            "return 'x', 0.0, False, False, {}"
        ),
        {R.BAD_REPLY},
    ),
    "a frame without end": (env(step="import os, struct\nos.write(40, struct.pack('<II', 2**31, 2))\nwhile True: pass"), {R.OUTPUT}),
    "noise on the channel": (env(step="import os\nos.write(40, os.urandom(5000))\nwhile True: pass"), {R.BAD_REPLY, R.OUTPUT}),
    "half a frame": (env(step="import os\nos.write(40, b'\\x05\\0')\nwhile True: pass"), {R.HANG}),
    "ptrace": (env(step="import ctypes; assert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0"), {R.EXCEPTION}),
    "mount": (env(step="import ctypes; assert ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, 0) == 0"), {R.EXCEPTION}),
    "a new namespace": (env(step="import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0"), {R.EXCEPTION}),
    "taking off the filter": (env(step="import ctypes; assert ctypes.CDLL(None).prctl(22, 0, 0, 0, 0) == 0"), {R.EXCEPTION}),
    "raising its own limit": (
        env(step="import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))"),
        {R.EXCEPTION},
    ),
    "limits of its parent": (
        env(step="import resource, os\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))"),
        {R.EXCEPTION},
    ),
    "priority of everybody": (env(step="import os; os.setpriority(os.PRIO_USER, 0, 19)"), {R.EXCEPTION}),
    "signals by descriptor": (
        env(step="import fcntl, os\nfcntl.fcntl(40, fcntl.F_SETOWN, os.getppid())"),
        {R.EXCEPTION},
    ),
    "shared memory": (env(step="import ctypes; assert ctypes.CDLL(None).shmget(1, 4096, 0o1777) >= 0"), {R.EXCEPTION}),
    "an executable in memory": (env(step="import os; os.memfd_create('x')"), {R.EXCEPTION}),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes():
    """Every attack run once, some at the same time, each followed by an episode of a good environment."""
    found = {}

    async def body(provider):
        limiter = trio.CapacityLimiter(6)

        async def attack(name, source):
            async with limiter:
                session = environment = None
                try:
                    environment = await provider.environment(source)
                    session, _ = await environment.open(1)
                    for _ in range(3):
                        await session.step("act")
                        await trio.sleep(0.1)  # for a thread of the environment to write its forged reply
                except SandboxError as error:
                    found[name] = error
                if session is not None:
                    session.close()
                if environment is not None:
                    environment.close()
                good = await provider.environment(GUESS)
                session, _ = await good.open(7)
                assert (await session.step(r"\boxed{0}")).observation == "higher"
                session.close()

        async with trio.open_nursery() as nursery:
            for name, (source, _) in FAILS.items():
                nursery.start_soon(attack, name, source)
        assert provider.stats().jails_lost == 0

    with_provider(body, dataclasses.replace(LIMITS, step_s=3.0), keep_idle=0)
    return found


@pytest.mark.parametrize("name", FAILS)
def test_attack(name: str, outcomes) -> None:
    failure = outcomes.get(name)
    assert isinstance(failure, EnvironmentFailure), failure
    assert failure.reason in FAILS[name][1], failure
    assert len(str(failure)) < 1200


IN_BOTH_MODES = (
    *("infinite loop", "allocation bomb", "fork bomb", "os._exit", "killing everybody", "NaN", "a missing package"),
    *("printing 50 MB", "forged replies before the real one", "writing a file", "no class", "closing and going on"),
)


def test_attacks_on_a_jail_per_episode_end_the_same() -> None:
    async def body(provider):
        async def attack(name):
            source, reasons = FAILS[name]
            with pytest.raises(EnvironmentFailure) as caught:
                await play(source)
            assert caught.value.reason in reasons, name

        async def play(source):
            session, _ = await (await provider.environment(source)).open(1)
            await session.step("act")
            await session.step("act")

        async with trio.open_nursery() as nursery:
            for name in IN_BOTH_MODES:
                nursery.start_soon(attack, name)

    with_provider(body, fresh="jail")


def test_a_hostile_episode_does_not_disturb_its_siblings() -> None:
    source = env(
        step="if action == 'attack':\n"
        "    import os, threading, time\n"
        "    for target in (-1, 0, 1, os.getppid(), os.getpid() - 1, os.getpid() + 1):\n"
        "        try: os.kill(target, 9)\n"
        "        except OSError: pass\n"
        "    while True:\n"
        "        try: threading.Thread(target=time.sleep, args=(99,)).start()\n"
        "        except BaseException: break\n"
        "    x = []\n"
        "    while True: x.append(bytearray(1 << 20))\n"
        "self.turn += 1\n"
        "return f'turn {self.turn}', 0.0, False, False, {}"
    )

    async def body(provider):
        environment = await provider.environment(source)
        siblings = [(await environment.open(n))[0] for n in range(4)]
        attacker, _ = await environment.open(9)
        with pytest.raises(EnvironmentFailure):
            await attacker.step("attack")
        for session in siblings:
            assert (await session.step("x")).observation == "turn 1"
        fresh, _ = await environment.open(10)
        assert (await fresh.step("x")).observation == "turn 1"

    with_provider(body)


def test_a_monkeypatched_library_harms_only_its_own_episode() -> None:
    source = env(
        head="import json, sys, os",
        reset="json.dumps = json.loads = os.read = os.write = len\nsys.modules.clear()\nreturn 'x', {}",
        step="return 'still', 0.0, False, False, {}",
    )

    async def body(provider):
        environment = await provider.environment(source)
        for _ in range(2):
            session, _ = await environment.open(1)
            assert (await session.step("x")).observation == "still"

    with_provider(body)


def test_what_is_printed_is_kept_bounded_and_never_a_reply() -> None:
    source = env(
        step="import os\nprint('+[\"forged\", 1.0, true, false, {}]')\n"
        "os.write(1, b'x'); os.write(2, b'y')\n"
        "return 'real', 0.0, False, False, {}"
    )

    async def body(provider):
        session, _ = await (await provider.environment(source)).open(1)
        step = await session.step("x")
        assert (step.observation, step.reward) == ("real", 0.0)
        assert "forged" in (await session.inspect()).output

    with_provider(body)


def test_nothing_of_the_host_is_there() -> None:
    source = env(
        reset="import os, socket\n"
        "seen = [sorted(os.listdir('/')), os.listdir('/tmp'), os.getuid(), os.getpid() < 1000, sorted(os.environ)]\n"
        "seen += [sorted(int(n) for n in range(64) if _open(n)), socket.gethostname()]\n"
        "return repr(seen), {}",
        head="import os\ndef _open(n):\n    try: os.fstat(n)\n    except OSError: return False\n    return True",
    )

    async def body(provider):
        _, reset = await (await provider.environment(source)).open(1)
        root, tmp, uid, small, names, descriptors, host = eval(reset.observation)
        assert set(root) <= {".complete", "dev", "lib", "lib64", "proc", "tmp", "usr"}
        assert (tmp, uid, small, descriptors, host) == ([], 65534, True, [0, 1, 2, 40], "jail")
        assert not [
            name for name in names if name in os.environ and name not in ("LC_CTYPE", "OMP_NUM_THREADS", "PYTHONPATH")
        ]

    with_provider(body)
