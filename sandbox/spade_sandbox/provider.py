"""Where environments run: the interface, and its two implementations.

`NsjailProvider` is the real one. `ProcessProvider` runs the same guest as a plain subprocess with rlimits and, where
the machine has it, the child's system call filter; it sees the host's files and is refused unless unsafe running is
allowed. Both are async context managers: leaving ends every jail, also on cancellation. One source per jail, always;
a jail is shared by all who hold the same source and kept idle for a while after.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self

import structlog
import trio

from .errors import Fault, InfrastructureFailure, SandboxSetupError
from .guest import seccomp
from .jail import Jail
from .limits import JailLimits
from .mux import Mux
from .nsjail import Probe, arguments, guest_environment, policy, probe, sweep_cgroups
from .pool import Pool
from .replies import Facts, Reset
from .rootfs import ensure_rootfs
from .session import Session

_log = structlog.get_logger(__name__)
Fresh = Literal["fork", "jail"]


class Stats(NamedTuple):
    """For `status`: what is running, and totals since the start."""

    warm: int
    busy: int
    idle: int
    sessions: int
    sessions_total: int
    jails_total: int
    jails_lost: int
    cpu_s_total: float
    peak_kib: int


class SandboxProvider(Protocol):
    """What an executor needs."""

    limits: JailLimits

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...

    async def environment(self, source: str, *, hash_class: int = 0) -> Environment: ...

    def stats(self) -> Stats: ...


class Environment:
    """A source that compiles, bound to one jail (or, with fresh="jail", to a new one per episode). Close it when done."""

    def __init__(
        self,
        provider: _JailProvider,
        source: str,
        source_hash: str,
        hash_class: int,
        facts: Facts,
        code: bytes,
        jail: Jail | None,
    ) -> None:
        self.source, self.source_hash, self.hash_class, self.facts = source, source_hash, hash_class, facts
        self.users = 0
        self._provider, self._code, self._jail = provider, code, jail
        self._starting = trio.Lock()

    async def open(
        self, seed: int, *, max_turns: int = 0, timeout: float | None = None, deadline: float | None = None
    ) -> tuple[Session, Reset]:
        """Open an episode in a fresh process and reset it with `seed` (64-bit signed).

        `max_turns` > 0 is the budget: the environment's own `max_turns` attribute is lowered to it. `timeout` (default: the
        limits' `load_s`) is what loading and resetting may take, else `EnvironmentFailure`; `deadline`, on the
        `trio.current_time()` clock, is the caller's own and passes as `InfrastructureFailure`. When either is raised, and on
        cancellation, nothing is left open.
        """
        with trio.CancelScope(deadline=float("inf") if deadline is None else deadline):
            await trio.lowlevel.checkpoint_if_cancelled()
            jail = await self._live_jail()
            return await jail.open(seed, max_turns, self._provider.limits.load_s if timeout is None else timeout)
        raise InfrastructureFailure(Fault.LATE, "the deadline passed before the episode was open")

    async def _live_jail(self) -> Jail:
        """The environment's jail; a new one when it was lost, or for every episode with fresh="jail"."""
        if self._provider.fresh == "jail":
            jail = await self._provider.pool.acquire(self.hash_class)
            jail.use(self.facts, self._code, self.source.encode())
            jail.single_use = True
            return jail
        if self._jail is not None and self._jail.alive:
            return self._jail
        async with self._starting:
            if self._jail is None or not self._jail.alive:
                jail = await self._provider.pool.acquire(self.hash_class)
                jail.use(self.facts, self._code, self.source.encode())
                self._jail = jail
            return self._jail

    def close(self) -> None:
        """Give the handle back; open episodes of other holders go on."""
        self._provider.release(self)

    def end(self) -> None:
        """End the jail; for the provider, once nobody holds the environment."""
        if self._jail is not None:
            self._jail.close()


