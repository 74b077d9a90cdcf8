"""Helpers for scenarios of Aeron streams: a publication, and subscriptions that must receive all of its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.checkers import StreamChecker
from mainstem.sim.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.publication import ExclusivePublication, Publication
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

STREAM = 1001
MESSAGES = 150  # several terms of 64 KiB
MAX_LENGTH = 8_192  # the maximum message length with a term of 64 KiB
# Of a link: with three receivers and loss in both directions, the publisher waits for the unluckiest receiver.
MAX_LOSS = 0.15
TIMEOUT_NS = 300 * NS_PER_SECOND  # simulated: with 30% loss in both directions, many rounds are necessary


def until(world: World, condition: Callable[[], bool], what: str, timeout_ns: int = TIMEOUT_NS) -> None:
    """Run the world until a condition holds over a bad network."""
    world.run_until(condition, what=what, within_ns=timeout_ns)


def endpoint(host: Host, port: int = 20_121) -> str:
    return f"aeron:udp?endpoint={host.address}:{port}"


def drawn_length(rng: Random) -> int:
    """Draw the length of a message: mostly short, sometimes empty, sometimes many fragments."""
    return int(rng.random() * rng.choice((1, 64, 64, 1_500, MAX_LENGTH)))


class Reader:
    """A subscription that must receive every message of a publication. It skips a poll with ``pause_probability``."""

    def __init__(self, name: str, subscription: Subscription, *, pause_probability: float = 0.0) -> None:
        self.subscription = subscription
        self.checker = StreamChecker(name)
        self.pause_probability = pause_probability

    def poll(self, world: World) -> None:
        if world.rng.random() >= self.pause_probability:
            self.subscription.poll_messages(self._on_message, 10)

    def _on_message(self, fragment: Fragment) -> None:
        self.checker.delivered(bytes(fragment), fragment.header.position)


class Writer:
    """Offers messages of drawn lengths. Every reader must receive each of them."""

    def __init__(
        self, publication: Publication | ExclusivePublication, readers: Sequence[Reader], messages: int
    ) -> None:
        self.publication = publication
        self.readers = readers
        self._left = messages
        self._message = b""  # drawn but not accepted yet

    def offer(self, rng: Random) -> None:
        for _ in range(int(rng.random() * 4)):
            if not self._left:
                return
            message = self._message = self._message or rng.randbytes(drawn_length(rng))
            if self.publication.offer(message) < 0:
                return
            for reader in self.readers:
                reader.checker.offered(message)
            self._message = b""
            self._left -= 1

    @property
    def done(self) -> bool:
        return not self._left and not any(reader.checker.outstanding for reader in self.readers)


def readers(world: World, subscriptions: Sequence[Subscription]) -> list[Reader]:
    """Return a reader for each subscription; some of them pause."""
    return [
        Reader(f"subscription {number}", each, pause_probability=world.rng.choice((0.0, 0.5, 0.9)))
        for number, each in enumerate(subscriptions)
    ]


def connect(
    world: World, publication: Publication | ExclusivePublication, subscriptions: Sequence[Subscription]
) -> None:
    """Wait over a perfect network until every subscriber has joined: only then is delivery to all guaranteed."""
    world.run_until(
        lambda: publication.is_connected and all(each.is_connected for each in subscriptions),
        what="every subscription to connect",
    )
    world.run_for(NS_PER_SECOND // 2)


def degrade_links(world: World) -> None:
    """Draw faults for every link between two hosts."""
    for source in world.hosts:
        for destination in world.hosts:
            if source is not destination:
                world.network.link(source.address, destination.address, Faults.drawn(world.rng, max_loss=MAX_LOSS))


def deliver(
    world: World,
    publication: Publication | ExclusivePublication,
    to: Sequence[Reader],
    *,
    messages: int | None = None,
    on_step: Callable[[], None] | None = None,
) -> None:
    """Offer messages of drawn lengths until every reader has all of them. Calls ``on_step`` in every step.

    ``messages`` defaults to the size of the run.
    """
    writer = Writer(publication, to, messages or world.scaled(MESSAGES))

    def progress() -> bool:
        writer.offer(world.rng)
        for reader in to:
            reader.poll(world)
        if on_step is not None:
            on_step()
        return writer.done

    until(world, progress, "every reader to receive every message")


def end(world: World, publication: Publication | ExclusivePublication, subscriptions: Sequence[Subscription]) -> str:
    """Close the publication, wait until no subscriber has an image of it, and return what happened on the network."""
    session_id = publication.session_id
    publication.close()
    until(
        world,
        lambda: not any(image.session_id == session_id for each in subscriptions for image in each.images),
        "the stream to end for every subscriber",
    )
    return f"{world.network.sent} datagrams, {world.network.lost} lost, {world.ticks} ticks"
