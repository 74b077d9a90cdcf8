"""Congestion control: how a receiver chooses its window (docs/protocols/aeron.md, 18).

The compiled receive path sends status messages that carry the window, and reports loss. The receiver's thread calls the
congestion control on loss and at its deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NEVER_NS, NS_PER_SECOND

if TYPE_CHECKING:
    from mainstem.aeron.counters import Gauge
    from mainstem.aeron.protocol.frames import Rttm

C = 0.4
B = 0.2
INITIAL_WINDOW = 10
INITIAL_ROUND_TRIP_NS = 100_000
# The round-trip time is measured once in this many round trips. Measurements above the maximum are ignored.
MEASURE_INTERVAL = 4
MAX_ROUND_TRIP_NS = NS_PER_SECOND


class CongestionControl:
    """The base class of congestion controls; its methods do nothing.

    ``window_length`` is the window in bytes that the next status message carries. ``deadline_ns`` is when ``on_time`` is due.
    """

    window_length: int
    deadline_ns = NEVER_NS

    def on_loss(self, now_ns: int) -> bool:  # noqa: ARG002
        """React to loss; return whether to send a status message at once."""
        return False

    def on_time(self, now_ns: int, *, progressed: bool) -> bool:  # noqa: ARG002
        """Update the window at ``deadline_ns``; return whether to send a status message at once.

        ``progressed`` tells whether data arrived since the last call.
        """
        return False

    def measures_at(self, now_ns: int) -> bool:  # noqa: ARG002
        """Return whether to send a round-trip measurement request now."""
        return False

    def on_measurement(self, measure: Rttm, now_ns: int) -> None: ...


class StaticWindowCongestionControl(CongestionControl):
    """A window that never changes, the default: the smaller of the receiver window and half a term."""

    def __init__(self, window_length: int) -> None:
        self.window_length = window_length


class CubicCongestionControl(CongestionControl):
    """CUBIC (RFC 8312): the window shrinks on loss, then grows with the cube of the time since then.

    The window is a whole number of datagrams of ``mtu`` bytes.
    """

    def __init__(
        self,
        *,
        max_window_length: int,
        mtu: int,
        now_ns: int,
        initial_round_trip_ns: int = INITIAL_ROUND_TRIP_NS,
        measures: bool = False,
        tcp_mode: bool = False,
        round_trip_gauge: Gauge | None = None,
        window_gauge: Gauge | None = None,
    ) -> None:
        self._mtu = mtu
        self._max = max(1, max_window_length // mtu)
        self._cwnd = min(INITIAL_WINDOW, self._max)
        self._w_max = self._max
        self._k = (self._max * B / C) ** (1 / 3)
        self._initial_round_trip_ns = initial_round_trip_ns
        self._tcp_mode = tcp_mode
        self._measures = measures
        self._round_trip_gauge = round_trip_gauge
        self._window_gauge = window_gauge
        self._loss_ns = now_ns
        self._measured_ns = now_ns
        self._awaits_reply = False
        self.round_trip_ns = initial_round_trip_ns
        self.deadline_ns = now_ns + initial_round_trip_ns
        self._show()

    def on_loss(self, now_ns: int) -> bool:
        self._w_max = self._cwnd
        self._k = (self._w_max * B / C) ** (1 / 3)
        self._cwnd = max(1, int(self._cwnd * (1 - B)))
        self._loss_ns = now_ns
        self.deadline_ns = now_ns + self.round_trip_ns
        self._show()
        return True

    def on_time(self, now_ns: int, *, progressed: bool) -> bool:
        if now_ns < self.deadline_ns:
            return False
        self.deadline_ns = now_ns + self.round_trip_ns
        if self._cwnd < self._max:
            seconds = (now_ns - self._loss_ns) / NS_PER_SECOND
            # Truncate the growth toward zero, to whole datagrams, so that a window of up to five datagrams recovers at the first
            # deadline after a loss. Otherwise repeated losses would shrink it to one datagram. Then no later datagram reveals
            # the loss of the one in flight, and only a heartbeat does.
            target = float(self._w_max + int(C * (seconds - self._k) ** 3))
            if self._tcp_mode and self._cwnd < self._w_max:
                round_trip = self.round_trip_ns / NS_PER_SECOND
                target = max(target, self._w_max * (1 - B) + 3 * B / (2 - B) * seconds / round_trip)
            self._cwnd = max(1, min(self._max, int(target)))
            self._show()
        elif self._w_max < self._max:
            self._w_max = self._max
        return self._cwnd == 1 and progressed

    def measures_at(self, now_ns: int) -> bool:
        interval_ns = max(self.round_trip_ns, self._initial_round_trip_ns) * MEASURE_INTERVAL
        if not self._measures or now_ns - self._measured_ns < interval_ns:
            return False
        self._measured_ns = now_ns
        self._awaits_reply = True
        return True

    def on_measurement(self, measure: Rttm, now_ns: int) -> None:
        round_trip_ns = now_ns - measure.echo_timestamp - measure.reception_delta
        if self._awaits_reply and 0 < round_trip_ns <= MAX_ROUND_TRIP_NS:
            self._awaits_reply = False
            self.round_trip_ns = round_trip_ns
            if self._round_trip_gauge is not None:
                self._round_trip_gauge.set_release(round_trip_ns)

    def _show(self) -> None:
        self.window_length = self._cwnd * self._mtu
        if self._window_gauge is not None:
            self._window_gauge.set_release(self.window_length)
