"""Helpers for tests that run real drivers and clients: exchange messages, and find leftovers in shared memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.support.waiting import STALL_S, StallTimeout, nothing
from tests.support.waiting import wait_for as wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem.aeron.client.client import Aeron

TIMEOUT_S = STALL_S


def shared_memory() -> set[str]:
    """Return the files that this process has left in shared memory."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(f"mainstem-{os.getpid()}-")}


def message(number: int) -> bytes:
    """Return the message with that number. Lengths vary, and some messages are fragmented."""
    return number.to_bytes(4, "big") * (1 + number % 977)


def exchange(
    aeron: Aeron,
    channel: str,
    *,
    messages: int,
    subscription_channel: str = "",
    destinations: Sequence[str] = (),
    invoke: Callable[[], object] = nothing,
) -> None:
    """Send messages from a publication to a subscription and check every one of them.

    ``destinations`` are added to both, whose channels must then have manual control mode.
    """
    received: list[bytes] = []
    parts: list[bytes] = []

    def on_fragment(fragment: Any) -> None:
        parts.append(bytes(fragment))
        if fragment.header.flags & 0x40:
            received.append(b"".join(parts))
            parts.clear()

    with (
        aeron.add_subscription(subscription_channel or channel, 1001) as subscription,
        aeron.add_publication(channel, 1001) as publication,
    ):
        for destination in destinations:
            subscription.add_destination(destination)
            publication.add_destination(destination)
        wait_for(lambda: publication.is_connected and subscription.is_connected, invoke=invoke)
        stall = StallTimeout(f"{messages} messages over {channel}")
        sent = 0
        while len(received) < messages:
            stall.check((sent, len(received)))
            if sent < messages and publication.offer(message(sent)) > 0:
                sent += 1
            subscription.poll(on_fragment, 10)
            invoke()
    assert received == [message(number) for number in range(messages)]
