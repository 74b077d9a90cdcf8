"""Stream lifecycles: spies, untethered subscribers, rejection, revocation, and claims that stay open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.log.append import BufferClaim
from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.checkers import MonotoneChecker, Violation
from mainstem.sim.scenarios.streams import (
    MESSAGES,
    STREAM,
    Reader,
    connect,
    degrade_links,
    deliver,
    end,
    endpoint,
    readers,
    until,
)

if TYPE_CHECKING:
    from mainstem.aeron.client.subscription import Image, Subscription
    from mainstem.sim.world import World

REMOVAL_NS = 20 * NS_PER_SECOND  # time limit for removing a subscription from a stream, or for its return
REJECTION_NS = 30 * NS_PER_SECOND
CLAIMS = 5
UNBLOCK_NS = 15 * NS_PER_SECOND  # the default of publication_unblock_timeout_ns
TIMER_NS = NS_PER_SECOND  # how much later the conductor may notice the end of a claim or a stuck position


UNTETHERED = (
    "tether=false|untethered-window-limit-timeout=1s|untethered-linger-timeout=500ms|untethered-resting-timeout=1s"
)


class LaggingSubscription:
    """An untethered subscription, which loses its image while it does not poll. ``joined`` counts its images."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.joined = 0
        self.was_removed = False
        self._image: Image | None = None
        self._position: MonotoneChecker

    def observe(self) -> None:
        """Note a new image without polling."""
        images = self.subscription.images
        self.was_removed |= not images
        if images and images[0] is not self._image:
            self._image = images[0]
            self.joined += 1
            self._position = MonotoneChecker(f"the position of the untethered subscription's image {self.joined}")

    def poll(self) -> None:
        self.observe()
        self.subscription.poll_messages(lambda fragment: self._position.observe(fragment.header.position), 10)

    def wait_until_removed(self, world: World) -> None:
        """Wait until its image ends, within the time that its timeouts allow."""
        until(
            world,
            lambda: self.was_removed or not self.subscription.images,
            "the paused subscription to lose its image",
            REMOVAL_NS,
        )


def spies(world: World) -> str:
    """A spy and a receiver receive everything. An untethered spy that stops polling becomes RESTING and may return."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    channel = endpoint(receiver)
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k|ssc=true", STREAM)
    spy = sender.aeron.add_subscription(f"aeron-spy:{channel}", STREAM)
    untethered_subscription = sender.aeron.add_subscription(f"aeron-spy:{channel}|{UNTETHERED}", STREAM)
    connect(world, publication, [subscription, spy, untethered_subscription])
    degrade_links(world)
    lagging, is_polling = LaggingSubscription(untethered_subscription), False

    def on_step() -> None:
        nonlocal is_polling
        if world.rng.random() < 0.001:
            is_polling = not is_polling
        if is_polling and untethered_subscription.images:
            lagging.poll()

    deliver(world, publication, readers(world, [subscription, spy]), on_step=on_step)
    return end(world, publication, [subscription, spy])


def rejection(world: World) -> str:
    """A receiver rejects a stream, which disconnects its publisher. Later the publisher revokes another stream."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    channel = endpoint(receiver)
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    first = sender.aeron.add_publication(f"{channel}|term-length=64k", STREAM)
    second = sender.aeron.add_exclusive_publication(f"{channel}|term-length=64k", STREAM)
    connect(world, first, [subscription])
    world.run_until(lambda: second.is_connected and len(subscription.images) == 2, what="the second stream to connect")
    degrade_links(world)
    rejected = next(image for image in subscription.images if image.session_id == first.session_id)
    accepted = next(image for image in subscription.images if image.session_id == second.session_id)
    rejected.async_reject("no room")
    until(world, lambda: not first.is_connected, "the rejection to disconnect the publication", REJECTION_NS)
    if not second.is_connected:
        raise Violation("rejecting one stream disconnected the other")
    second.revoke()
    until(
        world,
        lambda: all(image is not accepted for image in subscription.images),
        "the revoked stream's image to end",
        REJECTION_NS,
    )
    if not accepted.is_publication_revoked:
        raise Violation("an image of a revoked publication ended with is_publication_revoked False")
    return f"{world.network.sent} datagrams, {world.network.lost} lost"


