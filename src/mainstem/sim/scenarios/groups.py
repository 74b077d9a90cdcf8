"""One sender, several receivers: multicast, many destinations, several sockets for one image, groups in flow control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.checkers import Violation
from mainstem.sim.faults import Faults
from mainstem.sim.scenarios.streams import (
    STREAM,
    Reader,
    Writer,
    connect,
    degrade_links,
    deliver,
    end,
    endpoint,
    readers,
    until,
)

if TYPE_CHECKING:
    from mainstem.sim.host import Host
    from mainstem.sim.world import World


# -- two hosts ---------------------------------------------------------------------------------------------------------


MESSAGES = 250  # per stream: enough for several terms of 64 KiB
TERM_LENGTH = 64 * 1024
# The third term's id exceeds the largest 32-bit integer: ids wrap around, positions do not.
LAST_TERMS = "init-term-id=2147483646|term-id=2147483646|term-offset=0"


def add_stream(world: World, sender: Host, receiver: Host, number: int) -> Writer:
    """Add a stream with drawn channel parameters."""
    rng, stream_id = world.rng, STREAM + number
    mtu = rng.choice((256, 1408, 4096))
    channel = endpoint(receiver, 20_121 + number % 2)  # several streams share an endpoint
    subscription = receiver.aeron.add_subscription(channel, stream_id)
    terms = rng.choice(("", "", LAST_TERMS))
    add = rng.choice((sender.aeron.add_publication, sender.aeron.add_exclusive_publication))
    publication = add(f"{channel}|term-length=64k|mtu={mtu}|{terms}".rstrip("|"), stream_id)
    reader = Reader(f"stream {stream_id}", subscription, pause_probability=rng.choice((0.0, 0.5, 0.9)))
    return Writer(publication, [reader], world.scaled(MESSAGES))


def unicast(world: World) -> str:
    """One to three streams. Every message arrives once and in order, and the stream ends when its publication closes."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    # Set the streams up over a good network, then degrade it as the seed determines.
    streams = [add_stream(world, sender, receiver, number) for number in range(world.rng.randrange(1, 4))]
    there, back = Faults.drawn(world.rng), Faults.drawn(world.rng)
    world.network.link(sender.address, receiver.address, there)
    world.network.link(receiver.address, sender.address, back)

    def progress() -> bool:
        for stream in streams:
            stream.offer(world.rng)
            stream.readers[0].poll(world)
        return all(stream.done for stream in streams)

    until(world, progress, "every message to arrive")
    world.run_for(NS_PER_SECOND)
    subscriptions = [stream.readers[0].subscription for stream in streams]
    images = [image for subscription in subscriptions for image in subscription.images]
    for stream in streams:
        # No subscriber is behind, so the whole window is free.
        if stream.publication.available_window != TERM_LENGTH // 2:
            raise Violation(
                f"with every message consumed, the window has {stream.publication.available_window} bytes, "
                f"expected {TERM_LENGTH // 2}"
            )
        stream.publication.close()
    until(world, lambda: not any(each.images for each in subscriptions), "every stream to end")
    if not all(image.is_end_of_stream for image in images):
        raise Violation("a stream ended by a timeout, although its publisher announced the end")
    return (
        f"{len(streams)} streams, {world.network.sent} datagrams sent, {world.network.lost} lost, "
        f"{world.ticks} ticks, there {there}, back {back}"
    )


GROUP = "224.20.30.39:20121"


def multicast(world: World) -> str:
    """Two or three receivers of a multicast group. The slowest sets the pace, and no receiver misses anything."""
    sender = world.add_host("sender")
    hosts = [world.add_host(f"receiver{number}") for number in range(world.rng.randrange(2, 4))]
    channel = f"aeron:udp?endpoint={GROUP}"
    subscriptions = [host.aeron.add_subscription(channel, STREAM) for host in hosts]
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k|fc=min,g:/{len(hosts)},t:30s", STREAM)
    connect(world, publication, subscriptions)
    degrade_links(world)
    deliver(world, publication, readers(world, subscriptions))
    return end(world, publication, subscriptions)


