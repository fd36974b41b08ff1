"""Which generator is sampled from, over scripted servers and a mock clock."""

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import structlog
import trio
import trio.testing

from spade_actors.runtime.metrics import Metrics, Waits
from spade_actors.runtime.peers import PeerTable
from spade_actors.sampling import servers as module
from spade_actors.sampling.client import Generation, SamplingParams
from spade_actors.sampling.errors import DeadlineExceeded, ServerUnavailable
from spade_actors.sampling.servers import Conversation, Servers
from spade_protocols.directory import Peer
from spade_protocols.sample import WeightsApplied

PARAMS = SamplingParams(max_new_tokens=4)


class FakeClient:
    """Answers at once; urls in `down` are unavailable, in `aborting` cut short, in `slow` take a second."""

    down: set[str] = set()
    aborting: set[str] = set()
    slow: set[str] = set()
    asked: list[tuple[str, str | None]] = []
    closed: list[str] = []

    def __init__(self, url: str) -> None:
        self.url = url

    def close(self) -> None:
        FakeClient.closed.append(self.url)

    async def generate(self, ids, params, *, rid, extra_key, deadline=math.inf):
        FakeClient.asked.append((self.url, extra_key))
        await trio.sleep(1.0 if self.url in self.slow else 0.0)
        if self.url in self.down:
            raise ServerUnavailable(f"{self.url} is down")
        finish = "abort" if self.url in self.aborting else "stop"
        return Generation([7], np.zeros(1, np.float32), finish, (), True, len(ids), 0)


class Events:
    def __init__(self, messages) -> None:
        self.messages = messages

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def __aiter__(self):
        for message in self.messages:
            yield SimpleNamespace(message=message)
        await trio.sleep_forever()


class FakeContext:
    def __init__(self, applied=()) -> None:
        self.peers = PeerTable()
        self.metrics = Metrics()
        self.waits = Waits()
        self.log = structlog.get_logger()
        self.applied = list(applied)

    def add(self, name: str, url: str = "") -> None:
        attributes = {"url": url or f"http://{name}"}
        self.peers.up(Peer(role="generator", name=name, incarnation="i", attributes=attributes))

    def events(self, *_):
        return Events(self.applied)


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
    for name in ("down", "aborting", "slow"):
        monkeypatch.setattr(FakeClient, name, set())
    monkeypatch.setattr(FakeClient, "asked", [])
    monkeypatch.setattr(FakeClient, "closed", [])
    monkeypatch.setattr(module, "GenerateClient", FakeClient)


def run(body) -> None:
    trio.run(body, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_conversation_stays_with_its_server_and_its_cache_key():
    async def main():
        applied = [WeightsApplied(version=v, generator="g-1", paused_ms=0, total_ms=0) for v in (3, 4)]
        ctx = FakeContext(applied)
        ctx.add("g-1")
        servers = Servers(ctx)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(servers.follow)
            await trio.testing.wait_all_tasks_blocked()
            talk = Conversation()
            await servers.generate(talk, [1], PARAMS, rid="a", timeout=5)
            servers._versions["g-1"] = 9
            ctx.add("g-0")
            await servers.generate(talk, [1], PARAMS, rid="a", timeout=5)
            await servers.generate(Conversation(), [1], PARAMS, rid="b", timeout=5)
            nursery.cancel_scope.cancel()
        assert FakeClient.asked[:2] == [("http://g-1", "v4")] * 2
        assert FakeClient.asked[2] == ("http://g-0", None)

    run(main)


def test_new_conversations_go_to_the_least_busy():
    async def main():
        FakeClient.slow = {"http://g-1", "http://g-2"}
        ctx = FakeContext()
        ctx.add("g-1")
        ctx.add("g-2")
        servers = Servers(ctx)
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(lambda: servers.generate(Conversation(), [1], PARAMS, rid="a", timeout=5))
        assert Counter(url for url, _ in FakeClient.asked) == {"http://g-1": 5, "http://g-2": 5}
        assert all(s.in_flight == 0 for s in servers.living())

    run(main)


@pytest.mark.parametrize("fault", ["down", "aborting"])
def test_a_lost_server_is_replaced_under_the_same_cache_key(fault):
    async def main():
        setattr(FakeClient, fault, {"http://g-1"})
        ctx = FakeContext()
        ctx.add("g-1")
        ctx.add("g-2")
        servers = Servers(ctx)
        servers._versions = {"g-1": 5, "g-2": 6}
        talk = Conversation()
        assert (await servers.generate(talk, [1], PARAMS, rid="a", timeout=5)).finish == "stop"
        first = "http://g-1"
        assert FakeClient.asked[0] == (first, "v5")
        assert FakeClient.asked[-1] == ("http://g-2", "v5")

    run(main)


def test_without_a_server_it_waits_by_name_and_until_its_time():
    async def main():
        ctx = FakeContext()
        servers = Servers(ctx)
        async with trio.open_nursery() as nursery:

            async def late():
                await trio.sleep(3)
                assert [w.name for w in ctx.waits.current()] == ["a generator"]
                ctx.add("g-1")

            nursery.start_soon(late)
            await servers.generate(Conversation(), [1], PARAMS, rid="a", timeout=10)
        FakeClient.down = {"http://g-1"}
        with pytest.raises(DeadlineExceeded):
            await servers.generate(Conversation(), [1], PARAMS, rid="a", timeout=5)

    run(main)


def test_a_server_at_a_new_address_is_another_server():
    async def main():
        ctx = FakeContext()
        ctx.add("g-1", "http://old")
        servers = Servers(ctx)
        talk = Conversation()
        await servers.generate(talk, [1], PARAMS, rid="a", timeout=5)
        ctx.add("g-1", "http://new")
        await servers.generate(talk, [1], PARAMS, rid="a", timeout=5)
        assert [url for url, _ in FakeClient.asked] == ["http://old", "http://new"]
        assert FakeClient.closed == ["http://old"]

    run(main)
