"""Streams between two hosts over a network that loses, duplicates, delays and reorders in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.checkers import MonotoneChecker, StreamChecker, Violation
from mainstem.sim.faults import Faults

if TYPE_CHECKING:
    from random import Random

    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.publication import ExclusivePublication, Publication
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

MESSAGES = 250  # of each stream: enough for several terms of 64 KiB
TERM_LENGTH = 64 * 1024
MAX_LENGTH = 8_192  # the longest message of a term of 64 KiB
# Its third term is past the greatest 32-bit integer: ids wrap, positions do not.
LAST_TERMS = "init-term-id=2147483646|term-id=2147483646|term-offset=0"
PATIENCE_NS = 300 * NS_PER_SECOND  # simulated: 30 % loss in both directions takes many rounds


@dataclass
class Stream:
    """One publication, its subscription on the other host, and their checkers."""

    publication: Publication | ExclusivePublication
    subscription: Subscription
    checker: StreamChecker
    positions: MonotoneChecker
    pause_probability: float
    left: int
    next: bytes = b""  # drawn, and not accepted yet

    def offer(self, rng: Random) -> None:
        """Offer a few messages of drawn lengths, as far as there is room."""
        for _ in range(int(rng.random() * 4)):
            if not self.left:
                return
            message = self.next or rng.randbytes(drawn_length(rng))
            self.next = message
            if self.publication.offer(message) < 0:
                return
            self.checker.offered(message)
            self.next = b""
            self.left -= 1

    def poll(self, rng: Random) -> None:
        """Poll, unless this subscriber pauses."""
        if rng.random() >= self.pause_probability:
            self.subscription.poll_messages(self._on_message, 10)

    def _on_message(self, fragment: Fragment) -> None:
        position = fragment.header.position
        self.checker.delivered(bytes(fragment), position)
        self.positions.observe(position)

    @property
    def done(self) -> bool:
        return not self.left and not self.checker.outstanding


def drawn_length(rng: Random) -> int:
    """Draw a length: mostly short, sometimes empty, sometimes many fragments."""
    return int(rng.random() * rng.choice((1, 64, 64, 1_500, MAX_LENGTH)))


def add_stream(world: World, sender: Host, receiver: Host, number: int) -> Stream:
    """Add a stream with drawn channel parameters."""
    rng = world.rng
    mtu = rng.choice((256, 1408, 4096))
    endpoint = f"{receiver.address}:{20_121 + number % 2}"  # streams share endpoints
    stream_id = 1_001 + number
    subscription = receiver.aeron.add_subscription(f"aeron:udp?endpoint={endpoint}", stream_id)
    channel = f"aeron:udp?endpoint={endpoint}|term-length=64k|mtu={mtu}|{rng.choice(('', '', LAST_TERMS))}".rstrip("|")
    add = rng.choice((sender.aeron.add_publication, sender.aeron.add_exclusive_publication))
    publication = add(channel, stream_id)
    name = f"stream {stream_id}"
    pause_probability = rng.choice((0.0, 0.5, 0.9))
    return Stream(
        publication,
        subscription,
        StreamChecker(name),
        MonotoneChecker(f"{name}'s position"),
        pause_probability,
        world.scaled(MESSAGES),
    )


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
            stream.poll(world.rng)
        return all(stream.done for stream in streams)

    world.run_until(progress, what="delivery of every message", within_ns=PATIENCE_NS)
    world.run_for(NS_PER_SECOND)
    images = [image for stream in streams for image in stream.subscription.images]
    for stream in streams:
        stream.checker.finish()
        # No subscriber is behind, so all of the window is free.
        if stream.publication.available_window != TERM_LENGTH // 2:
            raise Violation(f"a publisher that all have followed may write {stream.publication.available_window} bytes")
        stream.publication.close()
    world.run_until(
        lambda: not any(stream.subscription.images for stream in streams),
        what="the end of every stream",
        within_ns=PATIENCE_NS,
    )
    if not all(image.is_end_of_stream for image in images):
        raise Violation("a stream ended because its sender fell silent, not because it announced its end")
    return (
        f"{len(streams)} streams, {world.network.sent} datagrams sent, {world.network.lost} lost, "
        f"{world.ticks} ticks, there {there}, back {back}"
    )
