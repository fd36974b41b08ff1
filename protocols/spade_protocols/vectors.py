"""Golden vectors: bytes and their meaning, for other languages. `python -m spade_protocols.vectors` writes `protocols/vectors/`.

`good.json`: frames that decode to the given header and message, and that encoding gives back byte for byte (maps in the
order of the fields). `bad.json`: frames that must be refused, with the code. Always holds (a test): this side agrees.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from spade_protocols.codec import VERSION, Header, encode, pack_buffer, pack_header, pack_news
from spade_protocols.common import Ack, Error, Ping
from spade_protocols.directory import Heartbeat, Peer, Register, Wait
from spade_protocols.events import Events, Outgoing, Publish, Stored
from spade_protocols.play import DeliverTrajectory, SessionStepped, StepSession, Turn
from spade_protocols.queues import Complete, Completion, Item, ItemEnded, Lease, Leased, Leases, Put, PutTo
from spade_protocols.registry import Message, spec_of
from spade_protocols.sample import RunState, WeightsPublished

FOLDER = Path(__file__).resolve().parent.parent / "vectors"


def _header(message: Message, *, kind: str = "", seq: int = 0, deadline: float = 0.0) -> Header:
    spec = spec_of(message)
    made = kind or str(spec.kind)
    at = deadline or (1750000000.5 if made == "call" else 0.0)
    return Header(VERSION, made, spec.name, "a1b2c3d4e5.17", "run-7", "trial-3", "agent-1", at, seq)


def _trajectory() -> tuple[DeliverTrajectory, list[bytes]]:
    tokens, raw_tokens = pack_buffer([5, 6, 7, 151643], "i4", 0)
    mask, raw_mask = pack_buffer([0, 0, 1, 1], "u1", 1)
    logprobs, raw_logprobs = pack_buffer([0.0, 0.0, -0.5, -2.25], "f4", 2)
    message = DeliverTrajectory(
        play="p1",
        trial="t1",
        attempt=1,
        arm="hinted",
        index=0,
        purpose="train",
        outcome="finished",
        ending="terminated",
        rewards=[0.0, 1.0],
        terminated=True,
        turns=[Turn(observation="you see a door", action="open", reward=1.0)],
        tokens=tokens,
        mask=mask,
        logprobs=logprobs,
        versions=[(3, 2, 4)],
        temperature=1.0,
        agent="agent-1",
        seconds=0.25,
    )
    return message, [raw_tokens, raw_mask, raw_logprobs]


def good() -> list[dict[str, Any]]:
    """One vector per shape of message: calls, replies, errors, events, buffers, unicode, numbers at their borders."""
    peer = Peer(role="agent", name="agent-1", incarnation="a1b2c3d4e5", address="ipc:///run/agent-1.sock", pid=7)
    waits = [Wait(name="lease plays", on="hub", since=1.5)]
    item = Item(id="p1", body={"seed": 2**63 - 1, "low": -(2**63), "hint": "naïve – 道"}, group="g", priority=-1)
    cases: list[tuple[str, Message, list[bytes], dict[str, Any]]] = [
        ("an empty call", Ping(), [], {}),
        ("an empty reply", Ack(), [], {}),
        ("an error reply", Error(code="busy", text="128 sessions are open", retry=True), [], {"kind": "error"}),
        ("a nested call", Register(peer=peer), [], {}),
        ("maps and floats", Heartbeat(name="a", incarnation="i", gauges={"free": 0.1}, waits=waits), [], {}),
        ("put, with integers at their borders and unicode", Put(queue="plays", items=[item]), [], {}),
        (
            "lease with a filter",
            Lease(queue="samples", holder="l", incarnation="i", count=2, where={"role": "agent"}),
            [],
            {},
        ),
        ("leases", Leases(items=[Leased(id="p1", lease="x.1", attempt=2, body={}, group="", put_at=0.5)]), [], {}),
        (
            "complete with what follows",
            Complete(
                queue="plays",
                completions=[Completion(id="p1", lease="x.1", result={"ok": True, "none": None})],
                puts=[PutTo(queue="samples", items=[Item(id="s1", body={})])],
                events=[Outgoing(type="run.state", body=b"\x81\xa5state\xa7running", retain=True, id="e1")],
            ),
            [],
            {},
        ),
        ("bytes in a body", Publish(events=[Outgoing(type="run.state", body=b"\x00\xff", key="k")]), [], {}),
        (
            "stored events",
            Events(events=[Stored(seq=9, type="run.state", sender="s", trace="", at=2.5, body=b"\x80")], seq=12),
            [],
            {},
        ),
        ("a step", StepSession(session="s", turn=0, action=""), [], {}),
        ("a negative reward", SessionStepped(observation="x", reward=-0.5, terminated=True, truncated=False), [], {}),
        ("raw buffers", *_trajectory(), {}),
        ("an event", RunState(state="running"), [], {"seq": 4, "deadline": 1750000001.25}),
        (
            "an event of a queue",
            ItemEnded(queue="plays", id="p1", state="completed"),
            [],
            {"seq": 2**40, "deadline": 1.0},
        ),
        (
            "weights",
            WeightsPublished(version=3, step=3, parent=2, path="weights/3", sha256="00"),
            [],
            {"seq": 5, "deadline": 1.0},
        ),
    ]
    vectors = []
    for name, message, buffers, options in cases:
        header = _header(message, **options)
        vectors.append(
            {
                "name": name,
                "frames": [frame.hex() for frame in encode(header, message, buffers)],
                "header": msgspec.to_builtins(header),
                "message": json.loads(msgspec.json.encode(message)),
            }
        )
    vectors.append(
        {
            "name": "the news frame of an event: newest sequence number by type before it",
            "frames": [pack_news({"run.state": 4, "item.ended": 1099511627776}).hex()],
            "news": {"run.state": 4, "item.ended": 1099511627776},
        }
    )
    return vectors


def bad() -> list[dict[str, Any]]:
    """Frames that are refused, with the code of the refusal."""
    call = pack_header("call", "session.step", "x.1", "", "", "a", 0.0)
    cases: list[tuple[str, str, list[bytes]]] = [
        ("one frame", "frames", [call]),
        ("not msgpack", "bad_msgpack", [call, b"\xc1"]),
        ("bytes after the value", "bad_msgpack", [call, b"\x80\x80"]),
        ("a header that is a map", "bad_header", [b"\x80", b"\x80"]),
        ("a header too short", "bad_header", [b"\x93\x01\xa4call\xa4ping", b"\x80"]),
        ("another protocol version", "version", [b"\x99\x02\xa4call\xa4ping\xa1x\xa0\xa0\xa1a\x00\x00", b"\x80"]),
        ("an unknown type", "unknown_type", [pack_header("call", "no.such", "x.1", "", "", "a"), b"\x80"]),
        ("a missing field", "bad_body", [call, b"\x81\xa7session\xa1s"]),
        ("an unknown field of a call", "bad_body", [pack_header("call", "ping", "x.1", "", "", "a"), b"\x81\xa1z\x01"]),
        ("a field of another type", "bad_body", [call, b"\x83\xa7session\xa1s\xa4turn\xa10\xa6action\xa0"]),
        ("text that is not UTF-8", "bad_msgpack", [call, b"\x81\xa7session\xa1\xff"]),
        ("an extension type", "bad_msgpack", [call, b"\x81\xa7session\xd4\x05\x00"]),
        ("nested 17 deep", "too_deep", [pack_header("call", "ping", "x.1", "", "", "a"), b"\x81\xa1a" * 17 + b"\x01"]),
        ("the wrong kind", "bad_header", [pack_header("event", "ping", "x.1", "", "", "a"), b"\x80"]),
        ("a length that is not there", "bad_msgpack", [call, b"\xdd\xff\xff\xff\xff"]),
    ]
    return [{"name": name, "code": code, "frames": [f.hex() for f in frames]} for name, code, frames in cases]


def documents() -> dict[str, str]:
    """File name -> text."""
    files = {"good.json": good(), "bad.json": bad()}
    return {name: json.dumps(value, indent=1, ensure_ascii=False) + "\n" for name, value in files.items()}


def main() -> int:
    """Writes the files. Change them only with the protocol version or for new messages: other languages rely on them."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in documents().items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
