"""Jmux, both roles: whatever a peer sends is taken or refused by a named rule, however it is cut, within the rations."""

from __future__ import annotations

from mainstem.errors import RemoteProtocolError
from mainstem.mux.jmux import ClientConnection, ServerConnection, Settings, decode_message, events

RATION = 256
SETTINGS = Settings(initial_ration=RATION, fragment_limit=16)
HEADER = bytes.fromhex("4a6d757801000100")
# After a byte that chooses the role (even: we are the server): headers and legal conversations.
SEEDS = [
    bytes([role]) + HEADER + bytes.fromhex(text)
    for role, text in (
        (0, "94000003414243 94010000 20010000"),
        (0, "9000000441424344 8000000145 84000000 40000000 94000000"),
        (0, "04001234 00000002ffff 90050000 10050040 1e05ffff 20050003414243"),
        (0, "0800000365727204001234"),
        (1, "8c00000548656c6c6f 8401000141 30010000 22020000"),
        (1, "8e000001418200000141 0200000362796504001234"),
        (1, "10000040 1200ffff 800000024142 84000000 06000000"),
    )
]


def run(data: bytes, cut: int, *, serving: bool) -> tuple[list[tuple[str, int, bytes]], bytes, str]:
    """What comes of the bytes, and the rule that they broke."""
    connection: ServerConnection | ClientConnection = (
        ServerConnection(SETTINGS) if serving else ClientConnection(SETTINGS)
    )
    if isinstance(connection, ClientConnection):
        for _ in range(3):
            session = connection.open_session()
            connection.write(session, b"request")
            connection.finish(session)
        connection.ping()
    seen: list[tuple[str, int, bytes]] = []
    out = connection.data_to_send()
    rule = ""
    # The answers depend on when they are asked for; a client's requests must have left before responses can come.
    for at in (0, *range(8, len(data), cut)):
        piece = data[:8] if at == 0 else data[at : at + cut]
        try:
            if connection.failure is None:
                connection.receive_data(piece)
        except RemoteProtocolError as error:
            rule = error.rule
        if at == 0:
            out += connection.data_to_send()
        while (event := connection.next_event()) is not None:
            session = getattr(event, "session", None)
            seen.append((type(event).__name__, -1 if session is None else session.id, getattr(event, "data", b"")))
            if isinstance(event, events.DataReceived):
                assert event.session.unconsumed <= RATION
        if rule:
            break
    out += connection.data_to_send()
    return seen, out, rule


def joined(seen: list[tuple[str, int, bytes]]) -> list[tuple[str, int, bytes]]:
    """Data of one session that came in pieces, as one."""
    out: list[tuple[str, int, bytes]] = []
    for name, session, data in seen:
        if name == "DataReceived" and out and out[-1][:2] == (name, session):
            out[-1] = (name, session, out[-1][2] + data)
        else:
            out.append((name, session, data))
    return out


def target(data: bytes) -> None:
    """One input."""
    serving = not data or not data[0] & 1
    data = data[1:]
    try:
        decode_message(data)
    except ValueError as error:
        assert "bad message header" in str(error)  # noqa: PT017 - this is no test, and the text is what is checked
    whole, sent, rule = run(data, max(1, len(data)), serving=serving)
    pieces, sent_too, rule_too = run(data, 1, serving=serving)
    assert rule == rule_too, "the rule depends on how the bytes were cut"
    assert joined(whole) == joined(pieces), "the events depend on how the bytes were cut"
    assert sent == sent_too, "the answers depend on how the bytes were cut"
