"""bymux, and Jmux in both roles: any bytes from a peer are accepted or refused by a named rule, however they are split.

The first byte selects the connection under test; the rest comes from its peer. Each connection stores no more than the windows
that it granted, and neither events nor responses depend on where the bytes are split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem import bymux, jmux
from mainstem.bymux.codec import decode_header
from mainstem.bymux.engine import BymuxEngine
from mainstem.bymux.state import HalfState
from mainstem.errors import RemoteProtocolError
from mainstem.jmux.client_engine import ClientEngine
from mainstem.jmux.codec import decode_message
from mainstem.jmux.server_engine import ServerEngine

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 40
RATION = 256
BYMUX = bymux.Settings(
    stream_window=WINDOW,
    peer_streams=3,
    packet_limit=10,
    initial_streams=(bymux.InitialStream(0, local_credit=5, peer_credit=5), bymux.InitialStream(1)),
)
JMUX = jmux.Settings(initial_ration=RATION, fragment_limit=16)
HEADER = "4a6d757801000100"
# Legal conversations, each after the byte that selects the connection.
SEEDS = [
    bytes([choice]) + bytes.fromhex(text)
    for choice, text in (
        (0, "3002 000220 20020548656c6c6f 8002 a002"),
        (0, "200005 0102030405 000000 8000 a000 3000 20000148"),
        (0, "1003 40 00 50 70 6001 90 b0 800020000100"),
        (0, "3104d2 2404d202 4142 2504d20003414243 8404d2 a404d2"),
        (0, "00010a 0300ffffffffffffffff 13ffffffffffffffff"),
        (1, HEADER + "94000003414243 94010000 20010000"),
        (1, HEADER + "9000000441424344 8000000145 84000000 40000000 94000000"),
        (1, HEADER + "04001234 00000002ffff 90050000 10050040 1e05ffff 20050003414243"),
        (1, HEADER + "0800000365727204001234"),
        (2, HEADER + "8c00000548656c6c6f 8401000141 30010000 22020000"),
        (2, HEADER + "8e0000014182000001410200000362796504001234"),
        (2, HEADER + "10000040 1200ffff 800000024142 84000000 06000000"),
    )
]

Seen = list[tuple[str, int, bytes]]


def bymux_connection() -> BymuxEngine:
    connection = BymuxEngine(bymux.Role.REACTIVE, BYMUX)
    connection.write(connection.streams[0], b"some bytes that wait for credit")
    return connection


def jmux_client() -> ClientEngine:
    connection = ClientEngine(JMUX)
    for _ in range(3):
        session = connection.open_session()
        connection.write(session, b"request")
        connection.finish(session)
    connection.ping()
    return connection


# The connection, and the number of bytes before the first split. A Jmux client sends its requests once the header has arrived.
CONNECTIONS: tuple[tuple[Callable[[], Any], int], ...] = (
    (bymux_connection, 0),
    (lambda: ServerEngine(JMUX), 8),
    (jmux_client, 8),
)


def check_bounds(connection: Any) -> None:
    """Check that no stream holds more than its window, and that no ended stream is left."""
    if isinstance(connection, BymuxEngine):
        for stream in connection.streams.values():
            assert stream.unconsumed + max(0, stream.receive_credit) <= WINDOW
            assert not (stream.local is HalfState.DONE and stream.peer is HalfState.DONE)
    else:
        assert all(session.unconsumed <= RATION for session in connection.sessions.values())


def run(choice: int, data: bytes, cut: int) -> tuple[Seen, bytes, str]:
    """Return the events and the responses that the bytes cause, and the rule that they violate."""
    create, first = CONNECTIONS[choice]
    connection = create()
    seen: Seen = []
    out = connection.data_to_send()
    rule = ""
    for start in (0, *range(first, len(data), cut)) if first else range(0, len(data), cut):
        piece = data[:first] if first and start == 0 else data[start : start + cut]
        try:
            if connection.failure is None:
                connection.receive_data(piece)
        except RemoteProtocolError as error:
            rule = error.rule
        if first and start == 0:
            out += connection.data_to_send()
        while (event := connection.next_event()) is not None:
            handle = getattr(event, "stream", None) or getattr(event, "session", None)
            number = -1 if handle is None else handle.id
            # Count the data of one stream as one event, even if it came in chunks.
            if seen and type(event).__name__ == "DataReceived" == seen[-1][0] and seen[-1][1] == number:
                seen[-1] = ("DataReceived", number, seen[-1][2] + event.data)
            else:
                seen.append((type(event).__name__, number, getattr(event, "data", b"")))
        check_bounds(connection)
        if rule:
            break
    return seen, out + connection.data_to_send(), rule


def target(data: bytes) -> None:
    """Process one input."""
    choice = data[0] % 3 if data else 0
    data = data[1:]
    for decode, report in ((decode_header, "undefined"), (decode_message, "bad message header")):
        try:
            decode(data)
        except ValueError as error:
            assert report in str(error)
    whole, pieces = run(choice, data, max(1, len(data))), run(choice, data, 1)
    assert whole[2] == pieces[2], "the rule depends on how the bytes were cut"
    assert whole[0] == pieces[0], "the events depend on how the bytes were cut"
    assert whole[1] == pieces[1], "the responses depend on how the bytes were cut"
