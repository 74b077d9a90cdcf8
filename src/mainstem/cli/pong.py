"""Respond to every ping with the same message."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.aeron.client import FragmentAssembler, OfferStatus
from mainstem.aeron.client.offer_status import offer_error
from mainstem.aeron.client.resource import raise_error_of
from mainstem.cli._channels import check_publication, check_subscription
from mainstem.cli._directory import INT32, DirectoryOption
from mainstem.cli._logs import say
from mainstem.cli._stream import (
    PING_CHANNEL,
    PING_STREAM,
    PONG_CHANNEL,
    PONG_STREAM,
    IdleOption,
    connect,
    stopping,
)
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK

if TYPE_CHECKING:
    from mainstem.aeron.client import ExclusivePublication, Fragment
    from mainstem.cli._stream import Stop

FRAGMENTS = 10
PATIENCE_NS = 5 * NS_PER_SECOND  # the end of one client may disconnect the responses to the next for so long


def run(
    directory: DirectoryOption = "",
    ping_channel: Annotated[str, typer.Option("--ping-channel", "-c", help="Where pings come from.")] = PING_CHANNEL,
    ping_stream: Annotated[
        int, typer.Option("--stream", "--ping-stream", "-s", help="The stream id of pings.", **INT32)
    ] = PING_STREAM,
    pong_channel: Annotated[str, typer.Option("--pong-channel", "-C", help="Where responses go.")] = PONG_CHANNEL,
    pong_stream: Annotated[
        int, typer.Option("--pong-stream", "-S", help="The stream id of responses.", **INT32)
    ] = PONG_STREAM,
    spin: IdleOption = False,
) -> None:
    """Respond to every ping with the same message, until it is stopped.

    The channels and streams are those of the reference's samples, so that either responds to the other.

    Example: mainstem pong --spin
    """
    check_subscription(ping_channel)
    check_publication(pong_channel)
    with (
        connect(directory, "pong") as aeron,
        stopping() as stop,
        aeron.add_subscription(ping_channel, ping_stream) as pings,
        aeron.add_exclusive_publication(pong_channel, pong_stream) as pongs,
    ):
        say(f"responding to {ping_channel} stream {ping_stream} on {pong_channel} stream {pong_stream}")
        echo = _Echo(pongs, stop)
        handler = FragmentAssembler(echo)
        while not stop.asked:
            if not pings.poll(handler, FRAGMENTS) and not spin:
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
        """Offers until there is room; a ping whose sender stays away is dropped."""
        begin_ns = SYSTEM_CLOCK.monotonic_ns()
        while not self.stop.asked:
            position = self.publication.offer(fragment)
            if position > 0:
                self.count += 1
                return
            if OfferStatus(position).is_final:
                raise offer_error(position, f"pong on {self.publication!r}")
            if position == OfferStatus.NOT_CONNECTED and SYSTEM_CLOCK.monotonic_ns() - begin_ns > PATIENCE_NS:
                self.dropped += 1
                return