def mdc(world: World) -> str:
    """Destinations that joined dynamically or were added manually. One of the latter is removed halfway."""
    sender = world.add_host("sender")
    hosts = [world.add_host(f"receiver{number}") for number in range(world.rng.randrange(2, 4))]
    control = f"{sender.address}:20120"
    mode = world.rng.choice(("dynamic", "manual"))
    publication = sender.aeron.add_publication(
        f"aeron:udp?control={control}|control-mode={mode}|term-length=64k|fc=min,g:/{len(hosts) - 1},t:5s", STREAM
    )
    subscriptions, destinations = [], []
    for host in hosts:
        channel = endpoint(host)
        subscriptions.append(
            host.aeron.add_subscription(
                channel if mode == "manual" else f"{channel}|control={control}|control-mode=dynamic", STREAM
            )
        )
        if mode == "manual":
            destinations.append(publication.add_destination(channel))
    connect(world, publication, subscriptions)
    degrade_links(world)
    everybody = readers(world, subscriptions)
    deliver(world, publication, everybody)
    if mode == "manual":
        publication.remove_destination(destinations[-1])
    else:
        subscriptions[-1].close()
    deliver(world, publication, everybody[:-1])
    return f"{mode}, {len(hosts)} receivers, " + end(world, publication, subscriptions[:-1])


def mds(world: World) -> str:
    """One image through two sockets: if one path is partitioned, the other continues."""
    sender, receiver = world.add_host("sender"), world.add_host("receiver")
    subscription = receiver.aeron.add_subscription("aeron:udp?control-mode=manual", STREAM)
    publication = sender.aeron.add_publication(
        f"aeron:udp?control={sender.address}:20120|control-mode=manual|term-length=64k", STREAM
    )
    destinations = []
    for port in (20_121, 20_122):
        subscription.add_destination(f"aeron:udp?endpoint={receiver.address}:{port}")
        destinations.append(publication.add_destination(f"aeron:udp?endpoint={receiver.address}:{port}"))
    connect(world, publication, [subscription])
    world.run_until(lambda: subscription.images[0].active_transport_count == 2, what="the image to have two transports")
    degrade_links(world)
    everybody = readers(world, [subscription])
    deliver(world, publication, everybody)
    publication.remove_destination(world.rng.choice(destinations))
    deliver(world, publication, everybody)
    return end(world, publication, [subscription])


def flow_control(world: World) -> str:
    """Receivers that the strategy waits for miss nothing. Other receivers may stop without delaying them."""
    sender, first, second = (world.add_host(name) for name in ("sender", "waited-for", "other"))
    control = f"{sender.address}:20120"
    strategy = world.rng.choice(("tagged", "min", "max"))
    waits = {"tagged": "fc=tagged,g:7/1,t:30s", "min": "fc=min,g:/2,t:2s", "max": "fc=max"}[strategy]

    def channel(address: str) -> str:
        return f"aeron:udp?endpoint={address}:20121|control={control}|control-mode=dynamic"

    expected = first.aeron.add_subscription(f"{channel(first.address)}|gtag=7", STREAM)
    other = second.aeron.add_subscription(channel(second.address), STREAM)
    publication = sender.aeron.add_publication(
        f"aeron:udp?control={control}|control-mode=dynamic|term-length=64k|{waits}", STREAM
    )
    connect(world, publication, [expected, other])
    if strategy != "max":
        # The max strategy follows the fastest receiver, so a receiver that loses datagrams could be left behind for good.
        degrade_links(world)
    expected_reader = Reader(f"{strategy}: the one waited for", expected)
    if strategy == "min":
        deliver(world, publication, [expected_reader, Reader("min: the other", other)])
        # The sender forgets a member that is gone, but the group is then too small for the sender to continue.
        other.close()
        until(world, lambda: not publication.is_connected, "the publisher to disconnect from a group that is too small")
        other = second.aeron.add_subscription(channel(second.address), STREAM)
        until(world, lambda: publication.is_connected and other.is_connected, "the group to be complete again")
        world.run_for(NS_PER_SECOND)
        deliver(world, publication, [expected_reader, Reader("min: the other, back again", other)])
        return f"{strategy}, " + end(world, publication, [expected, other])
    deliver(world, publication, [expected_reader])
    return f"{strategy}, " + end(world, publication, [expected])
