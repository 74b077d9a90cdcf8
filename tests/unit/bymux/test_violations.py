"""Every sequence that must end a connection, one test each: bytes in, the name of the broken rule out."""

from __future__ import annotations

import pytest

from mainstem.bymux import Role, Settings
from mainstem.bymux.engine import BymuxEngine
from mainstem.errors import ClosedError, RemoteProtocolError

MANUAL = Settings(stream_window=0, peer_streams=0)


def fresh() -> BymuxEngine:
    return BymuxEngine(Role.REACTIVE, MANUAL)


def feed(connection: BymuxEngine, pieces: list[bytes]) -> None:
    for piece in pieces:
        connection.receive_data(piece)


def s1() -> BymuxEngine:
    """State S1: we allowed two streams, the peer created stream 0, and we granted it ten bytes of credit."""
    connection = fresh()
    connection.allow_streams(2)
    connection.receive_data(bytes.fromhex("3000"))
    connection.grant(connection.streams[0], 10)
    assert connection.data_to_send() == bytes.fromhex("1002 00000a")
    return connection


def created() -> BymuxEngine:
    connection = fresh()
    connection.allow_streams(2)
    connection.receive_data(bytes.fromhex("3000"))
    return connection


def ended() -> BymuxEngine:
    """S1, and stream 0 has exchanged its four packets."""
    connection = s1()
    connection.receive_data(bytes.fromhex("8000 a000"))
    assert connection.data_to_send() == bytes.fromhex("a000 8000")
    assert not connection.streams
    return connection


def close_owed() -> BymuxEngine:
    """S1, and our Close waits behind a byte that the peer granted credit for but that has not been sent yet."""
    connection = s1()
    connection.receive_data(bytes.fromhex("000001"))
    connection.write(connection.streams[0], b"x")
    return connection


def proactive() -> BymuxEngine:
    connection = BymuxEngine(Role.PROACTIVE, MANUAL)
    connection.allow_streams(1)
    return connection


def spent() -> BymuxEngine:
    connection = fresh()
    connection.allow_streams(1)
    connection.receive_data(bytes.fromhex("3000 8000 a000"))
    stream = connection.streams[0] if connection.streams else None
    assert stream is None
    return connection


FF = "ffffffffffffffff"
CASES = [
    ("type 6", fresh, "c0", "undefined-packet-type"),
    ("type 7", fresh, "e0", "undefined-packet-type"),
    ("global type 7", fresh, "f0", "undefined-packet-type"),
    ("create without global credit", fresh, "3000", "create-beyond-credit"),
    ("third create on two credits", s1, "3002 3004", "create-beyond-credit"),
    ("odd id from the proactive end", s1, "3001", "create-wrong-parity"),
    ("even id from the reactive end", proactive, "3002", "create-wrong-parity"),
    ("active id", s1, "3000", "create-active-id"),
    ("active id, wider", s1, "310000", "create-active-id"),
    ("write to an unknown id", s1, "20020141", "inactive-stream"),
    ("credit for an unknown id", s1, "000205", "inactive-stream"),
    ("ping for an unknown id", s1, "4002", "inactive-stream"),
    ("pong for an unknown id", s1, "6002", "inactive-stream"),
    ("close of an unknown id", s1, "8002", "inactive-stream"),
    ("stop read of an unknown id", s1, "a002", "inactive-stream"),
    ("eleven bytes on credit ten, at the header", s1, "20000b", "write-beyond-credit"),
    ("one byte after the credit is spent", s1, "20000a" + "41" * 10 + "20000141", "write-beyond-credit"),
    ("write before any credit", created, "20000141", "write-beyond-credit"),
    ("an announced length of 2**64-1", s1, "2300" + FF, "write-beyond-credit"),
    ("credit overflow by one", s1, "000001 0300" + FF, "credit-overflow"),
    ("credit on infinite", s1, "000000 000001", "credit-on-infinite"),
    ("credit on infinite reached at once", s1, f"0300{FF} 000001", "credit-on-infinite"),
    ("credit on infinite reached by sum", s1, "000001 0300fffffffffffffffe 000001", "credit-on-infinite"),
    ("global credit overflow", s1, "1001 13" + FF, "global-credit-overflow"),
    ("write after close", s1, "8000 20000141", "write-after-close"),
    ("empty write after close", s1, "8000 200000", "write-after-close"),
    ("close twice", s1, "8000 8000", "close-after-close"),
    ("stop read twice", s1, "a000 a000", "stop-read-after-stop-read"),
    ("credit after stop read", s1, "a000 000001", "credit-after-stop-read"),
    ("infinite credit after stop read", s1, "a000 000000", "credit-after-stop-read"),
    ("ping after both", close_owed, "8000 a000 4000", "ping-after-close-and-stop-read"),
    ("pong after both", close_owed, "8000 a000 6000", "pong-after-close-and-stop-read"),
    ("write to an ended stream", ended, "20000141", "inactive-stream"),
    ("credit for an ended stream", ended, "000001", "inactive-stream"),
    ("ping of an ended stream", ended, "4000", "inactive-stream"),
    ("close of an ended stream", ended, "8000", "inactive-stream"),
    ("stop read of an ended stream", ended, "a000", "inactive-stream"),
    ("reuse of an id whose close we still owe", close_owed, "8000 a000 3000", "create-active-id"),
    ("create after global close", s1, "90 3002", "write-after-close"),
    ("global close twice", s1, "90 90", "close-after-close"),
    ("global credit after global stop read", s1, "b0 1001", "credit-after-stop-read"),
    ("zero global credit after global stop read", s1, "b0 1000", "credit-after-stop-read"),
    ("global stop read twice", s1, "b0 b0", "stop-read-after-stop-read"),
    ("global ping after both", s1, "90 b0 50", "ping-after-close-and-stop-read"),
    ("global pong after both", s1, "90 b0 70", "pong-after-close-and-stop-read"),
    ("reuse of an ended id without global credit", spent, "3000", "create-beyond-credit"),
]


