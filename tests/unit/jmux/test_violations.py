"""What must end a Jmux connection: bytes in, the rule and the Error message out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.mux_engines import drain

from mainstem.errors import ClosedError, RemoteProtocolError
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.codec import encode_connection_header
from mainstem.jmux.server_engine import ServerEngine

from .helpers import JAVA, JAVA_HEADER, client, server

if TYPE_CHECKING:
    from mainstem.jmux.engine import JmuxEngine


def open_server() -> ServerEngine:
    connection = server()
    connection.receive_data(bytes.fromhex("90000000"))
    drain(connection)
    return connection


def answered_server() -> ServerEngine:
    """Return a server whose response is complete and closed, and which requested no acknowledgment."""
    connection = server()
    connection.receive_data(bytes.fromhex("94000000"))
    connection.finish(connection.sessions[0])
    connection.data_to_send()
    return connection


def acknowledged_server() -> ServerEngine:
    connection = server()
    connection.receive_data(bytes.fromhex("94000000"))
    connection.finish(connection.sessions[0], ack_required=True)
    connection.data_to_send()
    return connection


def open_client() -> ClientEngine:
    connection = client()
    connection.flush(connection.open_session())
    connection.data_to_send()
    return connection


MAX = "1e00ffff"
CASES = [
    (server, "01000000", "bad-message-header", "bad message header: 01000000"),
    (server, "0a000000", "bad-message-header", "bad message header: 0A000000"),
    (server, "90800000", "bad-message-header", "bad message header: 90800000"),
    (server, "a0000000", "bad-message-header", "bad message header: A0000000"),
    (server, "91000000", "bad-message-header", "bad message header: 91000000"),
    (open_server, "11000001", "bad-message-header", "bad message header: 11000001"),
    (open_server, "24000000", "bad-message-header", "bad message header: 24000000"),
    (open_server, "21000000", "bad-message-header", "bad message header: 21000000"),
    (open_server, "41000000", "bad-message-header", "bad message header: 41000000"),
    (open_server, "22000000", "partial-sent-by-client", "Abort/partial sent by client"),
    (open_client, "32000000", "bad-message-header", "bad message header: 32000000"),
    (server, "80050000", "inactive-session", "inactive sessionID: 5"),
    (server, "20050000", "inactive-session", "inactive sessionID: 5"),
    (server, "10050001", "inactive-session", "inactive sessionID: 5"),
    (server, "40050000", "inactive-session", "inactive sessionID: 5"),
    (open_server, "20000000 20000000", "inactive-session", "inactive sessionID: 0"),
    (open_server, "84000000 80000000", "data-on-finished-session", "Data on finished session: 0"),
    (open_server, "90000000", "open-on-open-session", "Data/open on open session: 0"),
    (
        open_server,
        "84000000 90000000",
        "open-before-previous-session-terminated",
        "Data/open before previous session terminated",
    ),
    (open_server, "30000000", "close-sent-by-client", "Close sent by client"),
    (open_server, "8c000000", "close-sent-by-client", "Close sent by client"),
    (server, "02000000", "shutdown-sent-by-client", "Shutdown sent by client"),
    (open_server, "86000000", "ack-required-sent-by-client", "Data/ackRequired sent by client"),
    (open_client, "88000000", "flags-without-eof", "Data: eof=false,close=true,ackRequired=false"),
    (open_client, "82000000", "flags-without-eof", "Data: eof=false,close=false,ackRequired=true"),
    (open_server, "40000000", "acknowledgment-not-requested", "acknowledgment not requested"),
    (answered_server, "40000000", "acknowledgment-not-requested", "acknowledgment not requested"),
    (acknowledged_server, "40000000 40000000", "duplicate-acknowledgment", "duplicate acknowledgment"),
    (open_server, "80008001", "input-ration-exceeded", "input ration exceeded: 32769 bytes with 32768 left"),
    (open_client, "80008001", "input-ration-exceeded", "input ration exceeded: 32769 bytes with 32768 left"),
    (open_client, MAX + MAX, "ration-overflow", "ration overflow: 1073725440 on top of 1073758208"),
    (open_client, "30000000", "close-on-open-session", "Close on open session: 0"),
    (open_client, "40000000", "acknowledgment-sent-by-server", "Acknowledgment sent by server"),
    (open_client, "90000000", "open-sent-by-server", "remote endpoint attempted to open session"),
    (open_client, "80010000", "inactive-session", "inactive sessionID: 1"),
    (open_client, "84000000 80000000", "data-on-finished-session", "Data on finished session: 0"),
    (client, "06001234", "unexpected-ping-cookie", "unexpected ping cookie: 4660"),
    (server, "06001234", "unexpected-ping-cookie", "unexpected ping cookie: 4660"),
]


def feed(connection: JmuxEngine, pieces: list[bytes]) -> None:
    for piece in pieces:
        connection.receive_data(piece)


@pytest.mark.parametrize("cut", ["whole", "byte by byte"])
@pytest.mark.parametrize(("setup", "wire", "rule", "report"), CASES, ids=[f"{c[0].__name__} {c[1]}" for c in CASES])
def test_a_protocol_error_ends_the_connection_with_an_error_message(
    setup, wire: str, rule: str, report: str, cut: str
) -> None:
    connection = setup()
    data = bytes.fromhex(wire)
    with pytest.raises(RemoteProtocolError) as caught:
        feed(connection, [data] if cut == "whole" else [data[i : i + 1] for i in range(len(data))])
    assert caught.value.rule == rule
    sent = connection.data_to_send()
    assert sent.endswith(b"\x08\x00" + len(report).to_bytes(2, "big") + report.encode())
    with pytest.raises(ClosedError):
        connection.receive_data(b"\0\0\0\0")


@pytest.mark.parametrize("first", [b"G", b"Jm ", b"Jmuy", b"GET / HTTP"])
@pytest.mark.parametrize("end", [ClientEngine, ServerEngine])
def test_a_peer_that_does_not_speak_jmux_is_disconnected_without_a_reply(end, first: bytes) -> None:
    connection = end(JAVA)
    connection.data_to_send()
    with pytest.raises(RemoteProtocolError) as caught:
        connection.receive_data(first)
    assert caught.value.rule == "bad-magic"
    assert connection.data_to_send() == b""


def test_a_client_rejects_another_version_with_an_error_message() -> None:
    connection = ClientEngine(JAVA)
    connection.data_to_send()
    with pytest.raises(RemoteProtocolError) as caught:
        connection.receive_data(bytes.fromhex("4a6d7578 02 0080 00"))
    assert caught.value.rule == "bad-version"
    assert connection.data_to_send() == bytes.fromhex("0800001e") + b"unexpected protocol version: 2"


def test_a_newer_client_that_negotiates_is_served_as_version_1() -> None:
    connection = ServerEngine(JAVA)
    connection.receive_data(bytes.fromhex("4a6d7578 02 0080 01"))
    assert connection.data_to_send() == JAVA_HEADER
    assert connection.established


@pytest.mark.parametrize("end", [ServerEngine, ClientEngine])
@pytest.mark.parametrize("reserved", ["01", "02", "80", "ff"])
def test_reserved_bits_of_the_connection_header_are_ignored(end, reserved: str) -> None:
    connection = end(JAVA)
    connection.receive_data(bytes.fromhex(f"4a6d7578 01 0080 {reserved}"))
    assert connection.established


def test_reserved_bits_of_messages_are_ignored() -> None:
    connection = server()
    connection.receive_data(bytes.fromhex("04ff1234 00010000"))
    assert connection.data_to_send() == bytes.fromhex("06001234")
    finished = open_client()
    session = finished.sessions[0]
    finished.receive_data(bytes.fromhex("84000000 3000ffff"))
    assert session.response_complete
    assert session.peer.name == "TERMINATED"


def test_eof_inside_a_message_is_an_error() -> None:
    for wire in ("9000", "90000005 41"):
        connection = server()
        connection.receive_data(bytes.fromhex(wire))
        with pytest.raises(RemoteProtocolError) as caught:
            connection.receive_eof()
        assert caught.value.rule == "truncated-message"


def test_an_error_message_from_the_peer_ends_every_session() -> None:
    connection = open_client()
    session = connection.sessions[0]
    connection.receive_data(bytes.fromhex("08000003") + b"why")
    assert isinstance(connection.failure, RemoteProtocolError)
    assert "why" in str(connection.failure)
    assert session.delivery.name == "PARTIAL"


def test_a_no_operation_is_ignored_with_and_without_a_body() -> None:
    for connection in (client(), server()):
        connection.receive_data(bytes.fromhex("00000000 00000003 616263"))
        assert drain(connection) == []
        assert connection.data_to_send() == b""


def test_a_peer_that_pings_and_never_reads_is_disconnected_at_control_limit() -> None:
    connection = ServerEngine(replace(JAVA, control_limit=100))
    connection.receive_data(encode_connection_header(0))
    for _ in range(3):
        connection.receive_data(bytes.fromhex("04000000") * 40)
        assert len(connection.data_to_send()) >= 160  # responses do not count before they were offered
    connection.receive_data(bytes.fromhex("04000000") * 40)
    with pytest.raises(RemoteProtocolError) as caught:
        connection.receive_data(bytes.fromhex("04000000"))
    assert caught.value.rule == "answers-not-read"
