"""What can go wrong, split where it matters: an environment's own fault is a verdict, a fault of the machinery is a retry.

`EnvironmentFailure` is caused by the generated code and carries a typed `Reason`. `InfrastructureFailure` says
nothing about the code: the caller retries elsewhere. `SandboxSetupError` means this host or its settings cannot run a
sandbox at all.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why an environment failed."""

    SYNTAX = "syntax"  # the source does not compile
    LOAD = "load"  # running the module body raised
    CONTRACT = "contract"  # no class, wrong signature, wrong type of a result
    EXCEPTION = "exception"  # reset or step raised
    EXIT = "exit"  # the process was ended from inside (sys.exit, os._exit)
    CRASH = "crash"  # the process died of a signal it caused
    HANG = "hang"  # no answer within the wall clock given
    CPU = "cpu"  # over its processor seconds
    MEMORY = "memory"  # over its memory
    OUTPUT = "output"  # over a size: reply, observation, printed text
    BAD_REPLY = "bad_reply"  # bytes on the channel that are no reply
    NON_FINITE = "non_finite"  # a reward that is NaN or infinite


class Fault(StrEnum):
    """Why the machinery failed."""

    JAIL_START = "jail_start"
    JAIL_LOST = "jail_lost"
    BUSY = "busy"
    LATE = "late"  # the caller's own deadline passed
    CLOSED = "closed"


class SandboxError(Exception):
    """Base of everything this package raises on purpose."""


class SandboxSetupError(SandboxError):
    """This host, or its settings, cannot run the sandbox; the text says what is missing and how to mend it."""


class EnvironmentFailure(SandboxError):
    """The generated code failed.

    `phase` is compile, load, reset, step or inspect; `detail` one bounded line; `trace` a bounded traceback tail.
    """

    def __init__(self, reason: Reason, phase: str, detail: str, trace: str = "", output: str = "") -> None:
        super().__init__(f"{phase}: {reason.value}: {detail}")
        self.reason = reason
        self.phase = phase
        self.detail = detail
        self.trace = trace
        self.output = output


class InfrastructureFailure(SandboxError):
    """The machinery failed; the environment is not to blame."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(f"{fault.value}: {detail}")
        self.fault = fault
        self.detail = detail
