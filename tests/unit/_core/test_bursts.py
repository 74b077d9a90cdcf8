"""Frames due on many streams at once leave over several cycles, because a socket's buffer cannot hold them all."""

from __future__ import annotations

import pytest
from tests.unit._core.network import (
    HIGH_WATER_MARK,
    INITIAL_TERM_ID,
    PRESSURE,
    PUBLISHER_LIMIT,
    PUBLISHER_POSITION,
    RECEIVER_POSITION,
    SENDER_ADDRESS,
    SENDER_LIMIT,
    SENDER_POSITION,
    SESSION_ID,
    STREAM_ID,
    SUBSCRIBER,
    Pair,
    modules,
)  # fmt: skip

from mainstem._core.system_counter import SystemCounter

STREAMS, MOST = 100, 64
LATER_NS = 1_000_000_000


@pytest.fixture(params=[True, False], ids=["compiled", "uncompiled"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(modules(compiled=request.param))


def test_heartbeats_of_many_streams_leave_64_a_cycle(pair: Pair) -> None:
    pair.connect()
    for number in range(1, STREAMS):
        path = pair.core.send_path.SendPath(
            pair.out_log, pair.counters, SESSION_ID + number, STREAM_ID, INITIAL_TERM_ID, pair.term_length, pair.mtu,
            pair.term_length // 2, PUBLISHER_LIMIT, PUBLISHER_POSITION, SENDER_POSITION, SENDER_LIMIT, PRESSURE, now_ns=pair.now_ns,
        )  # fmt: skip
        path.key = 1 + number
        pair.sender.add_path(path, pair.send_endpoint)
        path.add_receiver(99, pair.window, pair.now_ns)
    counts = []
    for number in range(3):
        pair.sender.run_cycle(pair.now_ns + LATER_NS + number)
        counts.append(pair.value(SystemCounter.HEARTBEATS_SENT))
    assert counts == [MOST, STREAMS, STREAMS]


def test_status_messages_of_many_quiet_images_leave_64_a_cycle(pair: Pair) -> None:
    for number in range(1, STREAMS):
        path = pair.core.receive_path.ReceivePath(
            pair.in_log, pair.counters, SESSION_ID + number, STREAM_ID, INITIAL_TERM_ID, pair.term_length, pair.mtu, 0,
            pair.window, 99, HIGH_WATER_MARK, RECEIVER_POSITION, now_ns=pair.now_ns,
        )  # fmt: skip
        path.key = 1 + number
        pair.receiver.add_path(path, pair.receive_endpoint)
        path.subscribers.add(SUBSCRIBER)
        address = pair.core.datagram.Address(SENDER_ADDRESS)
        path.add_connection(pair.receiver_transport, pair.index, address, None, pair.now_ns)
    counts = []
    for number in range(3):
        pair.receiver.run_cycle(pair.now_ns + number)
        counts.append(pair.value(SystemCounter.STATUS_MESSAGES_SENT))
    assert counts == [MOST, STREAMS, STREAMS]
