"""Streams between two hosts over a network that loses, duplicates, delays and reorders in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.checkers import Violation
from mainstem.sim.faults import Faults
from mainstem.sim.scenarios.streams import STREAM, Reader, Writer, endpoint, until

if TYPE_CHECKING:
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

MESSAGES = 250  # of each stream: enough for several terms of 64 KiB
TERM_LENGTH = 64 * 1024
# Its third term is past the greatest 32-bit integer: ids wrap, positions do not.
LAST_TERMS = "init-term-id=2147483646|term-id=2147483646|term-offset=0"


def add_stream(world: World, sender: Host, receiver: Host, number: int) -> Writer:
    """Add a stream with drawn channel parameters."""
    rng, stream_id = world.rng, STREAM + number
    mtu = rng.choice((256, 1408, 4096))
    channel = endpoint(receiver, 20_121 + number % 2)  # streams share endpoints
    subscription = receiver.aeron.add_subscription(channel, stream_id)
    terms = rng.choice(("", "", LAST_TERMS))
    add = rng.choice((sender.aeron.add_publication, sender.aeron.add_exclusive_publication))
    publication = add(f"{channel}|term-length=64k|mtu={mtu}|{terms}".rstrip("|"), stream_id)
    reader = Reader(f"stream {stream_id}", subscription, pause_probability=rng.choice((0.0, 0.5, 0.9)))
    return Writer(publication, [reader], world.scaled(MESSAGES))


def unicast(world: World) -> str:
    """One to three streams. Every message arrives once and in order, and the stream ends when its publication closes."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    # Set up over a good network, then make it as bad as the seed makes it.
    streams = [add_stream(world, sender, receiver, number) for number in range(world.rng.randrange(1, 4))]
    there, back = Faults.drawn(world.rng), Faults.drawn(world.rng)
    world.network.link(sender.address, receiver.address, there)
    world.network.link(receiver.address, sender.address, back)

    def progress() -> bool:
        for stream in streams:
            stream.offer(world.rng)
            stream.readers[0].poll(world)
        return all(stream.done for stream in streams)

    until(world, progress, "delivery of every message")
    world.run_for(NS_PER_SECOND)
    subscriptions = [stream.readers[0].subscription for stream in streams]
    images = [image for subscription in subscriptions for image in subscription.images]
    for stream in streams:
        # No subscriber is behind, so all of the window is free.
        if stream.publication.available_window != TERM_LENGTH // 2:
            raise Violation(f"a publisher that all have followed may write {stream.publication.available_window} bytes")
        stream.publication.close()
    until(world, lambda: not any(each.images for each in subscriptions), "the end of every stream")
    if not all(image.is_end_of_stream for image in images):
        raise Violation("a stream ended because its sender fell silent, not because it announced its end")
    return (
        f"{len(streams)} streams, {world.network.sent} datagrams sent, {world.network.lost} lost, "
        f"{world.ticks} ticks, there {there}, back {back}"
    )
