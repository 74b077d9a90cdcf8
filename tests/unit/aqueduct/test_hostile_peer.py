"""One test per rule that a peer can break: the connection ends, and the error names the rule and the peer."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.support.aqueduct_frames import (
    AckNackUnreliable,
    AckReliable,
    ChannelControl,
    ClosedChannelLost,
    CloseReceiver,
    ConnectionControl,
    FinishSender,
    Frame,
    Message,
    SentUnreliable,
    Version,
)
from victim import CLIENT_UNI, HELLO, SMALL, Victim, attached_client, client, message, server

from mainstem.aqueduct.events import Attach, CloseConnection, Mode, ResetStream
from mainstem.aqueduct.frames import VERSION_BYTES, encode_uint
from mainstem.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable


def control_of_entrypoint(victim: Victim) -> int:
    """Return the stream that a server has opened for the entrypoint's receiver."""
    return 1


def _ack(*frames: Frame, mode: Mode = Mode.ORDERED, count: int = 1) -> Callable[[], Victim]:
    def attack() -> Victim:
        victim, stream_id = attached_client(mode=mode, count=count)
        victim.stream(stream_id, b"".join(frame.encode() for frame in frames))
        return victim

    return attack


def _entry(*frames: Frame, fin: bool = False, before: tuple[Frame, ...] = ()) -> Callable[[], Victim]:
    def attack() -> Victim:
        victim = server()
        for frame in before:
            victim.uni(frame)
        victim.stream(control_of_entrypoint(victim), b"".join(frame.encode() for frame in frames), fin)
        return victim

    return attack


def _on(make: Callable[[], Victim], *steps: Callable[[Victim], object]) -> Callable[[], Victim]:
    def attack() -> Victim:
        victim = make()
        for step in steps:
            assert not victim.ended, f"ended too early: {victim.error}"
            step(victim)
        return victim

    return attack


def _early(*steps: Callable[[Victim], object]) -> Callable[[], Victim]:
    return _on(lambda: Victim(is_client=False, greet=False), *steps)


