"""What can go wrong between two processes, as exceptions a caller can tell apart."""


class CallError(Exception):
    """Raised by a handler to answer with an error reply.

    Args:
        code: short, stable, for machines.
        text: one line for people: the thing, the value, what was expected, how to mend it.
        retry: the same call may succeed later or elsewhere.
    """

    def __init__(self, code: str, text: str, retry: bool = False) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.retry = retry


class CallFailed(CallError):
    """The peer answered with an error reply; its code, text and retry."""


class CallTimeout(Exception):
    """No reply before the deadline; the peer may or may not have done the work."""


class PeerGone(Exception):
    """The directory declared the peer dead, or it left, while a call to it was waiting."""


class StoreError(Exception):
    """The database cannot write (disk full, I/O error, closed); nothing of the write was acknowledged."""
