"""SETUPs of invented sessions: the most work they can cause in a driver, and service for honest sources."""

from __future__ import annotations

import struct
from contextlib import closing
from typing import Any

import pytest
from tests.support.invoked_driver import InvokedDriver, count
from tests.support.memory_network import Peer

from mainstem._core import layout
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.command import responses
from mainstem.aeron.driver.conductor.agent_message_adapter import IMAGES_PER_CYCLE
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.driver.receiver.image_limiter import MAX_CREATING, MAX_SILENT_OF_SOURCE, ImageLimiter, Refusal
from mainstem.aeron.driver.receiver.receiver import SILENT_CHECK_INTERVAL_NS
from mainstem.aeron.driver.settings import DriverSettings

ADDRESS = InetAddress("127.0.0.1", 20132)
STREAM = 1001
ATTACKER = Peer(InetAddress("127.0.0.66", 4000))
HONEST = Peer(InetAddress("127.0.0.7", 4000))
SESSIONS = 10_000


def setup(session: int) -> bytes:
    return struct.pack("<iBBHiiiiiiii", 40, 0, 0, layout.TYPE_SETUP, 0, session, STREAM, 9, 9, 1 << 16, 1408, 0)


def under_attack(**settings: Any) -> InvokedDriver:
    driver = InvokedDriver(**settings)
    driver.add_subscription(f"aeron:udp?endpoint={ADDRESS}", STREAM)
    return driver


def images_of(driver: InvokedDriver, source: Peer, sessions: range) -> int:
    """Send one SETUP for each session, and return how many images they created."""
    images = 0
    for session in sessions:
        driver.network.send(source, ADDRESS, setup(session))
        if session % 4 == 0:
            images += count(driver.cycle(), responses.OnAvailableImage)
    return images + count(driver.cycle(), responses.OnAvailableImage)


@pytest.mark.parametrize("limit", ["driver_source_image_limit", "driver_image_limit"])
def test_a_flood_of_setups_makes_no_more_images_than_the_limit(limit: str) -> None:
    with closing(under_attack(**{limit: 20})) as driver:
        assert images_of(driver, ATTACKER, range(1, SESSIONS)) == 20
        driver.run(1.5)
        assert driver.counters.value(SystemCounter.ERRORS) == 1


def heartbeat(session: int) -> bytes:
    return struct.pack("<iBBHiiiiq", 0, 0, 0xC0, layout.TYPE_DATA, 0, session, STREAM, 9, 0)


def test_a_flood_of_setups_alone_makes_no_more_silent_images_than_the_limit() -> None:
    with closing(under_attack(counters_buffer_length=4 << 20)) as driver:
        assert images_of(driver, ATTACKER, range(1, 3000)) == MAX_SILENT_OF_SOURCE
        assert images_of(driver, HONEST, range(5000, 5005)) == 5
        driver.run(1.5)
        assert driver.counters.value(SystemCounter.ERRORS) == 1


@pytest.mark.long
def test_live_streams_are_not_a_flood() -> None:
    with closing(under_attack(counters_buffer_length=4 << 20)) as driver:
        images = 0
        for begin in range(1, 3001, 500):
            images += images_of(driver, HONEST, range(begin, begin + 500))
            driver.clock.advance_ns(SILENT_CHECK_INTERVAL_NS)
            for session in range(1, begin + 500):
                driver.network.send(HONEST, ADDRESS, heartbeat(session))
                if session % 4 == 0:
                    driver.cycle()
            driver.cycle()
        assert images == 3000
        assert driver.counters.value(SystemCounter.ERRORS) == 0


def test_a_silent_image_is_counted_until_it_is_heard_or_gone() -> None:
    images = ImageLimiter()
    for session in range(MAX_SILENT_OF_SOURCE):
        images.creating((9, STREAM, session), "192.0.2.1")
        images.created((9, STREAM, session))
    assert images.refusal((9, STREAM, -1), "192.0.2.1") is Refusal.SILENT_OF_SOURCE
    assert images.refusal((9, STREAM, -1), "192.0.2.2") is None
    for forget in (images.heard, images.gone):
        forget((9, STREAM, 5))
        forget((9, STREAM, 5))
        assert images.refusal((9, STREAM, -1), "192.0.2.1") is None
        images.creating((9, STREAM, -2), "192.0.2.1")
        images.created((9, STREAM, -2))
        assert images.refusal((9, STREAM, -1), "192.0.2.1") is Refusal.SILENT_OF_SOURCE
        images.gone((9, STREAM, -2))
        images.creating((9, STREAM, 5), "192.0.2.1")
        images.created((9, STREAM, 5))


