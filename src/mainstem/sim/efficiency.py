"""What the repair of loss may cost: NAKs, bytes sent again, status messages, and how long a loss stays.

A driver that is wasteful or late keeps every promise of a stream all the same: what one NAK misses, the next one mends. So these
are bounds on a run's sums. They are calibrated over 300 seeds of each of fifteen scenarios whose streams cross a network: the worst
run of the correct code is noted beside each bound. What a run has less than ``ENOUGH`` of is not judged.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from mainstem._internal.clock import NS_PER_MS
from mainstem.sim.checkers import Violation

ENOUGH = 50
MAX_NAKS_PER_LOSS = 60.0  # worst 23.6, median 3.0
MAX_RESENT_PER_LOST = 40.0  # worst 16.0, median 3.0
MAX_STATUS = 8.0  # worst 3.2, median 0.9
MAX_IGNORED_SHARE = 0.005  # worst 0
MAX_REPAIR_ROUND_TRIPS = 200.0  # worst 82.4, where a subscriber sleeps; median 1.4
# What a repair takes besides the way: the linger time of a sender, and steps of time.
REPAIR_OVERHEAD_NS = 15 * NS_PER_MS


@dataclass
class Efficiency:
    """Sums over a run.

    Attributes:
        lost: Datagrams of data that the network lost.
        lost_bytes: Their bytes.
        resent_bytes: Bytes that senders sent again.
        naks: NAKs that receivers sent.
        status: Status messages that receivers sent.
        judged: NAKs that a sender had to serve.
        ignored: Those of them that it did not serve.
        round_trip_ns: The longest round trip between two hosts.
        status_due: Status messages that are due by time and by what arrived: four for each window.
        repairs_ns: How long each loss stayed that was repaired by a datagram like the lost one.
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
        """Notes a datagram of data that will not arrive.

        Args:
            key: What it is and where it was sent to.
            length: Its bytes.
            now_ns: When it was sent.

        Example:
            ``efficiency.on_lost((host, stream, position), len(datagram), now_ns)``
        """
        self.lost += 1
        self.lost_bytes += length
        self._open.setdefault(key, now_ns)

    def on_arrived(self, key: tuple[object, ...], now_ns: int) -> None:
        """Notes a datagram of data that arrives.

        Args:
            key: What it is and where.
            now_ns: When it arrives.

        Example:
            ``efficiency.on_arrived((host, stream, position), now_ns)``
        """
        lost_ns = self._open.pop(key, None) if self._open else None
        if lost_ns is not None:
            self.repairs_ns.append(now_ns - lost_ns)

    @property
    def ratios(self) -> dict[str, tuple[float, float, int]]:
        """Each ratio with its bound, and how much of its denominator the run had."""
        trip_ns = self.round_trip_ns + REPAIR_OVERHEAD_NS
        return {
            "NAKs for each loss": (self.naks / max(1, self.lost), MAX_NAKS_PER_LOSS, self.lost),
            "bytes sent again for each that was lost": (
                self.resent_bytes / max(1, self.lost_bytes),
                MAX_RESENT_PER_LOST,
                self.lost,
            ),
            "status messages for each that is due": (self.status / max(1.0, self.status_due), MAX_STATUS, self.status),
            "NAKs that were ignored, as a share": (self.ignored / max(1, self.judged), MAX_IGNORED_SHARE, self.judged),
            "round trips until a loss is repaired, the median": (
                statistics.median(self.repairs_ns or [0]) / trip_ns,
                MAX_REPAIR_ROUND_TRIPS,
                len(self.repairs_ns),
            ),
        }

    def finish(self) -> None:
        """Checks the sums at the end of a run.

        Raises:
            Violation: A ratio is above its bound.

        Example:
            ``world.wire.efficiency.finish()``
        """
        for name, (ratio, bound, count) in self.ratios.items():
            if count >= ENOUGH and ratio > bound:
                raise Violation(f"{name}: {ratio:.3g}, above {bound:g}, over {count}")
