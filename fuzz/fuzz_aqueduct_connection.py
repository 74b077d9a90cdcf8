"""A whole Aqueduct connection under a peer that writes anything: it survives, or ends by a named rule, within its limits.

The input is a script of actions (a stream's bytes, a reset, a datagram, time, an action of the application) and their data. Half
of the streams begin like those of a well-behaved peer, so that the input reaches beyond the handshake.
"""

from __future__ import annotations

from mainstem.aqueduct.engine import AqueductEngine
from mainstem.aqueduct.events import Attach, ConnectionEnded, Mode, PeerHeaders
from mainstem.aqueduct.frames import CONNECTION_CONTROL, VERSION_BYTES, encode_frame
from mainstem.aqueduct.limits import Limits
from mainstem.errors import BackPressured, ConnectionLost, LocalProtocolError, RemoteProtocolError

LIMITS = Limits(
    max_channels=64,
    max_open_streams=64,
    max_gaps=32,
    max_payload=4096,
    max_buffered_bytes=1 << 15,
    max_filter_ranges=16,
)
HELLO = VERSION_BYTES + encode_frame(CONNECTION_CONTROL, ())


def target(data: bytes) -> None:
    """Process one input."""
    if len(data) < 2:
        return
    is_client = bool(data[0] & 1)
    conn = AqueductEngine(is_client=is_client, limits=LIMITS)
    now = 10**9
    conn.output.transport_state(datagrams=50, max_datagram=1000)
    if is_client:
        conn.start(now)
    if data[0] & 2:
        conn.receive_stream(0, HELLO, False, now)
    listen(conn, now)
    if is_client:
        conn.send(0, b"x", attach=[(Attach.RECEIVER, False), (Attach.SENDER, True)])
    position = 1
    while position + 2 <= len(data):
        kind, size = data[position] & 7, data[position + 1] & 63
        stream_id = data[position] >> 3
        body = data[position + 2 : position + 2 + size]
        position += 2 + size
        now += 10**7
        step(conn, kind, stream_id, body, now)
        listen(conn, now)
        assert conn.buffer.size <= 2 * LIMITS.max_buffered_bytes + 8192
        assert conn.live_halves <= LIMITS.max_channels + 8
        assert len(conn.streams.open) <= LIMITS.max_open_streams + LIMITS.max_channels + 8


def step(conn: AqueductEngine, kind: int, stream_id: int, body: bytes, now: int) -> None:
    if kind in (0, 1):
        conn.receive_stream(stream_id, body, kind == 1, now)
    elif kind == 2:
        conn.receive_reset(stream_id, body[0] if body else 1, now)
    elif kind == 3:
        conn.receive_datagram(body, now)
    elif kind == 4:
        conn.handle_timeout(now + 2 * 10**9)
    elif kind == 5:
        conn.receive_stop_sending(stream_id, now)
    else:
        act(conn, stream_id, body)


def act(conn: AqueductEngine, number: int, body: bytes) -> None:
    senders, receivers = sorted(conn.channels.senders), sorted({*conn.channels.receivers, *conn.channels.drained})
    if number % 3 == 0 and senders:
        channel_id = senders[number % len(senders)]
        try:
            conn.send(channel_id, body, mode=list(Mode)[number % 3], attach=[(Attach.RECEIVER, bool(number & 1))])
        except (BackPressured, LocalProtocolError, ConnectionLost):
            return
    elif number % 3 == 1 and receivers:
        conn.receive(receivers[number % len(receivers)])
    elif senders:
        (conn.finish if number & 4 else conn.cancel)(senders[number % len(senders)])


def listen(conn: AqueductEngine, now: int) -> None:
    while (event := conn.next_event()) is not None:
        if isinstance(event, PeerHeaders) and not conn.context.is_client:
            conn.accept((), now)
        elif isinstance(event, ConnectionEnded) and event.error is not None:
            assert isinstance(event.error, RemoteProtocolError)
            assert event.error.rule
    conn.data_to_send(now)