def untethered(world: World) -> str:
    """An untethered subscriber that stops polling becomes RESTING and returns. The tethered subscriber misses nothing."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    endpoint_channel = endpoint(receiver)
    rejoin = world.rng.random() < 0.7
    channel = f"{endpoint_channel}|rejoin={'true' if rejoin else 'false'}"  # must be the same for all subscriptions
    tethered = receiver.aeron.add_subscription(channel, STREAM)
    untethered_subscription = receiver.aeron.add_subscription(f"{channel}|{UNTETHERED}", STREAM)
    publication = sender.aeron.add_publication(f"{endpoint_channel}|term-length=64k", STREAM)
    connect(world, publication, [tethered, untethered_subscription])
    degrade_links(world)
    lagging, tethered_readers = LaggingSubscription(untethered_subscription), readers(world, [tethered])
    deliver(world, publication, tethered_readers, on_step=lagging.poll)
    # A subscriber that stops polling is removed once it is far enough behind and its timeout expires. Then it no longer delays
    # the stream.
    lagging.was_removed = False
    deliver(world, publication, tethered_readers, messages=MESSAGES, on_step=lagging.observe)
    lagging.wait_until_removed(world)
    deliver(world, publication, tethered_readers, on_step=lagging.observe)
    if rejoin:
        until(world, lambda: bool(untethered_subscription.images), "the paused subscription to rejoin", REMOVAL_NS)
        deliver(world, publication, tethered_readers, on_step=lagging.poll)
    elif untethered_subscription.images:
        raise Violation("a subscription with rejoin=false rejoined")
    return f"{lagging.joined} times in, " + end(world, publication, [tethered, untethered_subscription])


def ipc(world: World) -> str:
    """Several readers of one stream, some slow. An untethered one stops polling and becomes RESTING; one rejects its image."""
    host = world.add_host("host", image_liveness_timeout_ns=2 * NS_PER_SECOND)
    subscriptions = [host.aeron.add_subscription("aeron:ipc", STREAM) for _ in range(world.rng.randrange(1, 4))]
    lagging = LaggingSubscription(host.aeron.add_subscription(f"aeron:ipc?{UNTETHERED}", STREAM))
    add = world.rng.choice((host.aeron.add_publication, host.aeron.add_exclusive_publication))
    publication = add("aeron:ipc?term-length=64k", STREAM)
    connect(world, publication, [*subscriptions, lagging.subscription])
    everybody = readers(world, subscriptions)
    deliver(world, publication, everybody, on_step=lagging.poll)
    # Several windows' worth of messages, so that the lagging subscription limits the stream.
    deliver(world, publication, everybody, messages=MESSAGES, on_step=lagging.observe)
    lagging.wait_until_removed(world)
    deliver(world, publication, everybody)
    lagging.subscription.close()
    rejected = world.rng.choice(subscriptions)
    rejected.images[0].async_reject("no room")
    until(world, lambda: not publication.is_connected, "the rejection to disconnect the publication", REMOVAL_NS)
    until(
        world,
        lambda: all(each.is_connected for each in subscriptions),
        "every reader to get its image back",
        REMOVAL_NS,
    )
    deliver(world, publication, everybody)
    return end(world, publication, subscriptions)


def claims(world: World) -> str:
    """Messages after an open claim wait for it until the unblock timeout, but no longer."""
    rng = world.rng
    sender = receiver = world.add_host("sender")
    channel = "aeron:ipc"
    if is_network := rng.random() < 0.5:
        receiver = world.add_host("receiver")
        channel = endpoint(receiver)
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k".replace("ipc|", "ipc?"), STREAM)
    connect(world, publication, [subscription])
    if is_network:
        degrade_links(world)
    reader = Reader("the stream", subscription)
    abandoned = 0

    def offer() -> None:
        message = rng.randbytes(rng.randrange(3000))
        world.run_until(lambda: publication.offer(message) > 0, what="room for a message")
        reader.checker.offered(message)

    def poll_until(due_ns: int) -> None:
        def progress() -> bool:
            reader.poll(world)
            return world.now_ns >= due_ns

        world.run_until(progress, what="time to pass")

    def all_read() -> bool:
        reader.poll(world)
        return not reader.checker.outstanding

    for _ in range(CLAIMS):
        offer()
        claim, message = BufferClaim(), rng.randbytes(rng.randrange(1, 1000))
        world.run_until(lambda: publication.try_claim(len(message), claim) > 0, what="room for a claim")  # noqa: B023
        claimed_ns = world.now_ns
        unblocked = sender.aeron.counters.value(SystemCounter.UNBLOCKED_PUBLICATIONS)
        is_abandoned = rng.random() < 0.3
        if not is_abandoned:
            reader.checker.offered(message)
        offer()
        if is_abandoned:
            abandoned += 1
            poll_until(claimed_ns + UNBLOCK_NS + 3 * TIMER_NS)
            if sender.aeron.counters.value(SystemCounter.UNBLOCKED_PUBLICATIONS) != unblocked + 1:
                raise Violation(
                    f"an abandoned claim was not unblocked within {(UNBLOCK_NS + 3 * TIMER_NS) // NS_PER_SECOND} s"
                )
        else:
            poll_until(claimed_ns + int(UNBLOCK_NS * rng.uniform(0.3, 0.97)))
            claim.view[:] = message
            claim.commit()
            if sender.aeron.counters.value(SystemCounter.UNBLOCKED_PUBLICATIONS) != unblocked:
                raise Violation("a claim was unblocked before its timeout, while its publisher was only slow")
        until(world, all_read, "the messages after the claim to arrive")
    return f"{abandoned} of {CLAIMS} claims abandoned, " + end(world, publication, [subscription])
