"""The bymux state tables, checked pair by pair against the specification."""

from __future__ import annotations

from itertools import product

import pytest

from mainstem.bymux import HalfState, InitialStream, Role, Settings
from mainstem.bymux.codec import Packet, encode_global, encode_stream
from mainstem.bymux.engine import BymuxEngine
from mainstem.bymux.state import NEXT, RESPONSE, RESPONSE_ROWS, ROWS, Rule
from mainstem.errors import LocalProtocolError, RemoteProtocolError

PAIRS = list(product(HalfState, Packet))
FORBIDDEN_BY = {
    Packet.WRITE: HalfState.CLOSED,
    Packet.CLOSE: HalfState.CLOSED,
    Packet.CREDIT: HalfState.STOPPED,
    Packet.STOP_READ: HalfState.STOPPED,
}


def forbidden(half: HalfState, packet: Packet) -> bool:
    """Express the document's "Ending Streams" (docs/protocols/bymux.md, 5) in one line."""
    blocker = FORBIDDEN_BY.get(packet)
    return half is HalfState.DONE if blocker is None else bool(half & blocker)


def in_half(half: HalfState, *, ours: bool) -> BymuxEngine:
    """Return a connection whose stream 0 and global state have ``half`` as the local or the peer's half-state."""
    settings = Settings(
        stream_window=0, peer_streams=0, initial_streams=(InitialStream(0, local_credit=9, peer_credit=9),)
    )
    connection = BymuxEngine(Role.REACTIVE, settings)
    stream = connection.streams[0]
    if not ours:
        connection.write(stream, b"x")  # our own Close waits behind this byte, so the stream is still active
    for bit, close in ((HalfState.CLOSED, True), (HalfState.STOPPED, False)):
        if not half & bit:
            continue
        if ours:
            (connection.close if close else connection.stop_read)(stream)
            (connection.close_creation if close else connection.stop_creation)()
        else:
            packet = Packet.CLOSE if close else Packet.STOP_READ
            connection.receive_data(encode_stream(packet, 0) + encode_global(packet))
    if ours:
        connection.data_to_send()
    return connection


def test_the_tables_cover_every_pair() -> None:
    assert set(ROWS) == set(Packet)
    assert set(RESPONSE_ROWS) == {Packet.CLOSE, Packet.STOP_READ, Packet.PING}
    assert all(NEXT[half][packet] == ROWS[packet][half] for half, packet in PAIRS)


@pytest.mark.parametrize(("half", "packet"), PAIRS)
def test_transitions_follow_the_specification(half: HalfState, packet: Packet) -> None:
    following = ROWS[packet][half]
    assert isinstance(following, Rule) == forbidden(half, packet)
    if isinstance(following, HalfState):
        added = {Packet.CLOSE: HalfState.CLOSED, Packet.STOP_READ: HalfState.STOPPED}.get(packet, 0)
        assert following == half | added


@pytest.mark.parametrize(("half", "packet"), PAIRS)
def test_a_packet_forbidden_by_the_peers_half_ends_the_connection(half: HalfState, packet: Packet) -> None:
    connection = in_half(half, ours=False)
    amount = {Packet.CREDIT: 1, Packet.WRITE: 0}.get(packet)
    wire = encode_stream(packet, 0, amount)
    if forbidden(half, packet):
        with pytest.raises(RemoteProtocolError) as caught:
            connection.receive_data(wire)
        assert caught.value.rule == ROWS[packet][half]
    else:
        stream = connection.streams[0]
        connection.receive_data(wire)
        assert stream.peer == ROWS[packet][half]


@pytest.mark.parametrize(("half", "packet"), PAIRS)
def test_a_global_packet_forbidden_by_the_peers_half_ends_the_connection(half: HalfState, packet: Packet) -> None:
    connection = in_half(half, ours=False)
    if not connection.local & HalfState.STOPPED:
        connection.allow_streams(1)
    wire = encode_global(packet, {Packet.CREDIT: 1, Packet.WRITE: 2}.get(packet))
    # A global Close is answered with StopRead, after which no credit for streams can have been granted.
    no_credit = packet is Packet.WRITE and not connection.peer_streams_credit
    if forbidden(half, packet) or no_credit:
        with pytest.raises(RemoteProtocolError) as caught:
            connection.receive_data(wire)
        assert caught.value.rule == ("create-beyond-credit" if not forbidden(half, packet) else ROWS[packet][half])
    else:
        connection.receive_data(wire)
        assert connection.peer == ROWS[packet][half]


@pytest.mark.parametrize(("half", "packet"), PAIRS)
def test_a_call_forbidden_by_the_local_half_raises_and_sends_nothing(half: HalfState, packet: Packet) -> None:
    connection = in_half(half, ours=True)
    stream = connection.streams[0]
    act = {
        Packet.CREDIT: lambda: connection.grant(stream, 1),
        Packet.WRITE: lambda: connection.write(stream, b"x"),
        Packet.PING: lambda: connection.ping(stream),
        Packet.PONG: lambda: connection.pong(stream),
        Packet.CLOSE: lambda: connection.close(stream),
        Packet.STOP_READ: lambda: connection.stop_read(stream),
    }[packet]
    if forbidden(half, packet):
        with pytest.raises(LocalProtocolError) as caught:
            act()
        assert caught.value.rule == ROWS[packet][half]
        assert connection.data_to_send() == b""
    else:
        act()
        assert connection.data_to_send() == encode_stream(packet, 0, 1 if packet <= Packet.WRITE else None) + (
            b"x" if packet is Packet.WRITE else b""
        )


@pytest.mark.parametrize(("half", "packet"), sorted(product(HalfState, RESPONSE_ROWS)))
def test_packets_are_answered_as_the_table_says(half: HalfState, packet: Packet) -> None:
    connection = in_half(half, ours=True)
    connection.receive_data(encode_stream(packet, 0))
    answer = RESPONSE[half][packet]
    assert connection.data_to_send() == (b"" if answer is None else encode_stream(answer, 0))


@pytest.mark.parametrize(("half", "packet"), sorted(product(HalfState, RESPONSE_ROWS)))
def test_global_packets_are_answered_as_the_table_says(half: HalfState, packet: Packet) -> None:
    connection = in_half(half, ours=True)
    connection.receive_data(encode_global(packet))
    answer = RESPONSE[half][packet]
    assert connection.data_to_send() == (b"" if answer is None else encode_global(answer))
