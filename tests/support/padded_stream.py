"""A stream whose sender pads past its limit, after a loss that only its heartbeats can reveal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.live_driver import wait_for
from tests.support.lossy_transport import HoledWay

from mainstem.aeron.counters import CounterType, snapshot

if TYPE_CHECKING:
    from mainstem.aeron.client.client import Aeron

KIB = 1024
STREAM = 1001
FIRST = 31  # frames of 1 KiB that are consumed; the window of 32 KiB then ends 1 KiB before the term does
SECOND = 31
LOST_FROM = 38 * KIB  # the data before it is less than a quarter of the window, so the receiver does not report it


def carry_padded_stream(sender: Aeron, receiver: Aeron, port: int) -> None:
    """Send two terms of a stream whose receiver misses the end of the first, with its padding; check that all arrives."""
    first_term: int | None = None
    at_end = False

    def loses(length: int, offset: int, term_id: int) -> bool:
        nonlocal first_term, at_end
        if first_term is None:
            first_term = term_id
        if length == 0:
            # The sender is past its padding. From here on nothing is lost.
            at_end |= term_id != first_term
            return False
        return not at_end and term_id == first_term and offset >= LOST_FROM

    received: list[bytes] = []
    frames = [
        number.to_bytes(4, "big") * (248 if number < FIRST + SECOND else 120) for number in range(FIRST + SECOND + 1)
    ]
    # It does not fit in the rest of the term, which becomes 1.5 KiB of padding.
    behind = b"behind the padding".ljust(2_000)
    with (
        HoledWay(port, port + 1, loses),
        receiver.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port + 1}", STREAM) as subscription,
        sender.add_exclusive_publication(f"aeron:udp?endpoint=127.0.0.1:{port}|term-length=64k", STREAM) as publication,
    ):
        wait_for(lambda: publication.is_connected and subscription.is_connected)
        (image,) = subscription.images

        def offer(message: bytes) -> None:
            wait_for(lambda: publication.offer(message) > 0)

        for message in frames[:FIRST]:
            offer(message)
        # Consume the frames in one step, so that one status message reports all of them.
        wait_for(lambda: receiver_position(receiver) == FIRST * KIB)
        wait_for(lambda: (subscription.poll(lambda f: received.append(bytes(f)), 100), len(received) == FIRST)[1])
        for message in frames[FIRST:]:
            offer(message)
        offer(behind)
        parts = len(frames) + 2

        def all_arrived() -> bool:
            assert not image.closed, "the image was given up"
            subscription.poll(lambda f: received.append(bytes(f)), 100)
            return len(received) == parts

        wait_for(all_arrived)
        assert at_end
    assert received[: len(frames)] == frames
    assert b"".join(received[len(frames) :]) == behind


def receiver_position(receiver: Aeron) -> int:
    """Return the position up to which the stream has no gaps."""
    (counter,) = (each for each in snapshot(receiver.counters) if each.type_id == CounterType.RECEIVER_POSITION)
    return counter.value
