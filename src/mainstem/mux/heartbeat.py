"""When to ping a silent peer, and when to give it up. Arithmetic on ``now_ns`` only."""

from __future__ import annotations

from enum import Enum

from mainstem._internal.clock import seconds_ns
from mainstem.errors import ConfigurationError


class Verdict(Enum):
    """What is due at an instant."""

    QUIET = "quiet"
    PING = "ping"
    DEAD = "dead"


class Heartbeat:
    """One peer's (or one stream's) heartbeat.

    After ``interval_ns`` without received data a ping is due; ``timeout_ns`` after that ping without received data the peer
    is dead. An interval of 0 switches the heartbeat off. ``heard_ns`` is when data came last, ``pinged_ns`` when a ping was due
    since, or -1.
    """

    __slots__ = ("heard_ns", "interval_ns", "pinged_ns", "timeout_ns")

    def __init__(self, *, interval_ns: int, timeout_ns: int, now_ns: int) -> None:
        if interval_ns < 0 or (interval_ns and timeout_ns <= 0):
            raise ConfigurationError(
                f"a heartbeat needs an interval of at least 0 and a time-out above 0, not {interval_ns} and {timeout_ns} ns"
            )
        self.interval_ns = interval_ns
        self.timeout_ns = timeout_ns
        self.heard_ns = now_ns
        self.pinged_ns = -1

    @classmethod
    def of(cls, interval: float | None, timeout: float, *, now_ns: int) -> Heartbeat:
        """A heartbeat by seconds; None for none."""
        return cls(
            interval_ns=0 if interval is None else seconds_ns(interval), timeout_ns=seconds_ns(timeout), now_ns=now_ns
        )

    def heard(self, now_ns: int) -> bool:
        """Data came from the peer: it is alive. Return whether a ping had been sent: then the next instant may have moved back."""
        self.heard_ns = now_ns
        if self.pinged_ns < 0:
            return False
        self.pinged_ns = -1
        return True

    def next_timeout_ns(self) -> int | None:
        """The instant from which :meth:`check` returns something else than ``QUIET``."""
        if not self.interval_ns:
            return None
        if self.pinged_ns >= 0:
            return self.pinged_ns + self.timeout_ns
        return self.heard_ns + self.interval_ns

    def check(self, now_ns: int) -> Verdict:
        """What is due at ``now_ns``; ``PING`` is returned once for each silence and starts the time-out."""
        due = self.next_timeout_ns()
        if due is None or now_ns < due:
            return Verdict.QUIET
        if self.pinged_ns >= 0:
            return Verdict.DEAD
        self.pinged_ns = now_ns
        return Verdict.PING
