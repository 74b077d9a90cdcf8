"""Measure round trips: send, wait for the response, send the next."""

from __future__ import annotations

import os
import struct
import sys
from typing import TYPE_CHECKING, Annotated

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK, seconds_ns
from mainstem.aeron.client import FragmentAssembler, OfferStatus
from mainstem.aeron.client.offer_status import offer_error
from mainstem.aeron.client.resource import raise_error_of
from mainstem.aeron.tools.channel_checks import check_publication, check_subscription
from mainstem.aeron.tools.latency import PERCENTILES, LatencyHistogram
from mainstem.cli._drivers import check_length, connect, wait_until
from mainstem.cli._options import CountOption, JsonOption, PingPong, SizeOption, TimeoutOption, integer
from mainstem.cli._output import print_json
from mainstem.cli._process import say, stopping
from mainstem.errors import Timeout

if TYPE_CHECKING:
    from mainstem.aeron.client import ExclusivePublication, Fragment, Subscription
    from mainstem.cli._process import Stop

STAMP = struct.Struct("<q")
BAR_WIDTH = 40
FRAGMENTS = 10


def run(
    which: PingPong,
    count: CountOption = 10_000,
    warm_up: Annotated[int, integer("--warm-up", "Send N messages first, without measuring them.")] = 1_000,
    size: SizeOption = 32,
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Measure round trips: send, wait for the response, send the next.

    One message is in flight at a time, of at least 8 bytes. `mainstem pong`, or the reference's pong sample, must respond.

    Example: mainstem ping --count 100000 --size 256
    """
    length = max(STAMP.size, size)
    check_publication(which.ping_channel)
    check_subscription(which.pong_channel)
    with (
        connect(which.directory, "ping") as aeron,
        stopping() as stop,
        aeron.add_subscription(which.pong_channel, which.pong_stream) as pongs,
        aeron.add_exclusive_publication(which.ping_channel, which.ping_stream) as pings,
    ):
        check_length(length, pings)
        wait_until(
            lambda: pings.is_connected and pongs.is_connected, "no pong responds to pings", timeout=timeout, stop=stop
        )
        player = _Player(pings, pongs, length, timeout, which.spin)
        player.play(warm_up, stop)
        player.histogram = LatencyHistogram()
        player.play(count or sys.maxsize, stop)
    print_json(_document(player.histogram, length)) if as_json else _show(player.histogram, length)


class _Player:
    """Sends one message at a time and waits for its response."""

    def __init__(
        self, pings: ExclusivePublication, pongs: Subscription, length: int, timeout: float, spin: bool
    ) -> None:
        self.pings = pings
        self.pongs = pongs
        self.rest = bytes(length - STAMP.size)
        self.timeout_ns = seconds_ns(timeout)
        self.spin = spin
        self.histogram = LatencyHistogram()
        self._answered_ns = 0
        self._sent_ns = 0

    def play(self, count: int, stop: Stop) -> None:
        """Run ``count`` round trips. Raises Timeout if a response does not arrive."""
        clock = SYSTEM_CLOCK
        handler = FragmentAssembler(self._on_pong)
        for _ in range(count):
            self._answered_ns = 0
            self._sent_ns = clock.monotonic_ns()
            self._send(STAMP.pack(self._sent_ns) + self.rest)
            while not self._answered_ns:
                if stop.requested:
                    return
                if self.pongs.poll(handler, FRAGMENTS):
                    continue
                raise_error_of(self.pongs)
                if 0 < self.timeout_ns < clock.monotonic_ns() - self._sent_ns:
                    seconds = self.timeout_ns / NS_PER_SECOND
                    raise Timeout(f"no response to a ping within {seconds:g} s", timeout=seconds)
                if not self.spin:
                    os.sched_yield()
            self.histogram.record(self._answered_ns - self._sent_ns)

    def _send(self, message: bytes) -> None:
        while (position := self.pings.offer(message)) < 0:
            if position in (OfferStatus.NOT_CONNECTED, OfferStatus.CLOSED, OfferStatus.MAX_POSITION_EXCEEDED):
                raise offer_error(position, "ping")

    def _on_pong(self, fragment: Fragment) -> None:
        # Responses to other clients' pings, or to pings that timed out, carry another time.
        if STAMP.unpack_from(fragment)[0] == self._sent_ns:
            self._answered_ns = SYSTEM_CLOCK.monotonic_ns()


def _document(histogram: LatencyHistogram, length: int) -> dict[str, object]:
    return {
        "count": histogram.count,
        "size": length,
        "min_ns": histogram.min_ns,
        "mean_ns": round(histogram.mean_ns),
        **{f"p{percent:g}_ns": histogram.percentile_ns(percent) for percent in PERCENTILES},
        "max_ns": histogram.max_ns,
    }


def _show(histogram: LatencyHistogram, length: int) -> None:
    say(f"{histogram.count:,} round trips of {length} bytes")
    if not histogram.count:
        return
    figures = [("min", float(histogram.min_ns)), ("mean", histogram.mean_ns)]
    figures += [(f"p{percent:g}", float(histogram.percentile_ns(percent))) for percent in PERCENTILES]
    for name, value in [*figures, ("max", float(histogram.max_ns))]:
        print(f"{name:>6} {value / 1000:>12,.1f} µs")
    print()
    for low, high, count, bar in histogram.bars(BAR_WIDTH):
        print(f"{low / 1000:>10,.1f} – {high / 1000:>10,.1f} µs {count:>9,} {bar}")
