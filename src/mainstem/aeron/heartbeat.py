"""Heartbeats between a driver and its clients: the time of day, which each process stores for the others.

The wall clock may be set. So a process that watches a heartbeat measures with its monotonic clock how long it has not changed.
"""

from __future__ import annotations

from mainstem._internal.clock import NS_PER_MS


class HeartbeatWatch:
    """Watches one heartbeat, in epoch milliseconds. Until it first changes, its age is what the wall clock said at the beginning.

    A change happened between two looks. If the wall clock agrees, a heartbeat counts as old from the earlier one on, and in any
    case from the later one on. So however the clock is set, a dead process is noticed in time, and a live one is not presumed dead.
    """

    __slots__ = ("_after_ns", "_by_ns", "_looked_ns", "_seen_ms")

    def __init__(self, heartbeat_ms: int, epoch_ms: int, now_ns: int) -> None:
        self._seen_ms, self._looked_ns = heartbeat_ms, now_ns
        self._after_ns = self._by_ns = now_ns - max(epoch_ms - heartbeat_ms, 0) * NS_PER_MS

    def is_older(self, timeout_ns: int, heartbeat_ms: int, epoch_ms: int, now_ns: int) -> bool:
        """Return whether the heartbeat, which is ``heartbeat_ms`` now, has not changed for longer than ``timeout_ns``."""
        if heartbeat_ms != self._seen_ms:
            self._seen_ms, self._after_ns, self._by_ns = heartbeat_ms, self._looked_ns, now_ns
        self._looked_ns = now_ns
        looks_old = (epoch_ms - heartbeat_ms) * NS_PER_MS > timeout_ns
        return now_ns - (self._after_ns if looks_old else self._by_ns) > timeout_ns
