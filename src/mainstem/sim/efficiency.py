"""Limits on the cost of repairing loss: NAKs, retransmitted bytes, status messages, and the time until a loss is repaired.

A driver that is wasteful or late still delivers every message, because the next NAK repairs what one NAK misses. So these are
limits on the totals of a run. They were calibrated over 300 seeds of each of fifteen scenarios whose streams cross a network;
the worst run of correct code is noted beside each limit. A ratio with fewer than ``MIN_SAMPLES`` samples is not checked.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from mainstem._internal.clock import NS_PER_MS
from mainstem.sim.checkers import Violation

MIN_SAMPLES = 50
MAX_NAKS_PER_LOSS = 60.0  # worst 23.6, median 3.0
MAX_RESENT_PER_LOST = 40.0  # worst 16.0, median 3.0
MAX_STATUS = 8.0  # worst 3.2, median 0.9
MAX_IGNORED_SHARE = 0.005  # worst 0
MAX_REPAIR_ROUND_TRIPS = 200.0  # worst 82.4, where a subscriber sleeps; median 1.4
# A repair's time besides the round trip: a sender's linger time, and steps of time.
REPAIR_OVERHEAD_NS = 15 * NS_PER_MS


@dataclass
class Efficiency:
    """Totals of a run.

    Attributes:
        lost: Data datagrams that the network lost.
        lost_bytes: The bytes in them.
        resent_bytes: Bytes that senders retransmitted.
        naks: NAKs that receivers sent.
        status: Status messages that receivers sent.
        judged: NAKs that a sender had to serve.
        ignored: NAKs among them that it did not serve.
        round_trip_ns: The longest round trip between two hosts.
        status_due: Status messages due by time and by data received: four per window.
        repairs_ns: Time until each lost datagram was received again.
    """

    lost: int = 0
    lost_bytes: int = 0
    resent_bytes: int = 0
    naks: int = 0
    status: int = 0
    status_due: float = 0.0
    judged: int = 0
    ignored: int = 0
    round_trip_ns: int = 0
    repairs_ns: list[int] = field(default_factory=list, repr=False)
    _open: dict[tuple[object, ...], int] = field(default_factory=dict, repr=False)

    def on_lost(self, key: tuple[object, ...], length: int, now_ns: int) -> None:
        self.lost += 1
        self.lost_bytes += length
        self._open.setdefault(key, now_ns)

    def on_arrived(self, key: tuple[object, ...], now_ns: int) -> None:
        lost_ns = self._open.pop(key, None) if self._open else None
        if lost_ns is not None:
            self.repairs_ns.append(now_ns - lost_ns)

    @property
    def ratios(self) -> dict[str, tuple[float, float, int]]:
        """Each ratio by name, with its limit and number of samples."""
        trip_ns = self.round_trip_ns + REPAIR_OVERHEAD_NS
        return {
            "NAKs per lost datagram": (self.naks / max(1, self.lost), MAX_NAKS_PER_LOSS, self.lost),
            "bytes retransmitted per byte lost": (
                self.resent_bytes / max(1, self.lost_bytes),
                MAX_RESENT_PER_LOST,
                self.lost,
            ),
            "status messages per one due": (self.status / max(1.0, self.status_due), MAX_STATUS, self.status),
            "share of NAKs ignored": (self.ignored / max(1, self.judged), MAX_IGNORED_SHARE, self.judged),
            "median round trips until a loss is repaired": (
                statistics.median(self.repairs_ns or [0]) / trip_ns,
                MAX_REPAIR_ROUND_TRIPS,
                len(self.repairs_ns),
            ),
        }

    def finish(self) -> None:
        """Check the totals at the end of a run. Raises Violation if a ratio exceeds its limit."""
        for name, (ratio, bound, count) in self.ratios.items():
            if count >= MIN_SAMPLES and ratio > bound:
                raise Violation(f"{name}: {ratio:.3g}, limit {bound:g} ({count} samples)")