ONESHOT_HERE = 0b100  # to the server, minted by the client, oneshot
ATTACKS: dict[str, tuple[str, Callable[[], Victim]]] = {
    # Frames in general.
    "unknown frame type": ("frame type", _on(server, lambda v: v.stream(2, b"\x63"))),
    "overlong integer": ("canonical integer", _on(server, lambda v: v.stream(2, b"\x03\x80\x00"))),
    "integer beyond 64 bits": (
        "canonical integer",
        _on(server, lambda v: v.stream(2, b"\x03" + b"\xff" * 9 + b"\x02")),
    ),
    "partial frame at a stream's end": (
        "partial frame",
        _on(server, lambda v: v.stream(2, message().encode()[:-1], True)),
    ),
    "stream without a frame": ("empty stream", _on(server, lambda v: v.stream(2, b"", True))),
    "empty datagram": ("partial frame", _on(server, lambda v: v.datagram())),
    "partial frame in a datagram": (
        "partial frame",
        _on(server, lambda v: v.conn.receive_datagram(message().encode()[:-1], v.now), Victim.pump),
    ),
    "other frame in a datagram": ("frame place", _on(server, lambda v: v.datagram(SentUnreliable(1)))),
    "version late in a datagram": ("version place", _on(server, lambda v: v.datagram(message(), Version()))),
    "version late in a stream": ("version place", _on(server, lambda v: v.uni(message(), Version()))),
    "another version": ("version", _early(lambda v: v.stream(0, Version(b"9").encode()))),
    "other magic": ("version magic", _early(lambda v: v.stream(0, b"\xefHTTP/1.1"))),
    "payload beyond the limit": (
        "size limit",
        _on(server, lambda v: v.stream(2, Message(0, 0, (), bytes(5000)).encode()[:20])),
    ),
    "attachments beyond the limit in bytes": (
        "attachment limit",
        _on(server, lambda v: v.stream(2, b"\x03\x00\x00" + encode_uint(1 << 20))),
    ),
    "attachments beyond the limit in number": (
        "attachment limit",
        _on(server, lambda v: v.uni(message(attachments=[8] * 1025))),
    ),
    "attachments that end within an id": (
        "attachments",
        _on(server, lambda v: v.stream(2, b"\x03\x00\x00\x01\x80\x00")),
    ),
    # Start of the connection.
    "no version before the server's answer": (
        "version first",
        _early(lambda v: v.stream(0, ConnectionControl().encode())),
    ),
    "messages without a version before the answer": (
        "version first",
        _early(lambda v: v.stream(2, message().encode())),
    ),
    "datagram without a version before the answer": (
        "version first",
        _early(lambda v: v.datagram(message())),
    ),
    "two connection controls on one stream": (
        "connection control once",
        _on(server, lambda v: v.stream(0, ConnectionControl().encode())),
    ),
    "two connection controls on two streams": (
        "connection control once",
        _on(server, lambda v: v.bidi(Version(), ConnectionControl())),
    ),
    "connection control on a unidirectional stream": (
        "connection control place",
        _early(lambda v: v.stream(2, HELLO)),
    ),
    "server's connection control elsewhere": (
        "connection control place",
        _on(client, lambda v: v.bidi(Version(), ConnectionControl())),
    ),
    "server's connection control without a version": (
        "connection control place",
        _on(lambda: Victim(is_client=True, greet=False), lambda v: v.stream(0, ConnectionControl().encode())),
    ),
    "headers beyond the limit": (
        "size limit",
        _early(lambda v: v.stream(0, VERSION_BYTES + b"\x01" + encode_uint(1 << 20))),
    ),
    "headers that end within a byte array": (
        "header data",
        _early(lambda v: v.stream(0, VERSION_BYTES + b"\x01\x02\x05a")),
    ),
    "header key that is empty": ("header key", _early(lambda v: v.stream(0, VERSION_BYTES + b"\x01\x02\x00\x00"))),
    "header key beyond ASCII": (
        "header key",
        _early(lambda v: v.stream(0, VERSION_BYTES + b"\x01\x03\x01\xe9\x00")),
    ),
    "version twice on the connection control stream": (
        "version place",
        _early(lambda v: v.stream(0, Version().encode() + HELLO)),
    ),
    "version twice before the hello": ("version place", _early(lambda v: v.stream(2, Version().encode() * 2))),
    "nonsense after a version before the hello": (
        "frame type",
        _early(lambda v: v.stream(2, Version().encode()), lambda v: v.stream(2, b"\x63")),
    ),
    "acknowledgment before the hello": ("frame place", _early(lambda v: v.bidi(Version(), AckReliable((1,))))),
    "acknowledgment on one direction before the hello": (
        "frame place",
        _early(lambda v: v.stream(2, Version().encode() + AckReliable((1,)).encode())),
    ),
    "nonsense in a datagram before the hello": (
        "frame type",
        _early(lambda v: v.conn.receive_datagram(Version().encode() + b"\x63", v.now), lambda v: v.pump()),
    ),
    "half a message in a datagram before the hello": (
        "partial frame",
        _early(
            lambda v: v.conn.receive_datagram(Version().encode() + message().encode()[:-1], v.now), lambda v: v.pump()
        ),
    ),
    "control frame in a datagram before the hello": (
        "frame place",
        _early(lambda v: v.datagram(Version(), ChannelControl(0))),
    ),
    "nonsense in a datagram before the server's response": (
        "frame type",
        _on(
            lambda: Victim(is_client=True, greet=False),
            lambda v: v.conn.receive_datagram(b"\x63", v.now),
            lambda v: v.pump(),
        ),
    ),
    "version beyond the limit": (
        "size limit",
        _early(lambda v: v.stream(0, Version(bytes(5000)).encode()[:20])),
    ),
    "server's connection control stream finished": (
        "connection control lasts",
        _on(client, lambda v: v.stream(0, b"", True)),
    ),
    "server's connection control stream reset": ("connection control lasts", _on(client, lambda v: v.reset(0, 2))),
    "server reads no more of the connection control stream": (
        "connection control lasts",
        _on(client, lambda v: v.stop(0)),
    ),
    "server's second connection control": (
        "connection control once",
        _on(client, lambda v: v.stream(0, ConnectionControl().encode())),
    ),
    "headers of an odd count": ("header pairs", _early(lambda v: v.stream(0, VERSION_BYTES + b"\x01\x02\x01a"))),
    "connection control stream finished": ("connection control lasts", _on(server, lambda v: v.stream(0, b"", True))),
    "connection control stream reset": ("connection control lasts", _on(server, lambda v: v.reset(0, 1))),
    "client reads no more of the connection control stream": (
        "connection control lasts",
        _on(server, lambda v: v.stop(0)),
    ),
    "other frame on the connection control stream": (
        "frame place",
        _on(server, lambda v: v.stream(0, SentUnreliable(1).encode())),
    ),
    "message before anything on a bidirectional stream": ("frame place", _on(server, lambda v: v.bidi(message()))),
    "acknowledgment first on a bidirectional stream": (
        "frame place",
        _on(server, lambda v: v.bidi(AckReliable((1,)))),
    ),
    "bidirectional stream for nothing": ("frame place", _on(server, lambda v: v.bidi(Version(), fin=True))),
    # Channels.
    "message that flows the other way": ("channel direction", _on(server, lambda v: v.uni(message(channel=1)))),
    "attachment minted by the receiver": ("attachment minter", _on(server, lambda v: v.uni(message(attachments=[2])))),
    "the entrypoint attached": ("attachment minter", _on(server, lambda v: v.uni(message(attachments=[0])))),
    "sender attached twice": ("attached twice", _on(server, lambda v: v.uni(message(attachments=[1, 1])))),
    "receiver attached twice": (
        "attached twice",
        _on(server, lambda v: v.uni(message(0, attachments=[8])), lambda v: v.uni(message(1, attachments=[8]))),
    ),
    "control stream for a channel of its own": ("control minter", _on(server, lambda v: v.bidi(ChannelControl(8)))),
    "second ChannelControl": ("frame place", _ack(ChannelControl(0))),
    "ChannelControl on a unidirectional stream": ("frame place", _on(server, lambda v: v.uni(ChannelControl(2)))),
    "notice beside another frame": ("frame place", _on(server, lambda v: v.uni(message(), ClosedChannelLost(8)))),
    "frame behind a notice": ("frame place", _on(server, lambda v: v.uni(ClosedChannelLost(8), message()))),
    "notice for a channel of the other side": ("notice minter", _on(server, lambda v: v.uni(ClosedChannelLost(2)))),
    "notice for the entrypoint": ("notice minter", _on(server, lambda v: v.uni(ClosedChannelLost(0)))),
    "notice in a datagram": ("frame place", _on(server, lambda v: v.datagram(ClosedChannelLost(8)))),
    "acknowledgment on a stream of messages": ("frame place", _on(server, lambda v: v.uni(AckReliable((1,))))),
    # Receivers.
    "reliable number twice": ("duplicate message", _on(server, lambda v: v.uni(message()), lambda v: v.uni(message()))),
    "unreliable number twice": (
        "duplicate message",
        _on(server, lambda v: v.datagram(message(3)), lambda v: v.datagram(message(3))),
    ),
    "the last number": ("message number", _on(server, lambda v: v.uni(message(2**64 - 1)))),
    "the last unreliable number": ("message number", _on(server, lambda v: v.datagram(message(2**64 - 1)))),
    "declaration of nothing": ("empty declaration", _entry(SentUnreliable(0))),
    "declarations beyond 64 bits": ("declaration overflow", _entry(SentUnreliable(2**64 - 1), SentUnreliable(1))),
    "finish below what was sent": ("message after finish", _entry(FinishSender(0), before=(message(),))),
    "message beyond the finish": (
        "message after finish",
        _on(server, lambda v: v.stream(1, FinishSender(2).encode()), lambda v: v.uni(message(2))),
    ),
    "unreliable message beyond the declared": (
        "message after finish",
        _on(server, lambda v: v.stream(1, FinishSender(1).encode()), lambda v: v.datagram(message(0))),
    ),
    "finish with undeclared messages": (
        "message after finish",
        _on(server, lambda v: v.datagram(message(0)), lambda v: v.stream(1, FinishSender(5).encode())),
    ),
    "frame behind FinishSender": ("last frame", _entry(FinishSender(1), SentUnreliable(1))),
    "frame behind a FinishSender that ends the channel": ("last frame", _entry(FinishSender(0), SentUnreliable(1))),
    "frame behind FinishSender, later": (
        "last frame",
        _on(
            server,
            lambda v: v.stream(1, FinishSender(0).encode()),
            lambda v: v.stream(1, SentUnreliable(1).encode()),
        ),
    ),
    "FinishSender twice": ("last frame", _entry(FinishSender(1), FinishSender(1))),
    "control stream ends without FinishSender": ("last frame missing", _entry(SentUnreliable(1), fin=True)),
    "receiver's frame from the sender": ("frame place", _entry(AckReliable((1,)))),
    "close from the sender": ("frame place", _entry(CloseReceiver())),
    "unknown code on a control stream": ("reset code", _on(server, lambda v: v.reset(1, 77))),
    # Acknowledgments.
    "acknowledged twice": ("acknowledged twice", _ack(AckReliable((0, 1, 1)), AckReliable((2,)), count=2)),
    "acknowledged twice, below the first unacknowledged number": (
        "acknowledged twice",
        _ack(AckReliable((0, 1, 2)), AckReliable((1, 1, 1)), count=3),
    ),
    "acknowledged unsent": ("acknowledged unsent", _ack(AckReliable((2,)))),
    "far beyond what was sent": ("acknowledged unsent", _ack(AckReliable((2**63,)))),
    "unreliable acknowledged unsent": ("acknowledged unsent", _ack(AckNackUnreliable((2,)), mode=Mode.UNRELIABLE)),
    "unreliable given up unsent": ("acknowledged unsent", _ack(AckNackUnreliable((1, 2**60)), mode=Mode.UNRELIABLE)),
    "close acknowledges unsent": ("acknowledged unsent", _ack(CloseReceiver((5,)))),
    "close acknowledges twice": (
        "acknowledged twice",
        _ack(AckReliable((0, 1, 1)), CloseReceiver((2,)), count=2),
    ),
    "frame behind CloseReceiver": ("last frame", _ack(CloseReceiver(), AckReliable((1,)))),
    "frame behind CloseReceiver, later": (
        "last frame",
        _on(
            lambda: attached_client()[0],
            lambda v: v.stream(1, CloseReceiver().encode()),
            lambda v: v.stream(1, CloseReceiver().encode()),
        ),
    ),
    "range data of a single zero": ("range data", _ack(AckReliable((0,)))),
    "range data with a zero within": ("range data", _ack(AckReliable((1, 0, 1)), count=2)),
    "range data that ends within an integer": (
        "range data",
        _on(lambda: attached_client()[0], lambda v: v.stream(1, b"\x05\x01\x80")),
    ),
    "range data beyond 64 bits": ("range data", _ack(AckReliable((0, 2**64 - 1, 1)))),
    "range data beyond the limit": (
        "size limit",
        _on(lambda: attached_client()[0], lambda v: v.stream(1, b"\x05" + encode_uint(1 << 20))),
    ),
    "sender's frame from the receiver": ("frame place", _ack(SentUnreliable(1))),
    "receiver's direction ends without CloseReceiver": (
        "last frame missing",
        _on(lambda: attached_client()[0], lambda v: v.stream(1, AckReliable((1,)).encode(), True)),
    ),
    "receiver's direction reset as cancelled": (
        "reset code",
        _on(lambda: attached_client()[0], lambda v: v.reset(1, 1)),
    ),
    # Oneshots.
    "second message on a oneshot": (
        "oneshot",
        _on(
            server, lambda v: v.uni(message(0, channel=ONESHOT_HERE)), lambda v: v.uni(message(1, channel=ONESHOT_HERE))
        ),
    ),
    "second message on a oneshot by the other carrier": (
        "oneshot",
        _on(
            server,
            lambda v: v.uni(message(0, channel=ONESHOT_HERE)),
            lambda v: v.datagram(message(0, channel=ONESHOT_HERE)),
        ),
    ),
    "oneshot that begins at one": ("oneshot", _on(server, lambda v: v.uni(message(1, channel=ONESHOT_HERE)))),
    "oneshot finished at two": (
        "oneshot",
        _on(
            server,
            lambda v: v.uni(message(0, attachments=[ONESHOT_HERE])),
            lambda v: v.stream(5, FinishSender(2).encode()),
        ),
    ),
    "two messages declared on a oneshot": (
        "oneshot",
        _on(
            server,
            lambda v: v.uni(message(0, attachments=[ONESHOT_HERE])),
            lambda v: v.stream(5, SentUnreliable(2).encode()),
        ),
    ),
    # Floods.
    "too many channels": (
        "channel limit",
        _on(server, lambda v: v.uni(message(attachments=[8 * n for n in range(1, 60)]))),
    ),
    "too many channels without their creating messages": (
        "channel limit",
        _on(server, lambda v: [v.uni(message(channel=8 * n)) for n in range(1, 60)]),
    ),
    "too many streams": ("stream limit", _on(server, lambda v: [v.stream(2 + 4 * n, b"\x03") for n in range(80)])),
    "too many gaps": (
        "gap limit",
        _on(server, lambda v: [(v.conn.receive(0), v.uni(message(2 * n))) for n in range(12)]),
    ),
    "too many gaps in datagrams": (
        "gap limit",
        _on(server, lambda v: [(v.conn.receive(0), v.datagram(message(2 * n))) for n in range(12)]),
    ),
    "bytes past flow control in half a frame each": (
        "buffer limit",
        _on(server, lambda v: [v.stream(2 + 4 * n, Message(0, n, (), bytes(4000)).encode()[:-1]) for n in range(20)]),
    ),
    "bytes past flow control behind a full queue": (
        "buffer limit",
        _on(server, lambda v: v.stream(2, b"".join(Message(0, n, (), bytes(4000)).encode() for n in range(20)))),
    ),
    "bytes before the greeting": (
        "buffer limit",
        _early(
            lambda v: [
                v.stream(2 + 4 * n, VERSION_BYTES + Message(0, n, (), bytes(4000)).encode()[:-1]) for n in range(20)
            ]
        ),
    ),
    "datagrams before the greeting": (
        "buffer limit",
        _early(lambda v: [v.datagram(Version(), Message(0, n, (), bytes(4000))) for n in range(20)]),
    ),
}


