"""The wire contract of spade-actors: message types, codec, schema.

A component in another language needs only this folder (see `protocols/README.md`). Nothing here imports torch or trio.
"""

from spade_protocols.codec import (
    CodecError,
    Envelope,
    Header,
    Limits,
    decode,
    encode,
    pack_buffer,
    unpack_buffer,
)
from spade_protocols.registry import Call, Event, Kind, Message, Reply, message_type, spec_of

__all__ = [
    "Call",
    "CodecError",
    "Envelope",
    "Event",
    "Header",
    "Kind",
    "Limits",
    "Message",
    "Reply",
    "decode",
    "encode",
    "message_type",
    "pack_buffer",
    "spec_of",
    "unpack_buffer",
]
