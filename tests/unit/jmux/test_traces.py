"""Exchanges recorded from the Java implementation, replayed byte for byte at either end."""

from __future__ import annotations

import pytest
from tests.support.mux_engines import drain

from mainstem.errors import Delivery, RemoteProtocolError
from mainstem.jmux import Settings, events
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.server_engine import ServerEngine
from mainstem.jmux.state import Acknowledgment, HalfState

from .helpers import JAVA, JAVA_HEADER, client, server

X = bytes.fromhex
REQUEST = b"fourteen bytes"
RESPONSE = b"ten bytes!"


def test_client_speaks_first_and_waits_for_the_servers_header() -> None:
    connection = ClientEngine(JAVA)
    session = connection.open_session()
    connection.write(session, REQUEST)
    connection.finish(session)
    assert connection.data_to_send() == JAVA_HEADER
    assert connection.data_to_send() == b""
    assert session.delivery is Delivery.NONE
    connection.receive_data(JAVA_HEADER)
    assert connection.data_to_send() == X("9400000e") + REQUEST
    assert session.delivery is Delivery.PARTIAL


def test_server_waits_for_the_clients_header() -> None:
    connection = ServerEngine(JAVA)
    assert connection.data_to_send() == b""
    connection.receive_data(JAVA_HEADER[:7])
    assert connection.data_to_send() == b""
    connection.receive_data(JAVA_HEADER[7:])
    assert connection.data_to_send() == JAVA_HEADER


def test_server_answers_a_whole_request_in_one_message() -> None:
    connection = server()
    connection.receive_data(X("9400000e") + REQUEST)
    opened, received, finished = drain(connection)
    session = opened.session
    assert (received.data, finished) == (REQUEST, events.DataFinished(session, False))
    connection.write(session, RESPONSE)
    connection.finish(session)
    assert connection.data_to_send() == X("8c00000a") + RESPONSE


def test_client_accepts_a_response_and_may_reuse_the_id() -> None:
    connection = client()
    session = connection.open_session()
    connection.write(session, REQUEST)
    connection.finish(session)
    connection.data_to_send()
    connection.receive_data(X("8c00000a") + RESPONSE)
    assert drain(connection) == [
        events.DataReceived(session, RESPONSE),
        events.DataFinished(session, False),
        events.SessionEnded(session),
    ]
    assert session.delivery is Delivery.COMPLETE
    again = connection.open_session()
    connection.write(again, b"second")
    connection.finish(again)
    assert connection.data_to_send() == X("94000006") + b"second"


def test_acknowledgment_of_a_response() -> None:
    us = client()
    session = us.open_session()
    us.write(session, REQUEST)
    us.finish(session)
    us.data_to_send()
    us.receive_data(X("8e00000a") + RESPONSE)
    assert us.busy == 1
    us.acknowledge(session)
    assert us.data_to_send() == X("40000000")
    assert us.busy == 0

    them = server()
    them.receive_data(X("9400000e") + REQUEST)
    theirs = drain(them)[0].session
    them.write(theirs, RESPONSE)
    them.finish(theirs, ack_required=True)
    assert them.data_to_send() == X("8e00000a") + RESPONSE
    them.receive_data(X("40000000"))
    assert drain(them) == [events.Acknowledged(theirs, True)]
    assert theirs.ack is Acknowledgment.SENT


def test_a_long_request_is_sent_in_fragments() -> None:
    connection = client()
    session = connection.open_session()
    connection.write(session, bytes(1024 + 1024 + 908))
    connection.finish(session)
    sent = connection.data_to_send()
    assert sent == X("90000400") + bytes(1024) + X("80000400") + bytes(1024) + X("8400038c") + bytes(908)


def test_reading_before_writing_sends_an_empty_open() -> None:
    connection = client()
    session = connection.open_session()
    connection.flush(session)
    assert connection.data_to_send() == X("90000000")
    connection.write(session, RESPONSE)
    connection.finish(session)
    assert connection.data_to_send() == X("8400000a") + RESPONSE


def test_the_ration_is_restored_at_half_as_in_java() -> None:
    connection = server()
    connection.receive_data(X("90000400") + bytes(1024))
    session = drain(connection)[0].session
    for _ in range(15):
        connection.receive_data(X("80000400") + bytes(1024))
    connection.consume(session, 1024)  # 15 KiB unread and 16 KiB of ration left, so no increment yet
    assert connection.data_to_send() == b""
    connection.consume(session, 15 * 1024)
    assert connection.data_to_send() == X("10004000")
    for _ in range(24):
        connection.receive_data(X("80000400") + bytes(1024))
    connection.consume(session, 24 * 1024)
    assert connection.data_to_send() == X("10006000")


