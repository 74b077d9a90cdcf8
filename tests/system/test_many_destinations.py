"""Channels with more destinations than a fixed-size table would hold."""

from __future__ import annotations

import pytest
from tests.support.invoked_pair import Hosts
from tests.support.ports import free_port

from mainstem.aeron.counters import CounterType

pytestmark = pytest.mark.system

STREAM = 1001


def test_every_destination_of_a_subscription_receives() -> None:
    with Hosts() as hosts:
        subscription = hosts.far.add_subscription("aeron:udp?control-mode=manual", STREAM)
        first = free_port(24)
        channels = [f"aeron:udp?endpoint=127.0.0.1:{port}" for port in range(first, first + 24)]
        for channel in channels:
            subscription.add_destination(channel)
        publications = [hosts.near.add_exclusive_publication(channel, STREAM) for channel in channels]
        hosts.until(lambda: all(each.is_connected for each in publications))
        hosts.until(lambda: len(subscription.images) == 24)
        sent = {f"from {number}".encode() for number, each in enumerate(publications)}
        received: set[bytes] = set()
        for message, publication in zip(sorted(sent), publications, strict=True):
            hosts.until(lambda message=message, publication=publication: publication.offer(message) > 0)
        hosts.until(
            lambda: (
                subscription.poll_messages(lambda fragment: received.add(bytes(fragment)), 10) >= 0 and received == sent
            ),
            progress=lambda: len(received),
        )


def test_an_image_has_a_connection_through_every_destination() -> None:
    with Hosts() as hosts:
        subscription = hosts.far.add_subscription("aeron:udp?control-mode=manual", STREAM)
        control = free_port()
        publication = hosts.near.add_exclusive_publication(
            f"aeron:udp?control=127.0.0.1:{control}|control-mode=manual", STREAM
        )
        first = free_port(24)
        for port in range(first, first + 24):
            subscription.add_destination(f"aeron:udp?endpoint=127.0.0.1:{port}")
            publication.add_destination(f"aeron:udp?endpoint=127.0.0.1:{port}")
        hosts.until(lambda: len(subscription.images) == 1)
        hosts.until(lambda: subscription.images[0].active_transport_count == 24)
        hosts.deliver(publication, [subscription], messages=20)


@pytest.mark.parametrize("mode", ["manual", pytest.param("dynamic", marks=pytest.mark.long)])
def test_every_destination_of_a_publication_is_served(mode: str) -> None:
    with Hosts() as hosts:
        control = f"control=127.0.0.1:{free_port()}"
        publication = hosts.near.add_exclusive_publication(f"aeron:udp?{control}|control-mode={mode}|fc=min", STREAM)
        subscriptions = []
        port = free_port(1)
        for number in range(300):
            endpoint = f"endpoint=127.1.{number // 250}.{number % 250 + 1}:{port}"
            source = f"|{control}|control-mode=dynamic" if mode == "dynamic" else ""
            subscriptions.append(hosts.far.add_subscription(f"aeron:udp?{endpoint}{source}", STREAM))
            if mode == "manual":
                publication.add_destination(f"aeron:udp?{endpoint}")
        hosts.until(
            lambda: all(each.is_connected for each in subscriptions),
            progress=lambda: sum(each.is_connected for each in subscriptions),
        )
        counters = hosts.near.counters
        receivers = counters.find(CounterType.FLOW_CONTROL_RECEIVERS, publication.registration_id)
        hosts.until(lambda: counters.value(receivers) == 300, progress=lambda: counters.value(receivers))
        hosts.deliver(publication, subscriptions, messages=5)


def test_destinations_of_short_lived_publications_leave_room_for_more() -> None:
    with Hosts() as hosts:
        channel = f"aeron:udp?control=127.0.0.1:{free_port()}|control-mode=manual"
        publication = hosts.near.add_exclusive_publication(channel, STREAM)
        port = free_port()
        subscription = hosts.far.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port}", STREAM)
        for _ in range(10):
            with hosts.near.add_exclusive_publication(channel, STREAM + 1) as other:
                for _ in range(30):
                    other.add_destination(f"aeron:udp?endpoint=127.0.0.1:{port + 1}")
        publication.add_destination(f"aeron:udp?endpoint=127.0.0.1:{port}")
        hosts.until(lambda: publication.is_connected and subscription.is_connected)
        hosts.deliver(publication, [subscription], messages=20)
