"""The message registry: every type on the wire has one name, one kind and, for a call, one reply type.

Calls and replies refuse unknown fields; events ignore them, so an event may grow within a major version.
A new message: subclass `Call`, `Reply` or `Event` in the module of its conversation and decorate it with `@message_type("noun.verb")`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import msgspec


class Kind(StrEnum):
    """What a message is for; the second field of every header."""

    CALL = "call"
    REPLY = "reply"
    ERROR = "error"
    EVENT = "event"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of everything that travels as a body."""


class Call(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request with exactly one reply or error; handlers are idempotent, since calls are at-least-once."""


class Reply(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to a call."""


class Event(Message, frozen=True, kw_only=True):
    """A fact that was committed to the journal; unknown fields are ignored."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One registered message type."""

    name: str
    kind: Kind
    cls: type[Message]
    reply: type[Reply] | None


M = TypeVar("M", bound=type[Message])

BY_NAME: dict[str, Spec] = {}
BY_CLASS: dict[type[Message], Spec] = {}


def message_type(name: str, reply: type[Reply] | None = None) -> Callable[[M], M]:
    """Registers a message class under its wire name; a call names its reply class.

    Raises:
        ValueError: the name is taken, or a call comes without a reply type.
    """

    def register(cls: M) -> M:
        kind = Kind.CALL if issubclass(cls, Call) else Kind.REPLY if issubclass(cls, Reply) else Kind.EVENT
        if name in BY_NAME:
            raise ValueError(f"message type {name!r} is registered twice")
        if (kind is Kind.CALL) != (reply is not None):
            raise ValueError(f"message type {name!r}: calls name their reply type, others have none")
        spec = Spec(name, kind, cls, reply)
        BY_NAME[name] = spec
        BY_CLASS[cls] = spec
        return cls

    return register


def spec_of(message: Message) -> Spec:
    """The registration of a message instance; KeyError if its class was never registered."""
    return BY_CLASS[type(message)]
