"""Interest in streams and sessions."""

from __future__ import annotations

import pytest

from mainstem._core.driver.receive_path import ReceiveEndpointCore
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.driver.receiver.data_packet_dispatcher import (
    MAX_COOL_DOWNS,
    MAX_SESSIONS,
    DataPacketDispatcher,
    SessionState,
)

SECOND = 1_000_000_000
STREAM, SESSION = 10, 77


@pytest.fixture
def dispatcher() -> DataPacketDispatcher:
    made = DataPacketDispatcher(ReceiveEndpointCore(AtomicBuffer(bytearray(128 * 64))))
    made.add_subscription(STREAM, None)
    return made


def test_requests_a_setup_once_a_second_until_it_arrives(dispatcher: DataPacketDispatcher) -> None:
    assert dispatcher.on_unknown(STREAM, SESSION, 0)
    assert dispatcher.state(STREAM, SESSION) is SessionState.PENDING_SETUP
    assert not dispatcher.on_unknown(STREAM, SESSION, SECOND - 1)
    assert dispatcher.on_unknown(STREAM, SESSION, SECOND)
    assert dispatcher.on_setup(STREAM, SESSION, SECOND + 1)
    assert dispatcher.state(STREAM, SESSION) is SessionState.INIT_IN_PROGRESS
    assert not dispatcher.on_setup(STREAM, SESSION, SECOND + 2)
    assert not dispatcher.on_unknown(STREAM, SESSION, SECOND + 2)


def test_a_pending_setup_is_forgotten_after_a_second(dispatcher: DataPacketDispatcher) -> None:
    dispatcher.on_unknown(STREAM, SESSION, 0)
    dispatcher.on_time(SECOND - 1)
    assert dispatcher.state(STREAM, SESSION) is not None
    dispatcher.on_time(SECOND)
    assert dispatcher.state(STREAM, SESSION) is None


def test_a_session_that_cools_down_is_not_welcome_until_the_time_is_over(dispatcher: DataPacketDispatcher) -> None:
    dispatcher.cool_down(STREAM, SESSION, SECOND)
    assert not dispatcher.on_setup(STREAM, SESSION, SECOND - 1)
    assert not dispatcher.on_unknown(STREAM, SESSION, SECOND - 1)
    assert dispatcher.on_setup(STREAM, SESSION, SECOND)


def test_a_subscription_to_one_session_ignores_others(dispatcher: DataPacketDispatcher) -> None:
    dispatcher.add_subscription(11, SESSION)
    assert dispatcher.has_subscription(11, SESSION)
    assert not dispatcher.on_unknown(11, 78, 0)
    assert dispatcher.state(11, 78) is SessionState.NO_INTEREST
    assert not dispatcher.on_setup(11, 78, 1 << 60)
    dispatcher.add_subscription(11, 78)
    assert dispatcher.on_setup(11, 78, 1)


def test_a_stream_without_subscription_is_forgotten_with_its_sessions(dispatcher: DataPacketDispatcher) -> None:
    dispatcher.on_unknown(STREAM, SESSION, 0)
    dispatcher.add_subscription(STREAM, SESSION)
    dispatcher.remove_subscription(STREAM, None)
    assert dispatcher.has_subscription(STREAM, SESSION)
    assert not dispatcher.has_subscription(STREAM, 78)
    dispatcher.remove_subscription(STREAM, SESSION)
    assert not dispatcher.has_interest
    assert dispatcher.state(STREAM, SESSION) is None
    dispatcher.remove_subscription(STREAM, SESSION)


def test_a_refused_image_may_be_requested_again(dispatcher: DataPacketDispatcher) -> None:
    assert dispatcher.on_setup(STREAM, SESSION, 0)
    dispatcher.forget(STREAM, SESSION)
    assert dispatcher.on_setup(STREAM, SESSION, 1)


def test_a_flood_of_sessions_does_not_grow_memory(dispatcher: DataPacketDispatcher) -> None:
    for session in range(3 * MAX_SESSIONS):
        dispatcher.on_unknown(STREAM, session, 0)
    remembered = sum(dispatcher.state(STREAM, session) is not None for session in range(3 * MAX_SESSIONS))
    assert remembered == MAX_SESSIONS


def test_an_image_is_created_once_during_many_cool_downs(dispatcher: DataPacketDispatcher) -> None:
    for session in range(MAX_SESSIONS):
        dispatcher.cool_down(STREAM, session, 10 * SECOND)
    assert dispatcher.on_setup(STREAM, -1, 0)
    assert not dispatcher.on_setup(STREAM, -1, 1)


def test_a_flood_of_sessions_does_not_end_cool_downs(dispatcher: DataPacketDispatcher) -> None:
    for session in range(MAX_COOL_DOWNS):
        dispatcher.cool_down(STREAM, session, 10 * SECOND)
    for session in range(MAX_COOL_DOWNS, MAX_COOL_DOWNS + MAX_SESSIONS + 10):
        assert dispatcher.on_unknown(STREAM, session, 0)
        assert not dispatcher.on_unknown(STREAM, session, 1)
    assert not any(dispatcher.on_setup(STREAM, session, 2) for session in range(MAX_COOL_DOWNS))


def test_the_latest_session_that_ended_always_cools_down(dispatcher: DataPacketDispatcher) -> None:
    for session in range(MAX_COOL_DOWNS + 1):
        dispatcher.cool_down(STREAM, session, 10 * SECOND)
    assert dispatcher.state(STREAM, 0) is None
    assert dispatcher.state(STREAM, 1) is dispatcher.state(STREAM, MAX_COOL_DOWNS) is SessionState.COOL_DOWN
