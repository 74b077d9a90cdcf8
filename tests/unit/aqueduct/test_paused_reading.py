"""What pauses when too much data is unread, and what continues: data that somebody waits for."""

from __future__ import annotations

import inspect
import sys
from collections import deque
from typing import TYPE_CHECKING

from aqueduct_pair import SECOND, Pair
from tests.support.aqueduct_frames import Message
from victim import Victim, message

from mainstem.aqueduct.events import Attach, Command, Mode, PauseConnection
from mainstem.aqueduct.limits import Limits

if TYPE_CHECKING:
    from mainstem.aqueduct.engine import AqueductEngine
    from mainstem.aqueduct.halves import Incoming

LIMIT = 64 << 10
LIMITS = Limits(max_buffered_bytes=LIMIT, receive_messages=8, receive_bytes=8 << 10)


def fill(pair: Pair, channels: list[int], size: int) -> None:
    """Send `size` bytes on each channel, which nobody reads."""
    for channel_id in channels:
        for _ in range(size // 1000):
            pair.client.conn.send(channel_id, bytes(870), mode=Mode.ORDERED)
        pair.run()


def held(commands: list[Command]) -> list[bool]:
    return [command.paused for command in commands if isinstance(command, PauseConnection)]


def take(conn: AqueductEngine, channel_id: int) -> deque[bytes] | Incoming | None:
    return conn.receive_from(conn.channels.receivers.get(channel_id) or conn.channels.drained[channel_id])


def opened(pair: Pair, count: int) -> list[int]:
    ids = pair.client.conn.send(0, b"channels", attach=[(Attach.RECEIVER, False)] * count)
    pair.run()
    pair.receive(pair.server, 0)
    return list(ids)


def test_reading_pauses_at_the_limit_if_nobody_is_waiting() -> None:
    pair = Pair(limits=LIMITS)
    fill(pair, opened(pair, 5), LIMIT // 4)
    assert held(pair.server.sent) == [True]


def test_reading_continues_for_a_waiting_receiver_although_others_never_read() -> None:
    pair = Pair(limits=LIMITS)
    *unread, wanted = opened(pair, 6)
    fill(pair, unread, LIMIT // 4)
    assert held(pair.server.sent) == [True]
    assert take(pair.server.conn, wanted) is None
    pair.run()
    assert held(pair.server.sent) == [True, False], "what it waits for may be behind what the others do not read"
    for _ in range(50):
        pair.client.conn.send(wanted, b"tide")
        pair.run()
        assert pair.receive(pair.server, wanted) is not None
        assert take(pair.server.conn, wanted) is None
        pair.run()
    assert held(pair.server.sent)[-1] is False
    # The unread bytes never fall below half of the limit, so without the exception everything would stay paused.
    assert pair.server.conn.buffer.size > LIMIT // 2


def test_a_flood_is_paused_below_the_connection_limit_although_a_receiver_waits() -> None:
    pair = Pair(limits=LIMITS)
    *unread, wanted = opened(pair, 9)
    assert take(pair.server.conn, wanted) is None
    for channel_id in unread:
        if held(pair.server.sent)[-1:] == [True]:
            break
        fill(pair, [channel_id], LIMIT // 4)
    assert held(pair.server.sent) == [True]
    assert LIMIT * 1.5 < pair.server.conn.buffer.size < LIMIT * 2
    assert pair.server.error is None


def test_bulk_transfer_continues_beside_sixty_unread_channels() -> None:
    pair = Pair()
    *unread, wanted = opened(pair, 61)
    piece = bytes(64 << 10)
    for channel_id in unread:
        while pair.client.conn.channels.senders[channel_id].accepts(Mode.ORDERED):
            while pair.client.conn.channels.senders[channel_id].accepts(Mode.ORDERED):
                pair.client.conn.send(channel_id, piece)
            pair.wait(0.01)
    assert pair.client.conn.unacknowledged[1] >= 60 * len(piece), "they are full"
    assert take(pair.server.conn, wanted) is None
    received = rounds = 0
    while received < 32 << 20:
        rounds += 1
        while pair.client.conn.channels.senders[wanted].accepts(Mode.ORDERED):
            pair.client.conn.send(wanted, piece)
        pair.run()
        while isinstance(run := take(pair.server.conn, wanted), deque):
            received += sum(map(len, run))
        pair.run()
    assert rounds < 64, "it sends as much at once as a channel that is alone, when it has been read for a while"
    assert held(pair.server.sent) == []
    assert pair.server.conn.buffer.size < Limits().max_buffered_bytes


def test_bulk_transfer_continues_beside_channels_no_longer_read() -> None:
    pair = Pair()
    *unread, wanted = opened(pair, 21)
    piece = bytes(64 << 10)
    for channel_id in unread:
        for _ in range(8 << 4):
            pair.client.conn.send(channel_id, piece)
            pair.run()
            take(pair.server.conn, channel_id)
            take(pair.server.conn, channel_id)
        while pair.client.conn.channels.senders[channel_id].accepts(Mode.ORDERED):
            while pair.client.conn.channels.senders[channel_id].accepts(Mode.ORDERED):
                pair.client.conn.send(channel_id, piece)
            pair.wait(0.01)
    assert held(pair.server.sent) == []
    for _ in range(100):
        assert pair.client.conn.channels.senders[wanted].accepts(Mode.ORDERED)
        pair.client.conn.send(wanted, piece)
        pair.wait(0.01)
        assert take(pair.server.conn, wanted) is not None
    assert pair.server.conn.buffer.size < Limits().max_buffered_bytes


def test_a_sender_that_ignores_its_receiver_reaches_the_connection_limit() -> None:
    victim = Victim(is_client=False, limits=Limits(max_buffered_bytes=1 << 20))
    for index in range(1, 1000):
        victim.uni(message(0, channel=8 * index), fin=False)
        victim.stream(2 + 4 * (index - 1), Message(8 * index, 1, (), bytes(60_000)).encode())
        victim.stream(2 + 4 * (index - 1), Message(8 * index, 2, (), bytes(60_000)).encode())
        assert victim.conn.buffer.size <= (2 << 20) + 65_536
        if victim.ended:
            break
    assert victim.ended
    assert held(victim.commands)[:1] == [True]  # type: ignore[arg-type]


def test_a_receiver_stops_waiting_once_it_has_a_message_or_has_ended() -> None:
    pair = Pair(limits=LIMITS)
    *unread, wanted, closed = opened(pair, 8)
    assert take(pair.server.conn, wanted) is None
    assert take(pair.server.conn, closed) is None
    pair.client.conn.send(wanted, b"tide")
    pair.server.conn.close_receiver(closed)
    pair.run()
    fill(pair, unread[:5], LIMIT // 4)
    assert held(pair.server.sent) == [True]
    assert pair.server.conn.buffer.awaited.keys() <= {pair.server.conn.channels.receivers[wanted]}


def test_deferred_early_data_waits_for_the_handshake() -> None:
    from mainstem.aqueduct.engine import AqueductEngine

    pair = Pair(start=False)
    pair.server.conn = AqueductEngine(is_client=False, early_data=True, peer="the client")
    pair.client.conn.start(pair.now)
    pair.client.conn.send(0, b"early")
    pair.client.conn.send(0, b"early and alone", mode=Mode.UNORDERED)
    pair.client.conn.send(0, b"early in a datagram", mode=Mode.UNRELIABLE)
    pair.run()
    assert pair.server.events == [], "not even the headers"
    assert pair.server.sent == []
    pair.now += SECOND
    pair.server.conn.handshake_completed(pair.now)
    pair.run()
    assert sorted(pair.payloads(pair.server, 0)) == [b"early", b"early and alone", b"early in a datagram"]


def test_resuming_many_streams_does_not_recurse() -> None:
    victim = Victim(is_client=False, limits=Limits(receive_messages=400))
    victim.uni(*[message(number) for number in range(400)], fin=False)
    for number in range(100):
        # The first does not fit. The second is far from the others, so each is processed alone.
        victim.uni(message(400 + number), message(1000 - 2 * number), fin=False)
    limit = sys.getrecursionlimit()
    frames = len(inspect.stack(0))
    sys.setrecursionlimit(frames + 60)
    try:
        taken = 0
        while victim.conn.receive(0) is not None:
            taken += 1
    finally:
        sys.setrecursionlimit(limit)
    assert taken == 600
    assert victim.error is None
