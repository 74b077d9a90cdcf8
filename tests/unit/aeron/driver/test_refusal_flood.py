"""Texts chosen by peers fill neither the error log nor the to-clients buffer, however ids, ports and texts vary."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.support.invoked_driver import InvokedDriver, count, only
from tests.support.memory_network import Peer

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.command import responses
from mainstem.aeron.driver.conductor.publication_errors import MAX_RESPONSE_LENGTH, SOURCE_BURST
from mainstem.aeron.driver.errors import MAX_SOURCES
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.driver.network_agent import MAX_REPORTS
from mainstem.aeron.error_log import read_errors
from mainstem.aeron.protocol.frames import ErrorFrame, Setup, StatusMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstem._core.memory.buffer import AtomicBuffer

CONTROL = InetAddress("127.0.0.1", 20140)
STREAM = 1001
PAIRS = 200


class Stream:
    """A publication with a dynamic control port, and receivers that refuse it."""

    def __init__(self, driver: InvokedDriver, stream_id: int = STREAM) -> None:
        self.driver = driver
        channel = f"aeron:udp?control={CONTROL}|control-mode=dynamic"
        self.ready = only(driver.add_publication(channel, stream_id), responses.OnPublicationReady)
        self.initial_term_id = driver.log(self.ready.log_file).initial_term_id

    def refuse(self, source: Peer, receiver_id: int, text: str = "no") -> int:
        """Report and refuse as a receiver does; return how many responses clients got."""
        ids = {"session_id": self.ready.session_id, "stream_id": self.ready.stream_id, "receiver_id": receiver_id}
        status = StatusMessage(**ids, consumption_term_id=self.initial_term_id, receiver_window=4096)
        error = ErrorFrame(**ids, error_code=13, text=text)
        for frame in (status, error):
            self.driver.network.send(source, CONTROL, frame.encode())
            self.driver.network.step()
        return count(self.driver.cycle(), responses.OnPublicationError)

    def refuse_all(self, sources: Iterable[Peer], first: int = 1000) -> int:
        return sum(self.refuse(source, first + number, f"{number} " * 200) for number, source in enumerate(sources))


@pytest.fixture
def driver() -> Iterator[InvokedDriver]:
    with closing(InvokedDriver(error_buffer_length=2 << 20)) as driver:
        yield driver


def error_log(driver: InvokedDriver) -> AtomicBuffer:
    return driver.cnc.error_log


def of_ports(number: int) -> Iterator[Peer]:
    return (Peer(InetAddress("127.0.0.66", 1024 + port)) for port in range(number))


def of_addresses(number: int) -> Iterator[Peer]:
    return (Peer(InetAddress(f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}", 4000)) for n in range(number))


def test_one_source_is_one_entry_and_a_few_responses_whatever_ports_ids_and_texts_it_uses(
    driver: InvokedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(driver)
    with caplog.at_level(logging.INFO):
        told = stream.refuse_all(of_ports(PAIRS))
    assert told == SOURCE_BURST
    (entry,) = read_errors(error_log(driver))
    assert "127.0.0.66/32" in entry.text
    assert entry.text.startswith("(-13) image rejected: receiver 1000 at 127.0.0.66:1024 refused session")
    assert entry.observation_count == PAIRS
    assert driver.counters.value(SystemCounter.ERROR_FRAMES_RECEIVED) == PAIRS
    assert len(caplog.records) == 1


def test_another_source_and_another_stream_still_reach_their_clients(driver: InvokedDriver) -> None:
    stream, other = Stream(driver), Stream(driver, STREAM + 1)
    stream.refuse_all(of_ports(100))
    assert stream.refuse(Peer(InetAddress("127.0.0.7", 4000)), 5, "honest") == 1
    assert other.refuse(Peer(InetAddress("127.0.0.66", 4000)), 6, "honest") == 1


def test_responses_arrive_again_after_a_while(driver: InvokedDriver) -> None:
    stream = Stream(driver)
    stream.refuse_all(of_ports(100))
    driver.clock.advance_ns(1_100_000_000)
    assert stream.refuse_all(of_ports(100), 5000) == 1


def test_all_sources_together_take_a_part_of_the_buffer_and_of_the_log(driver: InvokedDriver) -> None:
    stream = Stream(driver)
    told = stream.refuse_all(of_addresses(PAIRS))
    assert told == driver.core.context.settings.clients_buffer_length // 4 // MAX_RESPONSE_LENGTH
    entries = read_errors(error_log(driver))
    assert len(entries) == MAX_SOURCES + 1
    assert "any other source" in entries[-1].text
    assert entries[-1].observation_count == PAIRS - MAX_SOURCES


def test_a_conductor_that_is_behind_gets_no_more_reports(driver: InvokedDriver) -> None:
    stream = Stream(driver)
    sender, queue = driver.core.sender, driver.core.to_conductor
    for number in range(2 * MAX_REPORTS):
        ids = {"session_id": stream.ready.session_id, "stream_id": STREAM, "receiver_id": number}
        status = StatusMessage(**ids, consumption_term_id=stream.initial_term_id, receiver_window=4096)
        for frame in (status, ErrorFrame(**ids, error_code=13, text="no")):
            driver.network.send(Peer(InetAddress("127.0.0.66", 4000)), CONTROL, frame.encode())
            driver.network.step()
            sender.cycle.run_cycle(driver.clock.monotonic_ns())
            sender.decide(driver.clock.monotonic_ns())
    assert driver.counters.value(SystemCounter.ERROR_FRAMES_RECEIVED) == 2 * MAX_REPORTS
    assert len(queue) == MAX_REPORTS


def test_status_messages_with_any_options_are_one_entry(driver: InvokedDriver) -> None:
    stream = Stream(driver)
    for number in range(200):
        status = StatusMessage(
            session_id=stream.ready.session_id,
            stream_id=STREAM,
            receiver_id=number,
            consumption_term_id=stream.initial_term_id,
            receiver_window=4096,
        )
        frame = bytearray(status.encode() + bytes(4 * (number + 3)))
        frame[0:4] = len(frame).to_bytes(4, "little")
        driver.network.send(Peer(InetAddress("127.0.0.66", 4000)), CONTROL, bytes(frame))
        driver.network.step()
        driver.cycle()
    (entry,) = read_errors(error_log(driver))
    assert "bytes of options" in entry.text
    assert entry.observation_count == 200


def test_setups_that_no_image_can_be_made_for_are_one_entry(driver: InvokedDriver) -> None:
    address = InetAddress("127.0.0.1", 20132)
    driver.add_subscription(f"aeron:udp?endpoint={address}|rcv-wnd=2k", STREAM)
    attacker = Peer(InetAddress("127.0.0.66", 4000))
    for session in range(300):
        setup = Setup(
            session_id=session,
            stream_id=STREAM,
            initial_term_id=0,
            active_term_id=0,
            term_offset=0,
            term_length=1 << 16,
            mtu=4096 + 32 * session,
        )
        driver.network.send(attacker, address, setup.encode())
        driver.network.step()
        driver.cycle()
    (entry,) = read_errors(error_log(driver))
    assert "no image was created for a SETUP from 127.0.0.66:4000" in entry.text
    assert entry.observation_count == 300


def test_commands_of_a_client_leave_room_for_other_errors(driver: InvokedDriver) -> None:
    log = error_log(driver)
    for number in range(700):
        driver.add_publication(f"aeron:udp?endpoint=127.0.0.1:{20000 + number}|mtu=7|alias={'x' * 3000}", STREAM)
    used = sum(len(entry.text) + 24 for entry in read_errors(log))
    assert used <= log.capacity * 3 // 4 + 4096
    further = read_errors(log)[-1]
    assert "further errors" in further.text
    assert further.observation_count > 50
    Stream(driver).refuse(Peer(InetAddress("127.0.0.7", 4000)), 5, "honest")
    assert "127.0.0.7:4000 refused" in read_errors(log)[-1].text