def test_the_limits_are_above_what_a_deployment_of_ten_thousand_streams_has() -> None:
    settings = DriverSettings()
    assert min(settings.driver_source_image_limit, settings.driver_image_limit) > 10_000


def test_a_source_at_its_limit_does_not_affect_others() -> None:
    with closing(under_attack(driver_source_image_limit=20)) as driver:
        images_of(driver, ATTACKER, range(1, 1000))
        assert images_of(driver, HONEST, range(5000, 5005)) == 5


def test_images_of_a_flood_are_freed() -> None:
    with closing(under_attack(driver_source_image_limit=20)) as driver:
        counters, free = len(list(driver.counters)), driver.files.free_space("")
        images_of(driver, ATTACKER, range(1, 1000))
        assert len(list(driver.counters)) > counters
        assert driver.files.free_space("") < free
        driver.run(30, step=0.05)
        assert len(list(driver.counters)) == counters
        assert driver.files.free_space("") == free
        assert images_of(driver, ATTACKER, range(1000, 1010)) == 10


def test_a_duty_cycle_creates_a_bounded_number_of_images() -> None:
    with closing(under_attack()) as driver:
        for session in range(1, 1001):
            driver.network.send(ATTACKER, ADDRESS, setup(session))
        made = []
        for _ in range(1000):
            driver.do_work()
            made.append(count(driver.poll(), responses.OnAvailableImage))
        assert max(made) == IMAGES_PER_CYCLE
        assert MAX_CREATING <= sum(made) < 500
        assert images_of(driver, ATTACKER, range(1, 1001)) + sum(made) == 1000
        assert driver.counters.value(SystemCounter.ERRORS) == 0


def limiter() -> ImageLimiter:
    return ImageLimiter(stream_limit=2, source_limit=3, total_limit=4)


def test_the_limiter_names_the_limit_that_was_reached() -> None:
    images = limiter()
    for session in (1, 2):
        assert images.refusal((9, STREAM, session), "192.0.2.1") is None
        images.creating((9, STREAM, session), "192.0.2.1")
    assert images.refusal((9, STREAM, 3), "192.0.2.2") is Refusal.OF_STREAM
    assert images.refusal((8, STREAM, 3), "192.0.2.1") is None
    images.creating((9, 5, 3), "192.0.2.1")
    assert images.refusal((9, 6, 4), "192.0.2.1") is Refusal.OF_SOURCE
    assert images.refusal((9, 6, 4), "192.0.2.2") is None
    images.creating((9, 6, 4), "192.0.2.2")
    assert images.refusal((9, 7, 5), "192.0.2.3") is Refusal.OF_ALL
    images.gone((9, 6, 4))
    images.gone((9, 6, 4))
    assert images.refusal((9, 7, 5), "192.0.2.3") is None
    assert len(images) == 3


def test_a_v6_network_is_one_source() -> None:
    images = limiter()
    for session in range(3):
        images.creating((session, STREAM, session), f"2001:db8::{session + 1}")
    assert images.refusal((7, STREAM, 7), "2001:db8::ffff:1") is Refusal.OF_SOURCE
    assert images.refusal((7, STREAM, 7), "2001:db8:0:1::1") is None


def test_a_repeated_session_counts_once() -> None:
    images = limiter()
    for _ in range(5):
        images.creating((9, STREAM, 1), "192.0.2.1")
    assert len(images) == 1
    images.created((9, STREAM, 1))
    images.gone((9, STREAM, 1))
    assert len(images) == 0


def test_a_repeated_setup_is_not_limited_by_its_own_session() -> None:
    images = ImageLimiter(stream_limit=1, source_limit=1, total_limit=1)
    images.creating((9, STREAM, 1), "192.0.2.1")
    assert images.refusal((9, STREAM, 1), "192.0.2.1") is None
    assert images.refusal((9, STREAM, 2), "192.0.2.1") is Refusal.OF_STREAM
