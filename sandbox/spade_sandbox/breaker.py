"""A breaker over the executor's own machinery: repeated infrastructure failures stop it from taking work. Pure: time is passed in.

Always holds: only failures in a row open it; while open nothing is allowed until the pause has passed, then one probe at a
time; a success closes it, a failed probe opens it again for twice as long, up to a bound.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What the breaker does with new work."""

    CLOSED = "closed"  # takes it
    OPEN = "open"  # refuses it
    PROBING = "probing"  # one piece of work is finding out


class Breaker:
    """Counts failures in a row. `after` failures open it for `pause_s` seconds, at most `longest_s` after failed probes."""

    def __init__(self, after: int = 5, pause_s: float = 2.0, longest_s: float = 60.0) -> None:
        self.state = State.CLOSED
        self.reason = ""
        self._after, self._first_s, self._longest_s = after, pause_s, longest_s
        self._pause_s = pause_s
        self._failures = 0
        self._until = 0.0
        self._probe_since = 0.0

    def allow(self, now: float) -> bool:
        """Whether a piece of work may start now; when it is the probe, its outcome must be told.

        A probe whose outcome is not told within the longest pause (its caller vanished) makes room for another.
        """
        if self.state is State.CLOSED:
            return True
        if self.state is State.PROBING and now < self._probe_since + self._longest_s:
            return False
        if self.state is State.OPEN and now < self._until:
            return False
        self.state = State.PROBING
        self._probe_since = now
        return True

    def wait_s(self, now: float) -> float:
        """Seconds until it is worth asking again; 0 when work is allowed."""
        if self.state is State.CLOSED:
            return 0.0
        if self.state is State.PROBING:
            return max(0.05, self._first_s)
        return max(0.0, self._until - now)

    def success(self) -> bool:
        """Work went through the machinery (whatever its verdict). True when this closed the breaker."""
        closed = self.state is not State.CLOSED
        self.state = State.CLOSED
        self._failures = 0
        self._pause_s = self._first_s
        return closed

    def failure(self, reason: str, now: float) -> bool:
        """The machinery failed. True when this opened the breaker."""
        self._failures += 1
        self.reason = reason
        if self.state is State.PROBING:
            self._pause_s = min(2 * self._pause_s, self._longest_s)
        elif self.state is State.OPEN or self._failures < self._after:
            return False
        self.state = State.OPEN
        self._until = now + self._pause_s
        return True