def test_increments_with_any_shift_are_accepted() -> None:
    for wire, amount in (("10006000", 24576), ("10004000", 16384), ("12000040", 256), ("1e00ffff", 1073725440)):
        connection = client()
        session = connection.open_session()
        connection.flush(session)
        connection.data_to_send()
        connection.receive_data(X(wire))
        assert session.outbound == 32768 + amount
    connection.receive_data(X("10000000"))  # a zero increment, which some peers send, has no effect
    assert session.outbound == 32768 + amount


def test_both_roles_answer_a_ping_before_any_session() -> None:
    for connection in (client(), server()):
        connection.receive_data(X("04001234"))
        assert connection.data_to_send() == X("06001234")


def test_a_server_abort_is_answered() -> None:
    for wire, delivery in (("22000000", Delivery.PARTIAL), ("20000000", Delivery.NONE)):
        us = client()
        session = us.open_session()
        us.flush(session)
        us.data_to_send()
        us.receive_data(X(wire))
        assert us.data_to_send() == X("20000000")
        assert session.delivery is delivery
        assert session.may_retry is (delivery is Delivery.NONE)
        assert us.busy == 0
    them = server()
    them.receive_data(X("90000000"))
    theirs = drain(them)[0].session
    them.abort(theirs)
    assert them.data_to_send() == X("22000000")
    them.receive_data(X("20000000"))
    assert them.sessions == {}


def test_a_response_that_ends_before_its_request() -> None:
    them = server()
    them.receive_data(X("90000400") + bytes(1024))
    theirs = drain(them)[0].session
    them.write(theirs, b"early")
    them.finish(theirs)
    assert them.data_to_send() == X("84000005") + b"early"
    them.close(theirs)
    assert them.data_to_send() == X("30000000")
    them.receive_data(X("80000400") + bytes(1024) + X("80000400") + bytes(1024))  # still in flight, so they are dropped
    assert drain(them) == []
    them.receive_data(X("20000000"))
    assert them.sessions == {}

    us = client()
    session = us.open_session()
    us.write(session, bytes(1024))
    us.data_to_send()
    us.receive_data(X("84000005") + b"early")
    us.write(session, bytes(10))
    assert us.data_to_send() == X("8000000a") + bytes(10)
    us.receive_data(X("30000000"))
    assert us.data_to_send() == X("20000000")
    assert session.delivery is Delivery.COMPLETE
    assert us.busy == 0


def test_an_id_may_be_reused_without_an_abort_after_eof() -> None:
    them = server()
    them.receive_data(X("9400000e") + REQUEST)
    first = drain(them)[0].session
    them.finish(first, ack_required=True)
    assert them.data_to_send() == X("8e000000")
    them.receive_data(X("94000006") + b"second")
    assert drain(them)[:2] == [events.Acknowledged(first, False), events.SessionEnded(first)]
    assert (first.peer, first.local) == (HalfState.TERMINATED, HalfState.TERMINATED)


def test_shutdown_guarantees_that_nothing_was_processed() -> None:
    us = client()
    sent, complete = us.open_session(), us.open_session()
    for session in (sent, complete):
        us.write(session, REQUEST)
        us.finish(session)
    us.data_to_send()
    us.receive_data(X("8401000a") + RESPONSE + X("02000000"))
    assert (sent.delivery, complete.delivery) == (Delivery.NONE, Delivery.COMPLETE)
    assert events.ShutDown(b"") in drain(us)

    them = server()
    them.shut_down()
    assert them.data_to_send() == X("02000000")


def test_an_unknown_version_is_answered_with_a_header_and_an_error() -> None:
    connection = ServerEngine(JAVA)
    with pytest.raises(RemoteProtocolError) as caught:
        connection.receive_data(X("4a6d7578 00 0080 00"))
    assert caught.value.rule == "bad-version"
    assert connection.data_to_send() == JAVA_HEADER + X("08000017") + b"bad protocol version: 0"


def test_the_smallest_ration_limits_each_fragment_and_is_restored_after_it() -> None:
    settings = Settings(initial_ration=256)
    them = server(settings)
    them.receive_data(X("90000100") + bytes(256))
    session = drain(them)[0].session
    them.consume(session, 256)
    assert them.data_to_send() == X("10000100")
    us = ClientEngine(JAVA)
    us.receive_data(X("4a6d7578 01 0001 00"))
    mine = us.open_session()
    us.write(mine, bytes(600))
    assert us.data_to_send() == JAVA_HEADER + X("90000100") + bytes(256)
    us.receive_data(X("10000100"))
    assert us.data_to_send() == X("80000100") + bytes(256)