@pytest.mark.parametrize("name", list(ATTACKS))
def test_a_violation_ends_the_connection_and_names_the_rule_and_the_peer(name: str) -> None:
    rule, attack = ATTACKS[name]
    victim = attack()
    assert victim.ended, "the connection lives on"
    error = victim.error
    assert isinstance(error, RemoteProtocolError)
    assert error.rule == rule
    assert error.peer == "mallory"
    assert error.code == 1
    closes = [command for command in victim.commands if isinstance(command, CloseConnection)]
    assert [command.code for command in closes] == [1]
    assert victim.conn.live_halves == 0
    # It ignores everything that arrives afterward.
    victim.stream(2, b"\x63")
    victim.datagram(message())
    victim.reset(0, 5)
    assert victim.conn.data_to_send(victim.now) == []


def test_unusual_but_legal_input_is_accepted() -> None:
    victim = server()
    # Streams reset before one whole frame, with any code.
    victim.reset(2, 99)
    victim.reset(4, 99)
    victim.stream(6, b"\x03")
    victim.reset(6, 1)
    # A version prefix that is no longer needed; several channels on one stream; empty acknowledgments.
    victim.stream(10, VERSION_BYTES + message(0).encode() + message(0, channel=8).encode(), True)
    victim.stream(14, VERSION_BYTES, True)
    # A notice for an unknown channel, and late messages of an ended channel.
    victim.stream(18, ClosedChannelLost(80).encode(), True)
    victim.stream(22, message(0, channel=80).encode(), True)
    # A control stream for a nonexistent channel is reset and ends nothing else.
    stream_id = victim.bidi(ChannelControl(2))
    assert not victim.ended, victim.error
    assert ResetStream(stream_id, 2) in victim.commands
    # Later data on that stream is ignored.
    victim.stream(stream_id, CloseReceiver().encode(), True)
    assert not victim.ended, victim.error
    assert victim.conn.receive(0) is not None


