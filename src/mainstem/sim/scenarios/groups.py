"""One sender, several receivers: multicast, many destinations, several sockets for one image, groups in flow control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.sim.scenarios.fan import Reader, connect, deliver, end, readers, spoil

if TYPE_CHECKING:
    from mainstem.sim.world import World

GROUP = "224.20.30.39:20121"
STREAM = 1001


def multicast(world: World) -> str:
    """Two or three receivers of a multicast group; the slowest rules, and nobody misses anything."""
    sender = world.add_host("sender")
    hosts = [world.add_host(f"receiver{number}") for number in range(world.chance.randrange(2, 4))]
    channel = f"aeron:udp?endpoint={GROUP}"
    subscriptions = [host.aeron.add_subscription(channel, STREAM) for host in hosts]
    publication = sender.aeron.add_publication(f"{channel}|term-length=64k|fc=min,g:/{len(hosts)},t:30s", STREAM)
    connect(world, publication, subscriptions)
    spoil(world)
    deliver(world, publication, readers(world, subscriptions))
    return end(world, publication, subscriptions)


def mdc(world: World) -> str:
    """Destinations that joined by themselves, or were added by hand; one of the latter goes half way."""
    sender = world.add_host("sender")
    hosts = [world.add_host(f"receiver{number}") for number in range(world.chance.randrange(2, 4))]
    control = f"{sender.address}:20120"
    mode = world.chance.choice(("dynamic", "manual"))
    publication = sender.aeron.add_publication(
        f"aeron:udp?control={control}|control-mode={mode}|term-length=64k|fc=min,g:/{len(hosts) - 1},t:5s", STREAM
    )
    subscriptions, destinations = [], []
    for host in hosts:
        channel = f"aeron:udp?endpoint={host.address}:20121"
        subscriptions.append(
            host.aeron.add_subscription(
                channel if mode == "manual" else f"{channel}|control={control}|control-mode=dynamic", STREAM
            )
        )
        if mode == "manual":
            destinations.append(publication.add_destination(channel))
    connect(world, publication, subscriptions)
    spoil(world)
    everybody = readers(world, subscriptions)
    deliver(world, publication, everybody)
    if mode == "manual":
        publication.remove_destination(destinations[-1])
    else:
        subscriptions[-1].close()
    deliver(world, publication, everybody[:-1])
    return f"{mode}, {len(hosts)} receivers, " + end(world, publication, subscriptions[:-1])


def mds(world: World) -> str:
    """One image through two sockets: when one way is cut, the other carries on."""
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
    world.run_until(lambda: subscription.images[0].active_transport_count == 2, what="two ways to the image")
    spoil(world)
    everybody = readers(world, [subscription])
    deliver(world, publication, everybody)
    publication.remove_destination(world.chance.choice(destinations))
    deliver(world, publication, everybody)
    return end(world, publication, [subscription])


def flow_control(world: World) -> str:
    """Tagged receivers are waited for; one without the tag may sleep and holds nobody up."""
    sender, first, second = (world.add_host(name) for name in ("sender", "tagged", "untagged"))
    control = f"{sender.address}:20120"

    def channel(address: str) -> str:
        return f"aeron:udp?endpoint={address}:20121|control={control}|control-mode=dynamic"

    tagged = first.aeron.add_subscription(f"{channel(first.address)}|gtag=7", STREAM)
    untagged = second.aeron.add_subscription(channel(second.address), STREAM)
    publication = sender.aeron.add_publication(
        f"aeron:udp?control={control}|control-mode=dynamic|term-length=64k|fc=tagged,g:7/1,t:30s", STREAM
    )
    connect(world, publication, [tagged, untagged])
    spoil(world)
    deliver(world, publication, [Reader("tagged", tagged)])
    return end(world, publication, [tagged])
