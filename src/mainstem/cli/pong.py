"""Respond to every ping with the same message."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.aeron.client import FragmentAssembler, OfferStatus
from mainstem.aeron.client.offer_status import offer_error
from mainstem.aeron.client.resource import raise_error_of
from mainstem.aeron.tools.channel_checks import check_publication, check_subscription
from mainstem.cli._drivers import connect
from mainstem.cli._options import PingPong
from mainstem.cli._process import say, stopping

if TYPE_CHECKING:
    from mainstem.aeron.client import ExclusivePublication, Fragment
    from mainstem.cli._process import Stop

FRAGMENTS = 10
TIMEOUT_NS = 5 * NS_PER_SECOND  # how long the end of one client can disconnect the responses to the next


def run(which: PingPong) -> None:
    """Respond to every ping with the same message, until it is stopped.

    The channels and streams are those of the reference's samples, so that either responds to the other.

    Example: mainstem pong --spin
    """
    check_subscription(which.ping_channel)
    check_publication(which.pong_channel)
    with (
        connect(which.directory, "pong") as aeron,
        stopping() as stop,
        aeron.add_subscription(which.ping_channel, which.ping_stream) as pings,
        aeron.add_exclusive_publication(which.pong_channel, which.pong_stream) as pongs,
    ):
        say(
            f"responding to {which.ping_channel} stream {which.ping_stream} on {which.pong_channel} stream {which.pong_stream}"
        )
        echo = _Echo(pongs, stop)
        handler = FragmentAssembler(echo)
        while not stop.requested:
            if not pings.poll(handler, FRAGMENTS) and not which.spin:
                raise_error_of(pings)
                os.sched_yield()
        say(f"responded to {echo.count:,} pings; {echo.dropped:,} dropped without a subscriber")


class _Echo:
    def __init__(self, publication: ExclusivePublication, stop: Stop) -> None:
        self.publication = publication
        self.stop = stop
        self.count = 0
        self.dropped = 0

    def __call__(self, fragment: Fragment) -> None:
        """Offer the response until there is room. Drop it if the ping's sender stays disconnected."""
        begin_ns = SYSTEM_CLOCK.monotonic_ns()
        while not self.stop.requested:
            position = self.publication.offer(fragment)
            if position > 0:
                self.count += 1
                return
            if OfferStatus(position).is_final:
                raise offer_error(position, f"pong on {self.publication!r}")
            if position == OfferStatus.NOT_CONNECTED and SYSTEM_CLOCK.monotonic_ns() - begin_ns > TIMEOUT_NS:
                self.dropped += 1
                return
