"""A Jmux connection's sessions, rations, turns and timeouts."""

from __future__ import annotations

import pytest
from tests.support.mux_engines import drain, shuttle

from mainstem.errors import (
    ClosedError,
    ConfigurationError,
    ConnectionLost,
    Delivery,
    LocalProtocolError,
    RemoteProtocolError,
    Timeout,
)
from mainstem.jmux import Settings, events
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.codec import encode_increment, largest_increment
from mainstem.jmux.server_engine import ServerEngine

from .helpers import client, pair, server

SECOND = 1_000_000_000


def test_at_most_128_sessions_are_open_and_the_lowest_free_id_is_next() -> None:
    us, them = pair()
    sessions = [us.open_session() for _ in range(128)]
    assert [session.id for session in sessions] == list(range(128))
    assert not us.can_open
    with pytest.raises(LocalProtocolError) as caught:
        us.open_session()
    assert caught.value.rule == "no-free-session"
    for session in sessions:
        us.finish(session)
    shuttle(us, them)
    for index in (77, 3):
        them.finish(them.sessions[index])
    shuttle(us, them)
    assert us.open_session().id == 3
    assert us.open_session().id == 77


def test_data_waits_for_the_ration() -> None:
    us, them = pair(Settings(), Settings(initial_ration=256))
    session = us.open_session()
    us.write(session, bytes(1000))
    us.finish(session)
    shuttle(us, them)
    assert session.queued == 744
    theirs = them.sessions[0]
    while session.queued:
        held = sum(len(e.data) for e in drain(them) if isinstance(e, events.DataReceived))
        assert held <= 256
        assert theirs.unconsumed + theirs.inbound <= 256
        them.consume(theirs, held)
        shuttle(us, them)
    assert session.local.name == "FINISHED"


def test_announced_bytes_count_against_the_ration() -> None:
    us, them = pair(Settings(), Settings(initial_ration=256))
    session = us.open_session()
    us.write(session, bytes(1000))
    data = us.data_to_send()
    them.receive_data(data[:5])
    theirs = them.sessions[0]
    them.consume(theirs, 1)
    us.receive_data(them.data_to_send())
    them.receive_data(data[5:])
    assert theirs.unconsumed == 255
    assert theirs.unconsumed + theirs.inbound <= 256
    for _ in range(10):
        them.consume(theirs, theirs.unconsumed)
        shuttle(us, them)
    assert (session.queued, session.sent) == (0, 1000)


def test_a_server_sends_nothing_before_the_client_header() -> None:
    for begun in (b"", b"Jmu"):
        them = ServerEngine()
        them.receive_data(begun)
        them.ping()
        them.shut_down(b"restarting")
        assert not them.wants_to_send
        assert them.data_to_send() == b""
    them = ServerEngine()
    them.receive_data(b"Jmu")
    with pytest.raises(RemoteProtocolError, match="inside a message"):
        them.receive_eof()
    assert them.data_to_send() == b""


def test_a_ration_of_zero_is_infinite() -> None:
    us, them = pair(Settings(), Settings(initial_ration=0))
    session = us.open_session()
    us.write(session, bytes(3_000_000))
    shuttle(us, them)
    assert session.queued == 0
    theirs = them.sessions[0]
    them.consume(theirs, 3_000_000)
    assert them.data_to_send() == b""
    us.receive_data(bytes.fromhex("1e00ffff") * 3)  # ignored: an infinite ration cannot grow
    with pytest.raises(LocalProtocolError):
        them.increment(theirs, 4)


def test_increments_use_the_smallest_exact_shift() -> None:
    assert encode_increment(0, 65535) == bytes.fromhex("1000ffff")
    assert encode_increment(5, 65536) == bytes.fromhex("12054000")
    assert encode_increment(0, 0xFFFF << 14) == bytes.fromhex("1e00ffff")
    assert largest_increment(65539) == 65536
    for amount in (0, -4, 65537):
        with pytest.raises(ValueError, match="cannot be written"):
            encode_increment(0, amount)
    us = server()
    us.receive_data(bytes.fromhex("90000000"))
    with pytest.raises(LocalProtocolError) as caught:
        us.increment(us.sessions[0], 65537)
    assert caught.value.rule == "increment-not-expressible"


def test_sessions_take_turns_one_message_at_a_time() -> None:
    us, them = pair(Settings(fragment_limit=1000))
    bulk, small = us.open_session(), us.open_session()
    us.write(bulk, bytes(100_000))
    us.write(small, b"!")
    shuttle(us, them)
    received = [event for event in drain(them) if isinstance(event, events.DataReceived)]
    position = next(i for i, event in enumerate(received) if event.data == b"!")
    assert sum(len(event.data) for event in received[:position]) <= 1000


