"""One end of a stream, with its own driver. Arguments: send or receive, number of messages, channel, destinations."""

from __future__ import annotations

import sys
import time

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver

role, count, channel, *destinations = sys.argv[1:]
with (
    MediaDriver.launch(threads=True, threading_mode="SHARED", term_buffer_length=1 << 16) as driver,
    Aeron.connect(driver.directory) as aeron,
):
    if role == "send":
        with aeron.add_publication(channel, 1001) as publication:
            for destination in destinations:
                publication.add_destination(destination)
            for number in range(int(count)):
                while publication.offer(number.to_bytes(4, "big") * (1 + number % 500)) < 0:
                    time.sleep(0.0005)
            while publication.is_connected:  # until the receiver has everything and disconnects
                time.sleep(0.01)
        print("sent")
    else:
        received: list[bytes] = []
        with aeron.add_subscription(channel, 1001) as subscription:
            while len(received) < int(count):
                if not subscription.poll_messages(lambda fragment: received.append(bytes(fragment)), 10):
                    time.sleep(0.0005)
        assert received == [number.to_bytes(4, "big") * (1 + number % 500) for number in range(int(count))]
        print(f"{len(received)} messages")