def test_a_second_control_stream_for_a_channel_is_reset_as_lost() -> None:
    victim, first = attached_client()
    second = victim.bidi(ChannelControl(0))
    assert not victim.ended, victim.error
    assert ResetStream(second, 2) in victim.commands
    victim.stream(first, AckReliable((1,)).encode())
    assert not victim.ended, victim.error
    assert not victim.conn.channels.senders[0].count


def test_an_abandoned_unreliable_message_is_not_delivered_late() -> None:
    victim = server()
    victim.stream(1, SentUnreliable(2).encode())
    victim.datagram(message(1))
    victim.now += 5 * 10**9
    victim.conn.handle_timeout(victim.now)
    victim.datagram(message(0))
    assert not victim.ended, victim.error
    assert victim.conn.receive(0) is not None
    assert victim.conn.receive(0) is None
    assert victim.conn.context.counts.unreliable_late == 1


@pytest.mark.parametrize("frame", [AckReliable(()), AckNackUnreliable(()), AckReliable((0, 1)), AckReliable((1, 4))])
def test_meaningless_ranges_are_accepted(frame: Frame) -> None:
    victim, stream_id = attached_client(count=2)
    victim.stream(stream_id, frame.encode())
    assert not victim.ended, victim.error


def test_a_negative_range_may_cover_acknowledged_messages() -> None:
    victim, stream_id = attached_client(count=4)
    victim.stream(
        stream_id, AckReliable((0, 1, 1)).encode() + AckReliable((0, 2, 1)).encode() + AckReliable((1, 2, 1)).encode()
    )
    assert not victim.ended, victim.error
    assert not victim.conn.channels.senders[0].count


