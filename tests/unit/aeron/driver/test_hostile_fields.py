"""Frames with arbitrary fields in a running session are counted or dropped, and the driver keeps running."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.invoked_driver import InvokedDriver, only

from mainstem._core import layout
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.command import responses
from mainstem.aeron.counters import CounterType
from mainstem.aeron.driver.media.addresses import InetAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.memory_network import MemoryNetwork

SENDER, RECEIVED = 20_141, InetAddress("127.0.0.1", 20_142)
STREAM, SESSION, TERM, TERM_LENGTH = 1001, 77, 9, 1 << 16

EDGES = [0, 1, -1, 31, 32, -32, 64, TERM_LENGTH - 32, TERM_LENGTH, 1408, (1 << 31) - 1, -(1 << 31), TERM, TERM - 1]
int32 = st.sampled_from(EDGES) | st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.sampled_from([0, 1, -1, (1 << 63) - 1, -(1 << 63)]) | st.integers(-(1 << 63), (1 << 63) - 1)
length = st.none() | int32
flags = st.integers(0, 255)


def framed(kind: int, body: bytes, declared: int | None, flag: int) -> bytes:
    return struct.pack("<iBBH", len(body) + 8 if declared is None else declared, 0, flag, kind) + body


@st.composite
def control_frames(draw: st.DrawFn, session: int, stream: int = STREAM) -> bytes:
    """Draw a frame that a receiver sends."""
    own = struct.pack("<ii", session, stream)
    kind = draw(
        st.sampled_from([layout.TYPE_SM, layout.TYPE_NAK, layout.TYPE_ERR, layout.TYPE_RTTM, layout.TYPE_RSP_SETUP])
    )
    if kind == layout.TYPE_SM:
        body = own + struct.pack("<iiiq", draw(int32), draw(int32), draw(int32), draw(int64))
        body += draw(st.sampled_from([b"", bytes(4), struct.pack("<q", draw(int64))]))
    elif kind == layout.TYPE_NAK:
        body = own + struct.pack("<iii", draw(int32), draw(int32), draw(int32))
    elif kind == layout.TYPE_ERR:
        body = (
            own
            + struct.pack("<qqii", draw(int64), draw(int64), draw(int32), draw(int32))
            + draw(st.binary(max_size=40))
        )
    elif kind == layout.TYPE_RTTM:
        body = own + struct.pack("<qqq", draw(int64), draw(int64), draw(int64))
    else:
        body = own + struct.pack("<i", draw(int32))
    return framed(kind, body, draw(length), draw(flags))


@st.composite
def stream_frames(draw: st.DrawFn, session: int = SESSION, stream: int = STREAM) -> bytes:
    """Draw a frame that a sender sends."""
    kind = draw(st.sampled_from([layout.TYPE_DATA, layout.TYPE_PAD, layout.TYPE_SETUP, layout.TYPE_RTTM]))
    if kind == layout.TYPE_SETUP:
        fields = [draw(int32), draw(st.sampled_from([session, session + 1])), stream, *[draw(int32) for _ in range(5)]]
        return framed(kind, struct.pack("<8i", *fields), draw(length), draw(flags))
    if kind == layout.TYPE_RTTM:
        body = struct.pack("<iiqqq", session, stream, draw(int64), draw(int64), draw(st.sampled_from([0, 1, -1])))
        return framed(kind, body, draw(length), draw(flags))
    body = struct.pack("<iiiiq", draw(int32), session, stream, draw(int32), draw(int64))
    return framed(kind, body + bytes(32 * draw(st.integers(0, 3))), draw(length), draw(flags))


@pytest.fixture(scope="module")
def driver() -> Iterator[InvokedDriver]:
    made = InvokedDriver(
        one_way_latency_interval_ns=10_000_000,
        cubiccongestioncontrol_measurertt=True,
        congestioncontrol_supplier="cubic",
    )
    yield made
    made.close()


def errors(driver: InvokedDriver) -> int:
    return driver.counters.value(SystemCounter.ERRORS)


@pytest.fixture(scope="module")
def publication(driver: InvokedDriver) -> responses.OnPublicationReady:
    found = driver.add_publication(f"aeron:udp?control=127.0.0.1:{SENDER}|control-mode=dynamic|fc=min", STREAM)
    return only(found, responses.OnPublicationReady)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_sender_takes_any_control_frame(
    driver: InvokedDriver, publication: responses.OnPublicationReady, data: Any
) -> None:
    datagram = data.draw(control_frames(publication.session_id))
    before = errors(driver)
    driver.network.send(driver.network.peer(30_001), InetAddress("127.0.0.1", SENDER), datagram)
    driver.run(0.02, step=0.01)
    assert driver.core.conductor.is_termination_requested is False
    assert errors(driver) - before <= 1  # a refusal is reported as an error, and nothing fails
    position = driver.counters.value(driver.counters.find(CounterType.SENDER_POSITION, publication.correlation_id))
    assert position == 0


def stream(driver: InvokedDriver) -> MemoryNetwork:
    """Return the network once a stream reaches the receiver."""
    peer = driver.network.peer(30_002)
    if not any("rcv-hwm" in label for label in driver.labels().values()):
        driver.add_subscription(f"aeron:udp?endpoint={RECEIVED}", STREAM)
        setup = struct.pack("<8i", 0, SESSION, STREAM, TERM, TERM, TERM_LENGTH, 1408, 0)
        driver.network.send(peer, RECEIVED, framed(layout.TYPE_SETUP, setup, None, 0))
        driver.cycle()
    return driver.network


@pytest.mark.parametrize("echo_ns", [-(1 << 63), (1 << 63) - 1])
def test_a_receiver_counts_an_invalid_timestamp(driver: InvokedDriver, echo_ns: int) -> None:
    network, before = stream(driver), driver.counters.value(SystemCounter.INVALID_PACKETS)
    body = struct.pack("<iiqqq", SESSION, STREAM, echo_ns, 0, 0)
    network.send(driver.network.peer(30_002), RECEIVED, framed(layout.TYPE_RTTM, body, None, 0))
    driver.cycle()
    assert driver.counters.value(SystemCounter.INVALID_PACKETS) == before + 1


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_receiver_takes_any_frame_of_a_stream(driver: InvokedDriver, data: Any) -> None:
    stream(driver).send(driver.network.peer(30_002), RECEIVED, data.draw(stream_frames()))
    driver.run(0.02, step=0.01)
    for counter_id in driver.counters:
        if driver.counters.type_id(counter_id) in (CounterType.RECEIVER_HIGH_WATER_MARK, CounterType.RECEIVER_POSITION):
            assert driver.counters.value(counter_id) >= 0
