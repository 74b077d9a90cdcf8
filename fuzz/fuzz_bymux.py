"""bymux: whatever a peer sends is taken or refused by a named rule, however it is cut, and never makes us hold too much."""

from __future__ import annotations

from mainstem.errors import RemoteProtocolError
from mainstem.mux.bymux import BymuxConnection, Half, InitialStream, Role, Settings, decode_header, events

WINDOW = 40
SETTINGS = Settings(
    stream_window=WINDOW,
    peer_streams=3,
    packet_limit=10,
    initial_streams=(InitialStream(0, own_credit=5, peer_credit=5), InitialStream(1)),
)
# Legal conversations, as the proactive end's bytes: creating, writing, ending, pings, global ends.
SEEDS = [
    bytes.fromhex(text)
    for text in (
        "3002 000220 20020548656c6c6f 8002 a002",
        "200005 0102030405 000000 8000 a000 3000 20000148",
        "1003 40 00 50 70 6001 90 b0 800020000100",
        "3104d2 2404d202 4142 2504d20003414243 8404d2 a404d2",
        "00010a 0300ffffffffffffffff 13ffffffffffffffff",
    )
]


def run(data: bytes, cut: int) -> tuple[list[tuple[str, int, bytes]], bytes, str]:
    """What comes of the bytes, and the rule that they broke."""
    connection = BymuxConnection(Role.REACTIVE, SETTINGS)
    connection.write(connection.streams[0], b"some bytes that wait for credit")
    seen: list[tuple[str, int, bytes]] = []
    out = connection.data_to_send()
    rule = ""
    for at in range(0, len(data), cut):
        try:
            connection.receive_data(data[at : at + cut])
        except RemoteProtocolError as error:
            rule = error.rule
        while (event := connection.next_event()) is not None:
            stream = getattr(event, "stream", None)
            seen.append((type(event).__name__, -1 if stream is None else stream.id, getattr(event, "data", b"")))
            if isinstance(event, events.DataReceived):
                assert event.stream.unconsumed <= WINDOW
        for stream in connection.streams.values():
            assert stream.unconsumed + max(0, stream.receive_credit) <= WINDOW
            assert not (stream.own is Half.DONE and stream.peer is Half.DONE)
        if rule:
            break
    out += connection.data_to_send()
    return seen, out, rule


def joined(seen: list[tuple[str, int, bytes]]) -> list[tuple[str, int, bytes]]:
    """Data of one stream that came in pieces, as one."""
    out: list[tuple[str, int, bytes]] = []
    for name, stream, data in seen:
        if name == "DataReceived" and out and out[-1][:2] == (name, stream):
            out[-1] = (name, stream, out[-1][2] + data)
        else:
            out.append((name, stream, data))
    return out


def target(data: bytes) -> None:
    """One input."""
    try:
        decode_header(data)
    except ValueError:
        assert data[0] >= 0xC0
    whole, sent, rule = run(data, max(1, len(data)))
    pieces, sent_too, rule_too = run(data, 1)
    assert rule == rule_too, "the rule depends on how the bytes were cut"
    assert joined(whole) == joined(pieces), "the events depend on how the bytes were cut"
    assert sent == sent_too, "the answers depend on how the bytes were cut"