class _JailProvider:
    """What both implementations share: mux, pool, and environments by source."""

    def __init__(self, limits: JailLimits, *, warm: int, twins: int, keep_idle: int, fresh: Fresh) -> None:
        self.limits = limits
        self.fresh: Fresh = fresh
        self._sizes = (warm, twins)
        self._keep_idle = keep_idle
        self._environments: dict[tuple[str, int], Environment] = {}
        self._idle: OrderedDict[tuple[str, int], Environment] = OrderedDict()
        self._loading: dict[tuple[str, int], trio.Event] = {}

    def _command(self, control: int, hash_seed: str) -> Sequence[str]:
        raise NotImplementedError

    def _guest_environment(self) -> dict[str, str]:
        raise NotImplementedError

    async def _prepare(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Start the pool; returns before it is full. Raises `SandboxSetupError` where this cannot run."""
        await self._prepare()
        self._mux = Mux()
        self.pool = Pool(self._mux, self.limits, self._command, self._guest_environment(), *self._sizes)
        self._serving = trio.CancelScope(shield=True)  # goes on while a cancelled provider reaps its jails
        self._filling = trio.CancelScope()
        self._manager = trio.open_nursery()
        nursery = await self._manager.__aenter__()
        nursery.start_soon(_within, self._serving, self._mux.run)
        nursery.start_soon(_within, self._filling, self.pool.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """End every jail and wait until they are reaped, also when cancelled."""
        self._filling.cancel()
        await self.pool.aclose()
        self._serving.cancel()
        self._environments.clear()
        self._idle.clear()
        try:
            if error is None or isinstance(error, trio.Cancelled) or type(error) is BaseExceptionGroup:
                return await self._manager.__aexit__(kind, error, trace)
            await self._manager.__aexit__(None, None, None)  # the caller's own error passes unwrapped
            return False
        finally:
            self._mux.close()

    async def environment(self, source: str, *, hash_class: int = 0) -> Environment:
        """A handle on the source, compiled in a jail of its own; holders of the same source share it.

        Raises `EnvironmentFailure` (phase compile) when it does not compile, `InfrastructureFailure` when no jail can be had.
        """
        source_hash = sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
        key = (source_hash, hash_class)
        while (event := self._loading.get(key)) is not None:
            await event.wait()
        found = self._environments.get(key)
        if found is None:
            event = self._loading[key] = trio.Event()
            try:
                found = await self._load(source, source_hash, hash_class)
                self._environments[key] = found
            finally:
                del self._loading[key]
                event.set()
        self._idle.pop(key, None)
        found.users += 1
        return found

    async def _load(self, source: str, source_hash: str, hash_class: int) -> Environment:
        jail = await self.pool.acquire(hash_class)
        try:
            facts, code = await jail.compile(source)
        except BaseException:
            jail.close()
            raise
        if self.fresh == "jail":
            jail.close()
        return Environment(self, source, source_hash, hash_class, facts, code, None if self.fresh == "jail" else jail)

    def release(self, environment: Environment) -> None:
        """One holder less; without holders a jail is kept for a while in case the source comes again."""
        environment.users -= 1
        if environment.users == 0:
            key = (environment.source_hash, environment.hash_class)
            self._idle[key] = environment
            while len(self._idle) > self._keep_idle:
                key, oldest = self._idle.popitem(last=False)
                del self._environments[key]
                oldest.end()

    def stats(self) -> Stats:
        """Counts for `status`; cheap."""
        totals, jails = self.pool.totals, self.pool.jails
        sessions = sum(len(jail.sessions) for jail in jails)
        return Stats(
            warm=self.pool.warm,
            busy=len(self._environments) - len(self._idle),
            idle=len(self._idle),
            sessions=sessions,
            sessions_total=totals.sessions,
            jails_total=totals.jails,
            jails_lost=totals.lost,
            cpu_s_total=totals.cpu_s,
            peak_kib=totals.peak_kib,
        )


class NsjailProvider(_JailProvider):
    """Jails by nsjail. `probe` (after entering) tells what this host enforces."""

    def __init__(
        self,
        limits: JailLimits | None = None,
        *,
        cache: Path | None = None,
        binary: str | None = None,
        require: frozenset[str] = frozenset(),
        warm: int = 4,
        twins: int = 2,
        keep_idle: int = 4,
        fresh: Fresh = "fork",
    ) -> None:
        """`warm` and `twins`: jails kept ready per hash-seed class; `keep_idle`: sources whose jail outlives its last
        holder; `require`: names of `Probe.enforces` without which entering fails.
        """
        super().__init__(limits or JailLimits(), warm=warm, twins=twins, keep_idle=keep_idle, fresh=fresh)
        self._cache, self._binary, self._require = cache, binary, require
        self.probe: Probe | None = None

    async def _prepare(self) -> None:
        self._root = await trio.to_thread.run_sync(ensure_rootfs, self._cache)
        found = await trio.to_thread.run_sync(probe, self._root, self.limits, self._binary)
        if not found.works:
            raise SandboxSetupError(
                f"sandbox: {found.why_not}; or set sandbox.allow_unsafe = true to run without jails"
            )
        missing = self._require - found.enforces()
        if missing:
            names = ", ".join(sorted(missing))
            raise SandboxSetupError(f"sandbox.require {names}: not enforced on this host ({'; '.join(found.weaker)})")
        if found.cgroups.version:
            await trio.to_thread.run_sync(sweep_cgroups)
        self.probe = found
        self._seccomp_policy = policy() if found.seccomp else ""

    def _command(self, control: int, hash_seed: str) -> Sequence[str]:
        assert self.probe is not None
        return arguments(
            self.probe.binary,
            self._root,
            self.limits,
            self.probe.identity,
            cgroups=self.probe.cgroups,
            hash_seed=hash_seed,
            control=control,
            seccomp_policy=self._seccomp_policy,
        )

    def _guest_environment(self) -> dict[str, str]:
        return {}  # nsjail gives the guest its own


class ProcessProvider(_JailProvider):
    """No jail: plain subprocesses with rlimits and, where there is a table for the machine, the guest's system call filter.

    The host's files can be read.
    """

    def __init__(
        self,
        limits: JailLimits | None = None,
        *,
        allow_unsafe: bool,
        warm: int = 4,
        twins: int = 2,
        keep_idle: int = 4,
        fresh: Fresh = "fork",
    ) -> None:
        if not allow_unsafe:
            raise SandboxSetupError(
                "sandbox: running without jails is refused; set sandbox.allow_unsafe = true to accept it"
            )
        super().__init__(limits or JailLimits(), warm=warm, twins=twins, keep_idle=keep_idle, fresh=fresh)

    async def _prepare(self) -> None:
        _log.warning("generated code runs WITHOUT a jail: it can read this user's files", filtered=seccomp.supported())
        await trio.lowlevel.checkpoint()

    def _command(self, control: int, hash_seed: str) -> Sequence[str]:
        guest = Path(__file__).parent / "guest"
        start = f"import sys; sys.path.append({str(guest.parent)!r}); from guest.zygote import main; main(sys.argv[1:])"
        flags = ["-s", "-S", "-B", "-P", "-c", start]
        return [sys.executable, *flags, str(control), *self.limits.guest_arguments(seccomp.supported())]

    def _guest_environment(self) -> dict[str, str]:
        return guest_environment("", "", "", "")


async def _within(scope: trio.CancelScope, body: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await body()
