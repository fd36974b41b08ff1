"""The generator role: one server, kept alive and at the newest weights. Thin.

Always holds: the server's address is in the directory only while it generates and has had the newest weights once; a weight
update is pause, load, continue, with continue in `finally`; a server that refuses weights or stops generating leaves the
directory, and is started anew where it is ours.
"""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import trio

from spade_actors.generator.child import Child, StartFailed, free_port, running
from spade_actors.generator.launch import launch
from spade_actors.generator.versions import Published, Versions
from spade_actors.runtime.actor import Actor
from spade_actors.runtime.context import Context
from spade_actors.sampling.client import GenerateClient
from spade_actors.sampling.errors import SamplingError
from spade_protocols.sample import WeightsApplied, WeightsPublished

_WATCH_S = 1.0
_PROBE_EVERY_S = 15.0
_PROBE_S = 20.0
_STARTING_PROBE_S = 5.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 20.0
_DRAIN_S = 20.0
_HEALTHY_S = 30.0
"""a server that lived this long is started again without a pause"""


class Down(Exception):
    """The server is not to be used any longer; the text says why."""


class Generator(Actor):
    """One generator process."""

    role: ClassVar[str] = "generator"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.config = ctx.config.generator
        self.versions = Versions()
        self._news = trio.Event()

    async def run(self) -> None:
        """Keeps a server until drain. Cancelled: the server is ended (or, attached, resumed) within seconds."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            nursery.start_soon(self._serve_forever)
            await self.ctx.draining.wait()
            with trio.move_on_after(_DRAIN_S):
                await self._idle()
            nursery.cancel_scope.cancel()

    async def _idle(self) -> None:
        """Waits while the server has work: those who use it drain first. A server is asked, it does not tell."""
        while self.ctx.metrics.gauges.get("running", 0) + self.ctx.metrics.gauges.get("waiting", 0) > 0:  # noqa: ASYNC110
            await trio.sleep(_WATCH_S)

    async def _follow(self) -> None:
        async with self.ctx.events(WeightsPublished) as events:
            async for stored in events:
                message = stored.message
                if isinstance(message, WeightsPublished) and self.versions.offer(
                    Published(message.version, message.path, stored.at)
                ):
                    self._news.set()
                    self._news = trio.Event()

    async def _serve_forever(self) -> None:
        """One server after the other, with a growing pause after those that did not live long."""
        pause = _FIRST_PAUSE_S
        while True:
            with self.ctx.waits("first weights", on="learner"):
                while self.versions.newest is None:
                    await self._news.wait()
            began = trio.current_time()
            try:
                async with self._server(self.versions.newest) as (client, child):
                    await self._serve(client, child)
            except* (Down, StartFailed, SamplingError) as group:
                self.ctx.log.error("server down", reason="; ".join(str(e) for e in _leaves(group)))
            finally:
                self.versions.stopped()
            self.ctx.metrics.count("server_restarts")
            await self._withdraw()
            pause = _FIRST_PAUSE_S if trio.current_time() - began > _HEALTHY_S else min(2 * pause, _LONGEST_PAUSE_S)
            with self.ctx.waits("start the server again", on="generator", deadline=time.time() + pause):
                await trio.sleep(pause)

    @asynccontextmanager
    async def _server(self, weights: Published) -> AsyncIterator[tuple[GenerateClient, Child | None]]:
        """A server that listens, ours or attached, for the length of the block."""
        if self.config.kind == "sglang-url":
            client = GenerateClient(self.config.url)
            # Whoever was here before may have died between pause and continue.
            await client.resume()
            self.versions.started(_number((await client.model_info()).weight_version))
            yield client, None
            return
        port = 0 if self.config.kind == "embedded" else free_port()
        start = launch(self.config, self.ctx.run_dir / weights.path, weights.version, port, os.environ)
        log = self.ctx.run_dir / "logs" / f"{self.ctx.name}.server.log"
        async with running(start, port, log, start_s=self.config.start_s) as child:
            client = GenerateClient(f"http://127.0.0.1:{child.port}")
            self.versions.started(weights.version)
            yield client, child

    async def _serve(self, client: GenerateClient, child: Child | None) -> None:
        """Until the server is down, which raises; a child's own end does too."""
        async with trio.open_nursery() as nursery:
            if child is not None:
                nursery.start_soon(_report_end, child)
            await self._become_healthy(client)
            await self._catch_up(client)
            await self._announce(client)
            nursery.start_soon(self._probe, client)
            nursery.start_soon(self._measure, client)
            while True:
                news = self._news
                await self._catch_up(client)
                await news.wait()

    async def _become_healthy(self, client: GenerateClient) -> None:
        deadline = trio.current_time() + self.config.start_s
        with self.ctx.waits("the server's first token", on="generator", deadline=time.time() + self.config.start_s):
            while not await client.health_generate(seconds=_STARTING_PROBE_S):
                if trio.current_time() > deadline:
                    raise Down(f"no token within {self.config.start_s:g} s of its start (generator.start_s)")
                await trio.sleep(0.2)

    async def _catch_up(self, client: GenerateClient) -> None:
        """Loads the newest weights, until there are none newer. Raises `Down` when the server refuses."""
        while (due := self.versions.due()) is not None:
            with self.ctx.waits(f"load version {due.version}", on="generator"):
                await self._apply(client, due)

    async def _apply(self, client: GenerateClient, due: Published) -> None:
        folder = str((self.ctx.run_dir / due.path).resolve())
        started = time.perf_counter()
        async with client.paused("in_place"):
            result = await client.update_weights_from_disk(folder, str(due.version))
        paused_ms = (time.perf_counter() - started) * 1e3
        if not result.success:
            self.versions.refused(due.version)
            raise Down(f"it would not load version {due.version} from {due.path}: {result.message}")
        self.versions.loaded(due.version)
        self._gauge_version()
        self.ctx.metrics.count("weights_applied")
        self.ctx.metrics.gauge("update_ms", paused_ms)
        await self._say_applied(due.version, paused_ms, max(0.0, time.time() - due.at) * 1e3)

    async def _say_applied(self, version: int, paused_ms: float, total_ms: float) -> None:
        event = WeightsApplied(version=version, generator=self.ctx.name, paused_ms=paused_ms, total_ms=total_ms)
        await self.ctx.hub.publish(event, key=self.ctx.name, retain=True)

    async def _announce(self, client: GenerateClient) -> None:
        """Others may sample here from now on."""
        version = self.versions.applied
        assert version is not None
        self._gauge_version()
        await self._say_applied(version, 0.0, 0.0)
        await self.ctx.advertise(url=client.base_url, kind=self.config.kind)
        await self.ctx.ready()
        self.ctx.log.info("server ready", url=client.base_url, version=version)

    async def _withdraw(self) -> None:
        await self.ctx.advertise(url="")

    async def _probe(self, client: GenerateClient) -> None:
        """Health by generation, not just by port. Twice in a row without a token: down."""
        failures = 0
        while True:
            await trio.sleep(_PROBE_EVERY_S)
            failures = 0 if await client.health_generate(seconds=_PROBE_S) else failures + 1
            if failures >= 2:
                raise Down("it generates nothing")

    async def _measure(self, client: GenerateClient) -> None:
        """Load and speed, for status. A server that does not count its tokens has no speed here."""
        before, then = None, trio.current_time()
        while True:
            try:
                load = await client.load()
                made = (await client.server_info()).get("generated_tokens") if self.config.kind == "embedded" else None
            except SamplingError:
                self.ctx.metrics.count("load_unknown")
            else:
                now = trio.current_time()
                self.ctx.metrics.gauge("running", load.running)
                self.ctx.metrics.gauge("waiting", load.waiting)
                if isinstance(made, int) and isinstance(before, int) and now > then:
                    self.ctx.metrics.gauge("tokens_per_s", (made - before) / (now - then))
                before, then = made, now
            await trio.sleep(_WATCH_S)

    def _gauge_version(self) -> None:
        self.ctx.metrics.gauge("version", float(self.versions.applied or 0))


async def _report_end(child: Child) -> None:
    code = await child.ended()
    raise Down(f"it ended with status {code}; see {Path(child.log).name} in the run's logs")


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [
        leaf
        for error in group.exceptions
        for leaf in (_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    ]


def _number(version: str) -> int:
    """A server's version name as ours; one we never gave is older than all of ours."""
    return int(version) if version.isdigit() else -1
