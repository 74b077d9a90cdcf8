"""The endpoint filter: refused streams get no image and no response, and are counted."""

from __future__ import annotations

import struct
from contextlib import closing

import pytest
from tests.support.invoked_driver import InvokedDriver, count

from mainstem._core import layout
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.command import responses
from mainstem.aeron.driver.media.addresses import InetAddress

ADDRESS = InetAddress("127.0.0.1", 20131)
STREAM = 1001


def setup(session: int, *, term_length: int = 1 << 16) -> bytes:
    return struct.pack("<iBBHiiiiiiii", 40, 0, 0, layout.TYPE_SETUP, 0, session, STREAM, 9, 9, term_length, 1408, 0)


def heartbeat(session: int) -> bytes:
    return struct.pack("<iBBHiiiiq", 0, 0, 0xC0, layout.TYPE_DATA, 0, session, STREAM, 9, 0)


def refusals(driver: InvokedDriver) -> int:
    return driver.counters.value(SystemCounter.ENDPOINT_FILTER_REFUSALS)


def images(driver: InvokedDriver, *datagrams: bytes) -> tuple[int, int]:
    """Return how many images the datagrams created, and how many datagrams came back."""
    driver.add_subscription(f"aeron:udp?endpoint={ADDRESS}", STREAM)
    peer = driver.network.peer(30_001)
    found: list[responses.Response] = []
    for datagram in datagrams:
        driver.network.send(peer, ADDRESS, datagram)
        found += driver.cycle()
    return count(found, responses.OnAvailableImage), len(peer.take())


@pytest.mark.parametrize(
    "setting", [{"endpoint_filter_deny": "127.0.0.0/8"}, {"endpoint_filter_allow": "192.0.2.0/24"}]
)
def test_a_stream_from_a_refused_network_gets_no_image_and_no_response(setting: dict[str, str]) -> None:
    with closing(InvokedDriver(**setting)) as driver:
        assert images(driver, heartbeat(1), setup(1), setup(1)) == (0, 0)
        assert refusals(driver) == 3


def test_data_of_a_rejected_stream_is_checked_again_only_periodically() -> None:
    with closing(InvokedDriver(endpoint_filter_deny="127.0.0.0/8")) as driver:
        assert images(driver, *[heartbeat(1)] * 20) == (0, 0)
        assert refusals(driver) == 1


def test_a_stream_from_an_allowed_network_has_its_image() -> None:
    with closing(InvokedDriver(endpoint_filter_allow="127.0.0.0/8")) as driver:
        made, answers = images(driver, setup(1))
        assert made == 1
        assert answers > 0
        assert refusals(driver) == 0


def test_an_address_starts_streams_only_at_its_rate() -> None:
    with closing(InvokedDriver(endpoint_filter_rate=1, endpoint_filter_burst=2)) as driver:
        assert images(driver, *(setup(session) for session in range(1, 6)))[0] == 2
        assert refusals(driver) == 3
        driver.run(1.5)
        driver.network.send(driver.network.peer(30_001), ADDRESS, setup(5))
        assert count(driver.cycle(), responses.OnAvailableImage) == 1


def test_a_refused_sender_of_an_image_is_counted_and_not_connected() -> None:
    with closing(InvokedDriver(endpoint_filter_deny="127.9.0.0/16")) as driver:
        assert images(driver, setup(1))[0] == 1
        assert refusals(driver) == 0
        stranger = driver.network.peer(30_002, "127.9.0.1")
        for _ in range(2):  # in one cycle, so the sender is checked once
            driver.network.send(stranger, ADDRESS, heartbeat(1))
        driver.cycle()
        assert refusals(driver) == 1
        driver.network.send(stranger, ADDRESS, setup(1))
        driver.cycle()
        assert refusals(driver) == 2
        driver.run(1.0)
        assert driver.network.peer(30_001).take()
        assert stranger.take() == []


def test_a_term_above_the_limit_is_refused() -> None:
    with closing(InvokedDriver(endpoint_filter_max_term_length=1 << 16)) as driver:
        assert images(driver, setup(1, term_length=1 << 17), setup(2))[0] == 1
        assert refusals(driver) == 1
