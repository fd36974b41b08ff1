"""Messages every conversation shares."""

from spade_protocols.registry import Call, Reply, message_type


@message_type("error")
class Error(Reply, frozen=True, kw_only=True):
    """The error reply to any call.

    Codes the runtime itself sends: a `CodecError` code, `unhandled_type`, `deadline` (passed before work began), `busy`
    (refused at capacity, try another or later), `draining`, `failed` (the handler raised; the text names what).
    """

    code: str
    text: str
    retry: bool = False
    """the same call may succeed later or elsewhere"""


@message_type("ack")
class Ack(Reply, frozen=True, kw_only=True):
    """Done, and durable where the call says so."""


@message_type("ping", reply=Ack)
class Ping(Call, frozen=True, kw_only=True):
    """Answered by every process that serves calls."""