def test_the_filter_of_closed_channels_stays_within_its_limit() -> None:
    victim = server()
    for index in range(1, 200):
        # Only every other index is used, so that no ranges join.
        victim.uni(ClosedChannelLost(16 * index))
    assert not victim.ended
    filters = (victim.conn.channels.closed_ids, victim.conn.channels.attached_ids)
    assert sum(map(len, filters)) <= SMALL.max_filter_ranges


def test_a_flood_of_declarations_needs_only_a_few_deadlines() -> None:
    victim = server()
    for _ in range(10_000):
        victim.now += 1000
        victim.stream(1, SentUnreliable(2**40).encode())
    assert not victim.ended
    receiver = victim.conn.channels.receivers[0]
    assert len(receiver.expiries) < 10
    victim.now += 2 * 10**9
    victim.conn.handle_timeout(victim.now)
    victim.pump()
    assert receiver.mark == 10_000 * 2**40


def test_unread_messages_pause_reading_before_the_limit() -> None:
    victim = server()
    for number in range(12):
        victim.uni(message(number))
    assert not victim.ended
    assert victim.conn.channels.receivers[0].queued == SMALL.receive_messages
    seen = []
    while (incoming := victim.conn.receive(0)) is not None:
        seen.append(incoming.payload)
    assert len(seen) == 12
    assert victim.conn.buffer.size == 0