def test_a_lost_connection_fails_incomplete_sessions_and_reports_which_may_be_retried() -> None:
    us, them = pair()
    complete, sent, unsent = (us.open_session() for _ in range(3))
    for session in (complete, sent):
        us.write(session, b"request")
        us.finish(session)
    shuttle(us, them)
    them.finish(them.sessions[0])
    shuttle(us, them)
    drain(us)
    us.write(unsent, b"never left")
    us.fail(ConnectionLost("gone"))
    assert [e.session for e in drain(us) if isinstance(e, events.SessionFailed)] == [sent, unsent]
    assert [s.delivery for s in (complete, sent, unsent)] == [Delivery.COMPLETE, Delivery.PARTIAL, Delivery.NONE]
    assert [s.may_retry for s in (complete, sent, unsent)] == [False, False, True]
    with pytest.raises(ClosedError):
        us.open_session()


def test_an_abort_before_anything_was_sent_sends_nothing() -> None:
    us = client()
    session = us.open_session()
    us.write(session, b"x")
    us.abort(session)
    assert us.data_to_send() == b""
    assert session.may_retry
    assert us.busy == 0


def test_an_aborted_id_is_free_once_the_server_has_answered() -> None:
    us, them = pair()
    session = us.open_session()
    us.write(session, b"x")
    shuttle(us, them)
    us.abort(session, b"changed my mind")
    assert us.busy == 1
    shuttle(us, them)
    assert us.busy == 0
    aborts = [event for event in drain(them) if isinstance(event, events.SessionAborted)]
    assert [(event.partial, event.detail) for event in aborts] == [(True, b"changed my mind")]
    assert them.sessions == {}
    assert session.delivery is Delivery.PARTIAL


def test_data_that_crosses_an_abort_is_dropped() -> None:
    us, them = pair()
    session = us.open_session()
    us.flush(session)
    shuttle(us, them)
    theirs = them.sessions[0]
    them.write(theirs, bytes(1000))
    crossing = them.data_to_send()
    us.abort(session)
    us.receive_data(crossing)
    assert not any(isinstance(event, events.DataReceived) for event in drain(us))
    shuttle(us, them)
    assert us.busy == 0


def test_an_acknowledgment_that_can_no_longer_arrive_is_negative() -> None:
    for end in ("abort", "connection"):
        us, them = pair()
        session = us.open_session()
        us.finish(session)
        shuttle(us, them)
        theirs = them.sessions[0]
        them.finish(theirs, ack_required=True)
        shuttle(us, them)
        assert events.DataFinished(session, True) in drain(us)
        drain(them)
        if end == "abort":
            us.abort(session)
            shuttle(us, them)
        else:
            them.receive_eof()
        assert events.Acknowledged(theirs, False) in drain(them)


def test_pings_carry_cookies_and_report_the_round_trip() -> None:
    us, them = pair(Settings(ping_interval=5, ping_timeout=1))
    assert us.next_timeout_ns() == 5 * SECOND
    us.handle_timeout(5 * SECOND)
    cookie = us.ping(now_ns=5 * SECOND)
    them.receive_data(us.data_to_send(), 5 * SECOND)
    us.receive_data(them.data_to_send(), 5 * SECOND + 9)
    assert events.PingAcknowledged(cookie, 9) in drain(us)
    us.handle_timeout(10 * SECOND + 9)
    with pytest.raises(Timeout):
        us.handle_timeout(11 * SECOND + 9)


def test_pings_are_bounded() -> None:
    us, _ = pair()
    cookies = {us.ping() for _ in range(64)}
    assert len(cookies) == 64
    with pytest.raises(LocalProtocolError):
        us.ping()


def test_a_missing_header_times_out() -> None:
    for end in (ClientEngine, ServerEngine):
        connection = end(Settings(handshake_timeout=15), now_ns=SECOND)
        assert connection.next_timeout_ns() == 16 * SECOND
        connection.handle_timeout(15 * SECOND)
        with pytest.raises(Timeout, match="header"):
            connection.handle_timeout(16 * SECOND)


def test_a_no_operation_never_has_a_body() -> None:
    us = client()
    us.no_operation()
    assert us.data_to_send() == bytes(4)


def test_consuming_bytes_twice_raises() -> None:
    us = server()
    us.receive_data(bytes.fromhex("90000001 41"))
    with pytest.raises(LocalProtocolError):
        us.consume(us.sessions[0], 2)


@pytest.mark.parametrize(
    "wrong",
    [{"initial_ration": 255}, {"initial_ration": 256 * 65536}, {"fragment_limit": 65536}, {"fragment_limit": 0}],
)
def test_invalid_settings_are_rejected(wrong: dict) -> None:
    with pytest.raises(ConfigurationError):
        Settings(**wrong)
