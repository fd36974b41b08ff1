"""What can go wrong between us and a generation server.  All of it is the infrastructure's fault or ours, never a policy's."""

from __future__ import annotations


class SamplingError(Exception):
    """Base of the errors below."""


class ServerUnavailable(SamplingError):
    """No connection, a connection lost in mid-answer, or a 5xx answer: another server, or a later try, may do."""


class ServerRefused(SamplingError):
    """The server understood and said no (4xx), or answered what we cannot read: the same request will fail again."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class DeadlineExceeded(SamplingError):
    """The caller's deadline passed first; the server has been told to abort."""
