"""A driver with a stream that its subscriber does not read, for the tests of displays."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.live_driver import wait_for
from tests.support.waiting import STALL_S

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def stalled_stream(channel: str, *, port: int) -> Iterator[tuple[str, Aeron]]:
    """Yield the directory of a driver that also has a stream without a subscriber, on ``port``, and a client of it."""
    with (
        # A busy machine may stop this process for longer than the driver would wait for its clients.
        MediaDriver.launch(
            threads=True,
            client_liveness_timeout=f"{STALL_S:g}s",
            publication_unblock_timeout=f"{2 * STALL_S:g}s",
        ) as driver,
        Aeron.connect(driver.directory, client_name="prices") as one,
        Aeron.connect(driver.directory, client_name="orders") as other,
        one.add_subscription(channel, 7) as subscription,
        other.add_publication(channel, 7) as publication,
        other.add_publication(f"aeron:udp?endpoint=localhost:{port}", 1001),
    ):
        wait_for(lambda: subscription.is_connected and publication.is_connected)
        while publication.offer(bytes(1000)) > 0:
            pass
        yield driver.directory, one
