"""Decide when to ping a silent peer and when to presume it dead, from ``now_ns`` alone."""

from __future__ import annotations

from enum import Enum

from mainstem._internal.clock import seconds_ns
from mainstem.errors import ConfigurationError


class Verdict(Enum):
    """The action that is due at some time."""

    QUIET = "quiet"
    PING = "ping"
    DEAD = "dead"


class Heartbeat:
    """The heartbeat of one peer (or one stream).

    A ping is due once ``interval_ns`` have passed without received data. If another ``timeout_ns`` pass without data after that
    ping, the peer is presumed dead. An interval of 0 switches the heartbeat off. ``heard_ns`` is when data last arrived.
    ``pinged_ns`` is when a ping became due since then, or -1.
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
        """Make a heartbeat from times in seconds. An interval of None switches it off."""
        return cls(
            interval_ns=0 if interval is None else seconds_ns(interval), timeout_ns=seconds_ns(timeout), now_ns=now_ns
        )

    def heard(self, now_ns: int) -> bool:
        """Note that data arrived; return whether a ping had been sent, in which case the next timeout may have become earlier."""
        self.heard_ns = now_ns
        if self.pinged_ns < 0:
            return False
        self.pinged_ns = -1
        return True

    def next_timeout_ns(self) -> int | None:
        """Return the time from which :meth:`check` returns something other than ``QUIET``; None if the heartbeat is off."""
        if not self.interval_ns:
            return None
        if self.pinged_ns >= 0:
            return self.pinged_ns + self.timeout_ns
        return self.heard_ns + self.interval_ns

    def check(self, now_ns: int) -> Verdict:
        """Return the action due at ``now_ns``. ``PING`` is returned once per silence and starts the timeout."""
        due = self.next_timeout_ns()
        if due is None or now_ns < due:
            return Verdict.QUIET
        if self.pinged_ns >= 0:
            return Verdict.DEAD
        self.pinged_ns = now_ns
        return Verdict.PING
