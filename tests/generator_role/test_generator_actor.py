"""The generator role with a real embedded server and a real hub."""

import os
import signal
from contextlib import asynccontextmanager

import psutil
import pytest
import trio
import trio.lowlevel

from spade_actors.config.schema import Config, GeneratorConfig, RunConfig
from spade_actors.generator.actor import Generator
from spade_actors.learner import publish
from spade_actors.model import files
from spade_actors.runtime.testing import context, running_hub
from spade_actors.sampling.client import GenerateClient, SamplingParams
from spade_protocols.sample import WeightsApplied, WeightsPublished
from tests.generator_role.bases import base_model

WAIT_S = 150 if os.environ.get("SPADE_SGLANG_VENV") else 60
PARAMS = SamplingParams(max_new_tokens=40, ignore_eos=True)


class World:
    def __init__(self, hub, run_dir, config, watch) -> None:
        self.hub, self.run_dir, self.config, self.watch = hub, run_dir, config, watch
        self.applied: list[WeightsApplied] = []
        self.heard = trio.Event()

    async def publish(self, version: int) -> None:
        folder = f"weights/v{version:06d}"
        if not (self.run_dir / folder).exists():
            net = files.load(self.run_dir.parent / "base")
            publish.write(
                self.run_dir / "weights", net, self.run_dir.parent / "base", version=version, step=version, parent=0
            )
        await self.watch.hub.publish(
            WeightsPublished(version=version, step=version, parent=version - 1, path=folder, sha256=""),
            retain=True,
            id=f"w{version}",
        )

    async def url(self, *, other_than: str = "") -> str:
        with trio.fail_after(WAIT_S):
            while True:
                for peer in self.watch.peers.of("generator"):
                    if peer.attributes.get("url", "") not in ("", other_than):
                        return peer.attributes["url"]
                await self.watch.peers.changed()

    async def applied_version(self, version: int, count: int = 1) -> None:
        with trio.fail_after(WAIT_S):
            while sum(a.version == version for a in self.applied) < count:
                await self.heard.wait()


@asynccontextmanager
async def world(tmp_path, **settings):
    base = base_model(tmp_path / "base")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    config = Config(
        run=RunConfig(model=str(base)), generator=GeneratorConfig(**{"slots": 8, "max_len": 128} | settings)
    )
    async with running_hub(run_dir, config=config) as hub, context("learner", role="learner", hub=hub) as watch:
        w = World(hub, run_dir, config, watch)
        async with trio.open_nursery() as nursery:

            async def listen(task_status) -> None:
                async with watch.events(WeightsApplied) as events:
                    task_status.started()
                    async for stored in events:
                        w.applied.append(stored.message)
                        w.heard.set()
                        w.heard = trio.Event()

            await nursery.start(listen)
            yield w
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def generating(w: World):
    async with (
        context("generator-1", role="generator", hub=w.hub, run_dir=w.run_dir, config=w.config) as ctx,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(Generator(ctx).run)
        yield ctx
        ctx.draining.set()


SGLANG = os.environ.get("SPADE_SGLANG_VENV", "")
REAL = {
    "kind": "sglang",
    "python": f"{SGLANG}/bin/python",
    "arguments": [
        *("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
        *("--grammar-backend", "none", "--disable-overlap-schedule", "--mem-fraction-static", "0.3"),
        *("--max-total-tokens", "20000"),
    ],
}
KINDS = [
    pytest.param({}, id="embedded"),
    pytest.param(
        REAL,
        id="sglang",
        marks=pytest.mark.skipif(not SGLANG, reason="set SPADE_SGLANG_VENV to a virtual environment with SGLang"),
    ),
]


@pytest.mark.parametrize("settings", KINDS)
def test_weights_are_followed_in_flight_and_a_killed_server_comes_back_with_the_newest(tmp_path, settings):
    async def main():
        async with world(tmp_path, **settings) as w:
            async with generating(w):
                await trio.lowlevel.checkpoint()
                assert w.watch.peers.of("generator")[0].attributes.get("url", "") == ""
                await w.publish(0)
                url = await w.url()
                client = GenerateClient(url)
                assert (await client.model_info()).weight_version == "0"
                made = []

                async def long_one() -> None:
                    made.append(await client.generate([1, 2, 3], SamplingParams(max_new_tokens=100, ignore_eos=True)))

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(long_one)
                    await w.publish(1)
                    await w.applied_version(1)
                assert len(made[0].output_ids) == 100
                assert {s.version for s in made[0].version_spans} <= {"0", "1"}
                assert (await client.model_info()).weight_version == "1"
                one = next(a for a in w.applied if a.version == 1)
                assert 0 < one.paused_ms <= one.total_ms + 5

                os.kill(_server_pid(w), signal.SIGKILL)
                await w.publish(2)
                client = GenerateClient(await w.url(other_than=url))
                await w.applied_version(2)
                assert (await client.model_info()).weight_version == "2"
                assert len((await client.generate([1, 2, 3], PARAMS)).output_ids) == 40
                pid = _server_pid(w)
            assert not psutil.pid_exists(pid)

    trio.run(main)


def _server_pid(w: World) -> int:
    """The one process that serves this run's weights."""
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        server = "generator.embedded" in line or "sglang.launch_server" in line
        if server and str(w.run_dir) in line and "deathwatch" not in line:
            return process.pid
    raise AssertionError("no server runs")


def test_weights_that_cannot_be_loaded_take_the_server_out_and_newer_ones_bring_it_back(tmp_path):
    async def main():
        async with world(tmp_path) as w, generating(w):
            await w.publish(0)
            url = await w.url()
            bad = w.run_dir / "weights" / "v000001"
            bad.mkdir()
            (bad / "config.json").write_text("{}")
            await w.publish(1)
            with trio.fail_after(WAIT_S):
                while w.watch.peers.of("generator")[0].attributes["url"]:
                    await w.watch.peers.changed()
            await w.publish(2)
            again = await w.url(other_than=url)
            assert (await GenerateClient(again).model_info()).weight_version == "2"
            assert 1 not in [a.version for a in w.applied]

    trio.run(main)


def test_an_attached_server_is_resumed_brought_up_to_date_and_left_running(tmp_path):
    from spade_actors.generator.child import running
    from spade_actors.generator.launch import launch

    async def main():
        async with world(tmp_path) as w:
            await w.publish(0)
            start = launch(w.config.generator, w.run_dir / "weights" / "v000000", 0, 0, os.environ)
            async with running(start, 0, tmp_path / "log", start_s=60) as child:
                client = GenerateClient(f"http://127.0.0.1:{child.port}")
                await client.pause()
                await w.publish(1)
                attach = GeneratorConfig(kind="sglang-url", url=client.base_url)
                w.config = Config(run=w.config.run, generator=attach)
                async with generating(w):
                    assert await w.url() == client.base_url
                    assert (await client.model_info()).weight_version == "1"
                    assert len((await client.generate([1, 2], PARAMS)).output_ids) == 40
                assert len((await client.generate([1, 2], PARAMS)).output_ids) == 40

    trio.run(main)