@pytest.mark.parametrize("cut", ["whole", "byte by byte"])
@pytest.mark.parametrize(("setup", "wire", "rule"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_protocol_error_ends_the_connection_and_names_the_rule(setup, wire: str, rule: str, cut: str) -> None:
    connection = setup()
    data = bytes.fromhex(wire)
    pieces = [data] if cut == "whole" else [data[i : i + 1] for i in range(len(data))]
    with pytest.raises(RemoteProtocolError) as caught:
        feed(connection, pieces)
    assert caught.value.rule == rule
    assert caught.value.peer == "peer"
    with pytest.raises(ClosedError):
        connection.receive_data(b"\x50")


def test_eof_inside_a_packet_is_an_error() -> None:
    for wire in ("2000056162", "0300ff"):
        connection = s1()
        connection.receive_data(bytes.fromhex(wire))
        with pytest.raises(RemoteProtocolError) as caught:
            connection.receive_eof()
        assert caught.value.rule == "truncated-packet"


LEGAL = [
    ("empty write at zero credit", created, "200000", ""),
    ("unsolicited pong", s1, "6000 70", ""),
    ("close after stop read", s1, "a000 8000", "8000 a000"),
    ("stop read after close", s1, "8000 a000", "a000 8000"),
    ("credit after the peer's close", s1, "8000 000005", "a000"),
    ("stream packets after global close and stop read", s1, "90 b0 20000141 4000", "b0 90 6000"),
    ("id reuse right after the fourth packet", s1, "8000 a000 3000", "a000 8000"),
    ("zero credit on infinite", s1, "000000 000000", ""),
    ("zero global credit", s1, "1000", ""),
    ("infinite by sum", s1, "000001 0300fffffffffffffffe", ""),
]


@pytest.mark.parametrize(("setup", "wire", "answer"), [case[1:] for case in LEGAL], ids=[case[0] for case in LEGAL])
def test_unusual_but_legal_sequences_are_accepted(setup, wire: str, answer: str) -> None:
    connection = setup()
    connection.data_to_send()
    connection.receive_data(bytes.fromhex(wire))
    assert connection.data_to_send() == bytes.fromhex(answer)


def test_a_write_after_our_stop_read_is_legal_within_the_remaining_credit() -> None:
    connection = s1()
    connection.stop_read(connection.streams[0])
    connection.receive_data(bytes.fromhex("20000a" + "41" * 10))
    with pytest.raises(RemoteProtocolError):
        connection.receive_data(bytes.fromhex("20000141"))


def test_a_ping_after_our_close_and_stop_read_is_ignored() -> None:
    connection = s1()
    stream = connection.streams[0]
    connection.close(stream)
    connection.stop_read(stream)
    assert connection.data_to_send() == bytes.fromhex("8000 a000")
    connection.receive_data(bytes.fromhex("4000"))
    assert connection.data_to_send() == b""


def test_a_peer_that_pings_and_never_reads_is_disconnected_at_control_limit() -> None:
    connection = BymuxEngine(Role.REACTIVE, Settings(control_limit=100))
    with pytest.raises(RemoteProtocolError) as caught:
        feed(connection, [b"\x50"] * 200)
    assert caught.value.rule == "answers-not-read"


def test_responses_to_one_burst_do_not_count_before_they_were_offered() -> None:
    connection = BymuxEngine(Role.REACTIVE, Settings(control_limit=100))
    for _ in range(3):
        connection.receive_data(b"\x50" * 200)
        assert len(connection.data_to_send()) >= 200