def test_endless_attachments_reach_the_channel_limit_on_a_client_too() -> None:
    victim = client()
    (inner,) = victim.send(attach=[(Attach.SENDER, False)])
    victim.uni(*[message(n, channel=inner, attachments=[3 + 8 * n]) for n in range(3)])
    victim.uni(message(3, channel=inner, attachments=[3 + 8 * n for n in range(3, 60)]))
    assert isinstance(victim.error, RemoteProtocolError)
    assert victim.error.rule == "channel limit"


def test_bytes_of_a_paused_stream_count_until_the_connection_ends() -> None:
    victim = server()
    stream_id = CLIENT_UNI
    victim.uni(*[message(number) for number in range(SMALL.receive_messages + 2)], fin=False)
    sent = 0
    while not victim.ended and sent < 1000:
        victim.stream(stream_id, bytes(1000), False)
        sent += 1
        assert victim.conn.buffer.size <= 2 * SMALL.max_buffered_bytes + 1000
    assert isinstance(victim.error, RemoteProtocolError)
    assert victim.error.rule == "buffer limit"
    assert sent <= 2 * SMALL.max_buffered_bytes // 1000 + 1


@pytest.mark.parametrize("number", [2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1])
def test_message_numbers_have_up_to_64_bits(number: int) -> None:
    victim = server()
    for carrier in (victim.uni, victim.datagram):
        carrier(message(number), message(min(number + 1, 2**64 - 1)))
        victim.now += 10**9
        victim.conn.handle_timeout(victim.now)
        victim.pump()
    assert not victim.ended or isinstance(victim.error, RemoteProtocolError)


def test_extreme_numbers_cause_only_protocol_errors() -> None:
    numbers = [0, 1, 2, 2**61, 2**62, 2**63 - 1025, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
    rng = random.Random(32)

    def frame() -> Frame:
        counts = tuple(rng.choice(numbers) for _ in range(rng.randrange(4)))
        number = rng.choice(numbers)
        return rng.choice(
            [
                Message(rng.choice((0, 0, ONESHOT_HERE, 8)), number, (), b"tide"),
                AckReliable(counts),
                AckNackUnreliable(counts),
                CloseReceiver(counts),
                FinishSender(number),
                SentUnreliable(number),
            ]
        )

    for _ in range(2000):
        victim, stream_id = (server(), 1) if rng.random() < 0.5 else attached_client(count=2)
        while not victim.ended and rng.random() < 0.8:
            frames = [frame() for _ in range(rng.randrange(1, 4))]
            way = rng.randrange(3)
            if way == 0:
                victim.uni(*frames, fin=rng.random() < 0.5)
            elif way == 1:
                victim.datagram(*frames)
            else:
                victim.stream(stream_id, b"".join(each.encode() for each in frames))
            victim.now += 10**9
            victim.conn.handle_timeout(victim.now)
            victim.pump()
        assert victim.error is None or isinstance(victim.error, RemoteProtocolError)
