"""`top`: the live view from outside the supervisor; it registers nothing and changes nothing."""

import signal
import time

import trio
from rich.console import Console
from rich.live import Live

from spade_actors.record.folder import RunFolder, RunInfo
from spade_actors.runtime.calls import Caller
from spade_actors.runtime.errors import CallError, CallTimeout, PeerGone
from spade_actors.supervisor.link import ask_hub
from spade_actors.supervisor.picture import FOLLOWED, Picture
from spade_actors.supervisor.view import render
from spade_protocols.codec import CodecError, unpack_body
from spade_protocols.directory import GetStatus, Status
from spade_protocols.events import Events, Replay
from spade_protocols.registry import BY_CLASS, Event

EVERY_S = 1.0
CALL_S = 5.0


async def watch(folder: RunFolder, info: RunInfo, steps: int) -> None:
    """Draws until the run ends or SIGINT comes; cancellable at any time."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_interrupt, nursery.cancel_scope)
        await _draw(folder, info, Picture(steps_wanted=steps, started=info.started))
        nursery.cancel_scope.cancel()


async def _interrupt(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


async def _draw(folder: RunFolder, info: RunInfo, picture: Picture) -> None:
    seq = 0
    async with ask_hub(info.hub) as caller:
        with Live(console=Console(), auto_refresh=False) as live:
            while folder.running() is not None:
                try:
                    seq = await catch_up(caller, picture, seq)
                    answer = await caller.call(GetStatus(), timeout=CALL_S)
                    assert isinstance(answer.message, Status)
                    picture.observe(answer.message, time.time())
                    picture.reason = ""
                except (CallError, CallTimeout, PeerGone) as error:
                    picture.reason = f"the hub does not answer: {error}"
                live.update(render(picture, str(folder.path), time.time()), refresh=True)
                await trio.sleep(EVERY_S)


async def catch_up(caller: Caller, picture: Picture, seq: int) -> int:
    """Takes in every followed event after `seq`; returns the newest sequence number seen."""
    types = [BY_CLASS[cls].name for cls in FOLLOWED]
    while True:
        answer = await caller.call(Replay(after=seq, types=types), timeout=CALL_S)
        assert isinstance(answer.message, Events)
        for stored in answer.message.events:
            try:
                event = unpack_body(stored.type, stored.body)
            except CodecError:
                continue  # an event of a newer version of the protocol
            if isinstance(event, Event):
                picture.apply(event)
            seq = stored.seq
        if not answer.message.more:
            return seq
