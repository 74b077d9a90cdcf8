"""One publication to several subscriptions, each of which must get everything. Shared by the scenarios of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.checkers import StreamChecker
from mainstem.sim.faults import Faults
from mainstem.sim.scenarios.unicast import drawn_length

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.publication import ExclusivePublication, Publication
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.sim.world import World

MESSAGES = 150  # several terms of 64 KiB
MAX_LOSS = 0.15  # of a link: with three receivers, and both directions, the publisher waits for the unluckiest
PATIENCE_NS = 300 * NS_PER_SECOND


class Reader:
    """A subscription that must get every message of a publication. It skips a poll with ``pause_probability``."""

    def __init__(self, name: str, subscription: Subscription, *, pause_probability: float = 0.0) -> None:
        self.subscription = subscription
        self.checker = StreamChecker(name)
        self.pause_probability = pause_probability

    def poll(self, world: World) -> None:
        """Poll, unless it pauses."""
        if world.rng.random() >= self.pause_probability:
            self.subscription.poll_messages(self._on_message, 10)

    def _on_message(self, fragment: Fragment) -> None:
        self.checker.delivered(bytes(fragment), fragment.header.position)


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
        what="the connection of every subscription",
    )
    world.run_for(NS_PER_SECOND // 2)


def spoil(world: World) -> str:
    """Draw faults for every link between two hosts."""
    for source in world.hosts:
        for destination in world.hosts:
            if source is not destination:
                world.network.link(source.address, destination.address, Faults.drawn(world.rng, max_loss=MAX_LOSS))
    return f"{world.network.sent} datagrams to connect"


def deliver(
    world: World,
    publication: Publication | ExclusivePublication,
    to: Sequence[Reader],
    *,
    messages: int | None = None,
    bystander: Callable[[], None] | None = None,
) -> None:
    """Offer messages of drawn lengths until every reader has all of them. Calls ``bystander`` in every step.

    The number of messages depends on the size of the run unless ``messages`` is given.
    """
    left, message = messages or world.scaled(MESSAGES), b""

    def progress() -> bool:
        nonlocal left, message
        for _ in range(int(world.rng.random() * 4)):
            if not left:
                break
            message = message or world.rng.randbytes(drawn_length(world.rng))
            if publication.offer(message) < 0:
                break
            left -= 1
            for reader in to:
                reader.checker.offered(message)
            message = b""
        for reader in to:
            reader.poll(world)
        if bystander is not None:
            bystander()
        return not left and not any(reader.checker.outstanding for reader in to)

    world.run_until(progress, what="delivery of every message to everybody", within_ns=PATIENCE_NS)


def end(world: World, publication: Publication | ExclusivePublication, subscriptions: Sequence[Subscription]) -> str:
    """Close the publication, wait until no subscriber has an image of it, and return what happened on the network."""
    session_id = publication.session_id
    publication.close()
    world.run_until(
        lambda: not any(image.session_id == session_id for each in subscriptions for image in each.images),
        what="the end of the stream for everybody",
        within_ns=PATIENCE_NS,
    )
    return f"{world.network.sent} datagrams, {world.network.lost} lost, {world.ticks} ticks"
