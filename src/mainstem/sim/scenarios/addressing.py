"""How streams find each other: late joiners, redundant senders, name resolution between drivers, hosts that move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.system_counter import SystemCounter
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.aeron.counters import CounterType
from mainstem.sim.checkers import Violation
from mainstem.sim.scenarios.streams import (
    STREAM,
    Reader,
    connect,
    degrade_links,
    deliver,
    drawn_length,
    end,
    endpoint,
    readers,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.sim.host import Host
    from mainstem.sim.world import World

SHARED = 300  # messages of a stream with two senders
LEAD = 20  # how many messages one sender can be ahead of the other
# One sender's offered position must also be within this distance of the other's sent position. A sender ignores a receiver that
# is half a term away, so a sender that fell that far behind would never be served again (docs/protocols/aeron.md, 14.4).
REACH = (64 * 1024) // 2
HEADERS = 512  # bytes of frame headers in one message, at most


def joining(world: World) -> str:
    """A subscriber joins a running stream and receives everything from there on, and nothing earlier. Sessions and tags match."""
    sender, early, late = (world.add_host(name) for name in ("sender", "early", "late"))
    channel = "aeron:udp?endpoint=224.20.30.39:20121"
    first = early.aeron.add_subscription(channel, STREAM)
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k|fc=min,t:30s|tags=7,8", STREAM)
    # Add another stream to the same endpoint through its tag. A subscriber to the first session must not receive it.
    other = sender.aeron.add_exclusive_publication("aeron:udp?tags=7|term-length=64k", STREAM)
    same = sender.aeron.add_exclusive_publication(f"{channel}|session-id=tag:8", STREAM + 1)
    if same.session_id != publication.session_id:
        raise Violation(f"session-id=tag:8 gave session {same.session_id}, expected {publication.session_id}")
    connect(world, publication, [first])
    world.run_until(lambda: len(first.images) == 2, what="an image of each of the endpoint's two streams")
    other.close()
    world.run_until(lambda: len(first.images) == 1, what="the second stream to end")
    degrade_links(world)
    early_reader = Reader("the early subscriber", first)
    deliver(world, publication, [early_reader])
    second = late.aeron.add_subscription(f"{channel}|session-id={publication.session_id}", STREAM)
    until(world, lambda: second.is_connected, "the late subscriber's image")
    # The sender's flow control now waits for both receivers.
    world.run_for(NS_PER_SECOND)
    joined = second.images[0].position
    if not 0 < joined <= publication.position:
        raise Violation(f"joined at position {joined}, expected 1 to {publication.position}, the publisher's position")
    second.poll(lambda _fragment: None, 1000)  # skip the rest of a message that began before the join
    deliver(world, publication, [early_reader, Reader("the late subscriber", second)])
    return f"joined at {joined}, " + end(world, publication, [first, second])


def redundant(world: World) -> str:
    """Two senders of one session, stream and term form one image. It lives as long as either does, and no message is missing."""
    near, far, receiver = (world.add_host(name) for name in ("near", "far", "receiver"))
    start = "session-id=77|init-term-id=5|term-id=5|term-offset=0|term-length=64k"
    channel = endpoint(receiver)
    subscription = receiver.aeron.add_subscription(channel, STREAM)
    senders = [host.aeron.add_exclusive_publication(f"{channel}|{start}", STREAM) for host in (near, far)]
    connect(world, senders[0], [subscription])
    world.run_until(lambda: senders[1].is_connected, what="the second sender to connect")
    degrade_links(world)
    messages = [world.rng.randbytes(drawn_length(world.rng)) for _ in range(SHARED)]
    sent = [0, 0]
    at = [_sender_position(host, sender.registration_id) for host, sender in zip((near, far), senders, strict=True)]
    reader = Reader("the merged stream", subscription)

    def step() -> bool:
        for which in (0, 1):
            ahead = sent[which] - sent[1 - which]
            if sent[which] == SHARED or ahead >= LEAD:
                continue
            message = messages[sent[which]]
            # Allow for the message with its headers, and for as much padding at the end of a term.
            after = senders[which].position + 2 * (len(message) + HEADERS)
            if after <= at[1 - which]() + REACH and senders[which].offer(message) > 0:
                sent[which] += 1
                if ahead >= 0:
                    reader.checker.offered(messages[sent[which] - 1])
        reader.poll(world)
        return sent == [SHARED, SHARED] and not reader.checker.outstanding

    until(world, step, "every message to arrive once")
    if len(subscription.images) != 1:
        raise Violation(f"two senders of one stream formed {len(subscription.images)} images, expected 1")
    first = world.rng.randrange(2)
    senders[first].close()
    world.run_for(NS_PER_SECOND)
    if subscription.images[0].is_end_of_stream:
        raise Violation("the stream ended when one of its two senders closed; it must live as long as either")
    return end(world, senders[1 - first], [subscription])


def names(world: World) -> str:
    """Three drivers exchange names through the first. A stream to a name finds it, and the name is resolved again later."""
    first = world.add_host("first", **_named("alpha", "10.0.0.1", ""))
    second = world.add_host("second", **_named("beta", "10.0.0.2", "10.0.0.1:8050"))
    third = world.add_host("third", **_named("gamma", "10.0.0.3", "10.0.0.1:8050"))
    degrade_links(world)
    until(
        world,
        lambda: all(_neighbors(host) == 2 for host in (first, second, third)),
        "every driver to know the other two",
    )
    subscription = third.aeron.add_subscription(endpoint(third), STREAM)
    publication = second.aeron.add_publication("aeron:udp?endpoint=gamma:20121|term-length=64k", STREAM)
    until(world, lambda: publication.is_connected and subscription.is_connected, "the stream to a name to connect")
    deliver(world, publication, readers(world, [subscription]))
    # The neighbor that introduced the two closes. They still resolve each other, and drop its name.
    for other in (second, third):
        world.network.partition(first.address, other.address)
        world.network.partition(other.address, first.address)
    until(world, lambda: _neighbors(second) == 1 and _neighbors(third) == 1, "the other drivers to forget the first")
    return end(world, publication, [subscription])


def moving(world: World) -> str:
    """The receiving host changes its address. The driver resolves the name again, and the stream continues."""
    sender, old, new = (world.add_host(name) for name in ("sender", "old", "new"))
    sender.names["server"] = old.address
    before = old.aeron.add_subscription(endpoint(old), STREAM)
    publication = sender.aeron.add_publication("aeron:udp?endpoint=server:20121|term-length=64k", STREAM)
    connect(world, publication, [before])
    degrade_links(world)
    deliver(world, publication, readers(world, [before]))
    world.network.partition(sender.address, old.address)
    world.network.partition(old.address, sender.address)
    sender.names["server"] = new.address
    after = new.aeron.add_subscription(endpoint(new), STREAM)
    until(world, lambda: after.is_connected and publication.is_connected, "the stream to connect at the new address")
    if not sender.aeron.counters.value(SystemCounter.RESOLUTION_CHANGES):
        raise Violation("the address of a name changed, but the counter of resolution changes is 0")
    deliver(world, publication, [Reader("at the new address", after)])
    return end(world, publication, [after])


def _named(name: str, address: str, bootstrap: str) -> dict[str, Any]:
    resolver: dict[str, Any] = {
        "name_resolver_supplier": "driver",
        "driver_resolver_name": name,
        "driver_resolver_interface": f"{address}:8050",
        "driver_resolver_neighbor_timeout_ns": 4 * NS_PER_SECOND,
        "driver_resolver_bootstrap_neighbor_resolution_interval_ns": 2 * NS_PER_SECOND,
    }
    return resolver | ({"driver_resolver_bootstrap_neighbor": bootstrap} if bootstrap else {})


def _sender_position(host: Host, registration_id: int) -> Callable[[], int]:
    counters = host.aeron.counters
    counter_id = counters.find(CounterType.SENDER_POSITION, registration_id)
    return lambda: counters.value(counter_id)


def _neighbors(host: Host) -> int:
    reader = host.aeron.counters
    return reader.value(next(each for each in reader if reader.type_id(each) == CounterType.RESOLVER_NEIGHBORS))
