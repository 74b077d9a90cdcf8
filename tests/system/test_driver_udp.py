"""UDP unicast and spies through a real driver: every threading mode, loss, and two drivers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.live_driver import exchange, shared_memory, wait_for
from tests.support.ports import free_port

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.errors import RegistrationError

pytestmark = pytest.mark.system

SMALL: dict[str, Any] = {"term_buffer_length": 1 << 18}


@pytest.fixture
def port() -> int:
    """Return an unused port."""
    return free_port()


@pytest.mark.parametrize("mode", ["DEDICATED", "SHARED_NETWORK", "SHARED"])
def test_carries_messages_in_threads_of_this_process(mode: str, port: int) -> None:
    with (
        MediaDriver.launch(threads=True, threading_mode=mode, **SMALL) as driver,
        Aeron.connect(driver.directory) as aeron,
    ):
        exchange(aeron, f"aeron:udp?endpoint=127.0.0.1:{port}", messages=2000)
    assert not shared_memory()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["DEDICATED", "SHARED"])
def test_hundreds_of_idle_streams_on_two_sockets_all_connect(mode: str, port: int) -> None:
    """Together, the streams send more than a socket's buffer holds."""
    channel, streams = f"aeron:udp?endpoint=127.0.0.1:{port}|so-rcvbuf=64k|rcv-wnd=32k", range(300)
    with (
        MediaDriver.launch(threading_mode=mode, term_buffer_length=1 << 16) as driver,
        Aeron.connect(driver.directory) as aeron,
    ):
        subscriptions = [aeron.add_subscription(channel, stream) for stream in streams]
        publications = [aeron.add_publication(channel, stream) for stream in streams]
        wait_for(lambda: all(each.is_connected for each in (*publications, *subscriptions)))


def test_an_mtu_above_half_a_term_is_received(port: int) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    with MediaDriver.launch(threads=True, threading_mode="SHARED") as driver, Aeron.connect(driver.directory) as aeron:
        subscription = aeron.add_subscription(channel, 1001)
        publication = aeron.add_publication(f"{channel}|term-length=64k|mtu=40000", 1001)
        wait_for(lambda: publication.is_connected and subscription.is_connected)
        assert publication.offer(b"across") > 0
        wait_for(lambda: subscription.poll_bytes() == [b"across"])


def test_carries_messages_when_the_caller_drives(port: int) -> None:
    with (
        MediaDriver.launch(threading_mode="INVOKER", **SMALL) as driver,
        Aeron.connect(driver.directory, driver_invoker=driver.do_work) as aeron,
    ):
        exchange(aeron, f"aeron:udp?endpoint=localhost:{port}", messages=1000, invoke=driver.do_work)


def test_carries_messages_between_two_driver_processes(port: int) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    with (
        MediaDriver.launch(**SMALL) as near,
        MediaDriver.launch(**SMALL) as far,
        Aeron.connect(near.directory) as sender,
        Aeron.connect(far.directory) as receiver,
        receiver.add_subscription(channel, 1001) as subscription,
        sender.add_publication(channel, 1001) as publication,
    ):
        wait_for(lambda: publication.is_connected and subscription.is_connected)
        received: list[bytes] = []
        for number in range(500):
            wait_for(lambda number=number: publication.offer(number.to_bytes(4, "big")) > 0)
        wait_for(lambda: (subscription.poll(lambda f: received.append(bytes(f)), 100), len(received) == 500)[1])
        assert received == [number.to_bytes(4, "big") for number in range(500)]


def test_loses_nothing_where_datagrams_are_lost(port: int) -> None:
    loss = {
        "udp_channel_incoming_interceptors": "loss",
        "udp_channel_transport_bindings_loss_args": "rate=0.1|seed=5",
    }
    with MediaDriver.launch(**SMALL, **loss) as driver, Aeron.connect(driver.directory) as aeron:
        exchange(aeron, f"aeron:udp?endpoint=127.0.0.1:{port}", messages=3000)
        assert aeron.counters.value(5) > 0
        assert aeron.counters.value(11) > 0


def test_a_spy_reads_sent_messages(port: int) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    with MediaDriver.launch(**SMALL) as driver, Aeron.connect(driver.directory) as aeron:
        exchange(aeron, f"{channel}|ssc=true", subscription_channel=f"aeron-spy:{channel}", messages=500)


def test_an_image_ends_with_its_publication(port: int) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}|linger=0"
    gone: list[object] = []
    with (
        MediaDriver.launch(**SMALL) as driver,
        Aeron.connect(driver.directory) as aeron,
        aeron.add_subscription(channel, 1001, on_unavailable_image=gone.append) as subscription,
    ):
        with aeron.add_publication(channel, 1001):
            wait_for(lambda: subscription.is_connected)
        wait_for(lambda: gone)
        # The session's socket and log are gone too, and the channel can be used again.
        with aeron.add_publication(channel, 1001):
            wait_for(lambda: subscription.is_connected)


def test_an_address_in_use_is_refused_with_its_reason(port: int) -> None:
    with (
        MediaDriver.launch(**SMALL) as driver,
        MediaDriver.launch(**SMALL) as other,
        Aeron.connect(driver.directory) as aeron,
        Aeron.connect(other.directory) as elsewhere,
    ):
        aeron.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port}", 1)
        with pytest.raises(RegistrationError, match=f"127.0.0.1:{port}"):
            elsewhere.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port}", 1)


def test_a_wildcard_port_is_found_in_its_counter() -> None:
    with MediaDriver.launch(**SMALL) as driver, Aeron.connect(driver.directory) as aeron:
        aeron.add_subscription("aeron:udp?endpoint=127.0.0.1:0", 1)
        labels = [aeron.counters.label(counter_id) for counter_id in aeron.counters]
        address = next(label.split()[-1] for label in labels if label.startswith("rcv-local-sockaddr"))
        assert address.startswith("127.0.0.1:")
        assert not address.endswith(":0")


def test_manual_destinations_carry_one_stream_to_several_receivers(port: int) -> None:
    receivers = [f"aeron:udp?endpoint=127.0.0.1:{port + offset}" for offset in (0, 1)]
    with (
        MediaDriver.launch(**SMALL) as driver,
        Aeron.connect(driver.directory) as aeron,
        aeron.add_publication("aeron:udp?control-mode=manual", 1001) as publication,
    ):
        subscriptions = [aeron.add_subscription(channel, 1001) for channel in receivers]
        for channel in receivers:
            publication.add_destination(channel)
        for subscription in subscriptions:
            wait_for(lambda subscription=subscription: subscription.is_connected)
        wait_for(lambda: publication.offer(b"tide") > 0)
        for subscription in subscriptions:
            received: list[bytes] = []
            wait_for(lambda s=subscription, r=received: s.poll(lambda f: r.append(bytes(f)), 1))
            assert received == [b"tide"]
