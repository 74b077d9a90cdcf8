"""A bymux connection's credit, turns, heartbeats and endings."""

from __future__ import annotations

import pytest
from tests.support.mux_engines import drain, shuttle

from mainstem.bymux import INFINITE, HalfState, InitialStream, Role, Settings, events
from mainstem.bymux.codec import Packet, encode_stream
from mainstem.bymux.engine import BymuxEngine
from mainstem.errors import ClosedError, ConfigurationError, LocalProtocolError, Timeout
from mainstem.mux.engine import LONE_BYTES

SECOND = 1_000_000_000
MANUAL = Settings(stream_window=0, peer_streams=0)


def pair(settings: Settings | None = None, other: Settings | None = None) -> tuple[BymuxEngine, BymuxEngine]:
    a = BymuxEngine(Role.PROACTIVE, settings)
    b = BymuxEngine(Role.REACTIVE, other or settings)
    shuttle(a, b)
    drain(a)
    drain(b)
    return a, b


def test_a_default_connection_starts_without_streams_or_credit() -> None:
    a = BymuxEngine(Role.PROACTIVE, MANUAL)
    assert not a.can_open
    assert a.data_to_send() == b""
    with pytest.raises(LocalProtocolError) as caught:
        a.open_stream()
    assert caught.value.rule == "create-beyond-credit"


def test_each_role_creates_ids_of_its_parity_and_takes_the_lowest_free_one() -> None:
    a, b = pair()
    first, second = a.open_stream(), a.open_stream()
    assert (first.id, second.id, b.open_stream().id) == (0, 2, 1)
    a.close(first)
    a.stop_read(first)
    shuttle(a, b)
    assert first.ended
    assert a.open_stream().id == 0
    with pytest.raises(LocalProtocolError) as caught:
        a.open_stream(7)
    assert caught.value.rule == "create-wrong-parity"
    with pytest.raises(LocalProtocolError) as caught:
        a.open_stream(2)
    assert caught.value.rule == "create-active-id"


def test_data_waits_for_credit() -> None:
    a, b = pair(MANUAL)
    b.allow_streams(1)
    shuttle(a, b)
    stream = a.open_stream()
    a.write(stream, b"abcdef")
    shuttle(a, b)
    opened = drain(b)[0]
    assert isinstance(opened, events.StreamOpened)
    assert stream.queued == 6
    b.grant(opened.stream, 4)
    shuttle(a, b)
    assert drain(b) == [events.DataReceived(opened.stream, b"abcd")]
    b.grant(opened.stream, 100)
    shuttle(a, b)
    assert drain(b) == [events.DataReceived(opened.stream, b"ef")]
    assert (stream.send_credit, opened.stream.receive_credit) == (98, 98)


def test_credit_is_granted_once_it_reaches_what_the_peer_has_left() -> None:
    settings = Settings(stream_window=100)
    a, b = pair(settings)
    stream = a.open_stream()
    a.write(stream, bytes(40))
    shuttle(a, b)
    peer = b.streams[0]
    b.consume(peer, 40)
    assert b.data_to_send() == b""  # 40 bytes could be granted, but the peer has 60 left
    a.write(stream, bytes(11))
    b.receive_data(a.data_to_send())
    b.consume(peer, 11)
    assert b.data_to_send() == encode_stream(0, 0, 51)  # type: ignore[arg-type]
    assert peer.receive_credit == 100


def test_unread_bytes_are_never_granted() -> None:
    settings = Settings(stream_window=100)
    a, b = pair(settings)
    stream = a.open_stream()
    a.write(stream, bytes(1000))
    shuttle(a, b)
    peer = b.streams[0]
    held = sum(len(event.data) for event in drain(b) if isinstance(event, events.DataReceived))
    assert (held, stream.queued, peer.unconsumed) == (100, 900, 100)
    b.consume(peer, 1)
    shuttle(a, b)
    assert peer.unconsumed + peer.receive_credit == 100
    with pytest.raises(LocalProtocolError):
        b.consume(peer, 101)


def test_infinite_credit_is_an_explicit_zero_and_cannot_grow() -> None:
    a, b = pair(Settings(stream_window=INFINITE))
    stream = a.open_stream()
    a.write(stream, bytes(10_000_000))
    shuttle(a, b)
    assert stream.queued == 0
    assert stream.send_credit == INFINITE
    peer = b.streams[0]
    with pytest.raises(LocalProtocolError) as caught:
        b.grant(peer, 1)
    assert caught.value.rule == "credit-on-infinite"
    b.grant(peer, INFINITE)
    assert b.data_to_send() == b""


def test_a_sum_of_grants_never_becomes_infinite() -> None:
    a, b = pair(MANUAL)
    b.allow_streams(1)
    shuttle(a, b)
    a.open_stream()
    shuttle(a, b)
    peer = b.streams[0]
    b.grant(peer, INFINITE - 1)
    with pytest.raises(LocalProtocolError) as caught:
        b.grant(peer, 1)
    assert caught.value.rule == "credit-overflow"


def test_streams_take_turns_one_packet_at_a_time() -> None:
    settings = Settings(stream_window=INFINITE, packet_limit=1000)
    a, b = pair(settings)
    bulk, other, small = a.open_stream(), a.open_stream(), a.open_stream()
    shuttle(a, b)
    a.write(bulk, bytes(100_000))
    a.write(other, bytes(2000))
    first = a.data_to_send(1)
    assert len(first) == 4 + 1000
    a.write(small, b"!")  # sent before the rest of the other two
    b.receive_data(first)
    shuttle(a, b)
    b_events = drain(b)
    position = next(i for i, e in enumerate(b_events) if isinstance(e, events.DataReceived) and e.data == b"!")
    before = [e for e in b_events[:position] if isinstance(e, events.DataReceived)]
    assert sum(len(e.data) for e in before) <= 1000
    assert sum(len(e.data) for e in b_events if isinstance(e, events.DataReceived)) == 102_001


def test_responses_precede_data() -> None:
    a, b = pair(Settings(stream_window=INFINITE))
    stream = a.open_stream()
    shuttle(a, b)
    a.write(stream, bytes(10_000_000))
    a.data_to_send(1)
    b.ping()
    a.receive_data(b.data_to_send())
    assert a.data_to_send(1)[:1] == b"\x70"


def test_close_follows_the_last_byte_and_is_answered_by_stop_read() -> None:
    a, b = pair()
    stream = a.open_stream()
    a.write(stream, b"last")
    a.close(stream)
    with pytest.raises(LocalProtocolError):
        a.write(stream, b"more")
    with pytest.raises(LocalProtocolError):
        a.close(stream)
    shuttle(a, b)
    peer = b.streams[0]
    assert drain(b) == [events.StreamOpened(peer), events.DataReceived(peer, b"last"), events.StreamFinished(peer)]
    assert (stream.local, stream.peer, peer.local, peer.peer) == (
        HalfState.CLOSED,
        HalfState.STOPPED,
        HalfState.STOPPED,
        HalfState.CLOSED,
    )
    b.write(peer, b"still")
    b.close(peer)
    shuttle(a, b)
    assert stream.ended
    assert peer.ended
    assert drain(a) == [
        events.StreamReadStopped(stream, 0),
        events.DataReceived(stream, b"still"),
        events.StreamFinished(stream),
        events.StreamEnded(stream),
    ]


def test_after_stop_read_credited_bytes_are_sent_and_the_rest_is_reported_lost() -> None:
    a, b = pair(Settings(stream_window=10))
    stream = a.open_stream()
    shuttle(a, b)
    peer = b.streams[0]
    a.write(stream, bytes(6))
    shuttle(a, b)
    a.write(stream, bytes(9))
    b.stop_read(peer)
    a.receive_data(b.data_to_send())
    assert events.StreamReadStopped(stream, 5) in drain(a)
    assert a.data_to_send() == encode_stream(1, 0, 4) + bytes(4) + encode_stream(4, 0)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError):
        a.write(stream, b"x")


def test_stream_credit_is_restored_once_an_ended_stream_was_read() -> None:
    a, b = pair(Settings(peer_streams=1))
    stream = a.open_stream()
    a.write(stream, b"held")
    a.close(stream)
    shuttle(a, b)
    peer = b.streams[0]
    b.close(peer)
    shuttle(a, b)
    assert stream.ended
    assert not a.can_open
    b.consume(peer, 4)
    shuttle(a, b)
    assert a.can_open


def test_initial_credit_allows_writing_at_once() -> None:
    ours = Settings(local_initial_credit=5, peer_initial_credit=INFINITE, initial_local_streams=1)
    theirs = Settings(local_initial_credit=INFINITE, peer_initial_credit=5, initial_peer_streams=1, stream_window=5)
    a, b = BymuxEngine(Role.PROACTIVE, ours), BymuxEngine(Role.REACTIVE, theirs)
    stream = a.open_stream()
    a.write(stream, b"hello!")
    b.receive_data(a.data_to_send())
    assert [e.data for e in drain(b) if isinstance(e, events.DataReceived)] == [b"hello"]
    assert b.streams[0].receive_credit == 0
    a.receive_data(b.data_to_send())
    mine = b.open_stream()
    assert mine.send_credit == INFINITE


def test_initial_streams_and_half_states_are_configurable() -> None:
    initial = Settings(
        initial_streams=(InitialStream(4, local_credit=3, peer_credit=300_000),),
        initial_local_state=HalfState.DONE,
        initial_peer_state=HalfState.DONE,
    )
    other = Settings(
        initial_streams=(InitialStream(4, local_credit=300_000, peer_credit=3),),
        stream_window=3,
        initial_local_state=HalfState.DONE,
        initial_peer_state=HalfState.DONE,
    )
    a, b = BymuxEngine(Role.PROACTIVE, initial), BymuxEngine(Role.REACTIVE, other)
    assert a.data_to_send() == b.data_to_send() == b""
    a.write(a.streams[4], b"abc")
    b.write(b.streams[4], bytes(300_000))
    a.close(a.streams[4])
    b.close(b.streams[4])
    shuttle(a, b)
    for end in (a, b):
        assert any(isinstance(event, events.ConnectionFinished) for event in drain(end))
        assert not end.can_open


def test_finish_ends_the_connection_after_its_last_stream() -> None:
    a, b = pair()
    stream = a.open_stream()
    shuttle(a, b)
    a.finish()
    shuttle(a, b)
    drain(a)
    assert (a.local, a.peer, b.local, b.peer) == (HalfState.DONE,) * 4
    a.close(stream)
    b.close(b.streams[0])
    shuttle(a, b)
    assert events.ConnectionFinished() in drain(a)
    assert events.ConnectionFinished() in drain(b)
    a.receive_eof()
    assert drain(a) == [events.ConnectionEnded(True)]


def test_eof_before_the_protocol_ends_is_not_clean() -> None:
    a, b = pair()
    a.open_stream()
    shuttle(a, b)
    drain(b)
    b.receive_eof()
    assert drain(b) == [events.ConnectionEnded(False)]


def test_a_silent_peer_is_pinged_and_then_presumed_dead() -> None:
    settings = Settings(ping_interval=5, ping_timeout=2)
    a, b = pair(settings)
    assert a.next_timeout_ns() == 5 * SECOND
    a.handle_timeout(5 * SECOND)
    assert a.data_to_send() == b"\x50"
    assert a.next_timeout_ns() == 7 * SECOND
    with pytest.raises(Timeout) as caught:
        a.handle_timeout(7 * SECOND)
    assert caught.value.timeout == 2.0
    assert b.failure is None


@pytest.mark.parametrize("streams", [0, 1])
def test_a_peer_that_owes_its_last_packets_is_presumed_dead_without_a_ping(streams: int) -> None:
    a, b = pair(Settings(ping_interval=5, ping_timeout=2))
    for _ in range(streams):
        stream = a.open_stream()
        a.close(stream)
        a.stop_read(stream)
    a.finish()
    assert a.data_to_send()
    a.handle_timeout(5 * SECOND)
    assert a.data_to_send() == b""
    with pytest.raises(Timeout):
        a.handle_timeout(7 * SECOND)
    assert b.failure is None


def test_a_finished_peer_may_be_silent() -> None:
    a, b = pair(Settings(ping_interval=5, ping_timeout=2))
    a.finish()
    shuttle(a, b)
    assert events.ConnectionFinished() in drain(a)
    for second in range(5, 60):
        a.handle_timeout(second * SECOND)
    assert a.data_to_send() == b""
    assert a.failure is None


def test_initial_half_states_leave_no_packet_owed() -> None:
    agreed = Settings(ping_interval=5, ping_timeout=2, initial_local_state=HalfState.DONE, allow_at_start=False)
    a = BymuxEngine(Role.PROACTIVE, agreed)
    for second in range(5, 60):
        a.handle_timeout(second * SECOND)
    assert a.failure is None


def test_finish_raises_once_the_connection_has_ended() -> None:
    a, b = pair()
    a.finish()
    shuttle(a, b)
    a.receive_eof()
    with pytest.raises(ClosedError):
        a.finish()


def test_a_pong_reports_the_round_trip_and_counts_as_a_heartbeat() -> None:
    a, b = pair(Settings(ping_interval=5, ping_timeout=2))
    a.handle_timeout(5 * SECOND)
    b.receive_data(a.data_to_send(), 5 * SECOND)
    a.receive_data(b.data_to_send(), 6 * SECOND)
    assert events.PongReceived(None, SECOND) in drain(a)
    assert a.next_timeout_ns() == 11 * SECOND


def test_each_stream_has_its_own_heartbeat() -> None:
    quiet = Settings(stream_ping_interval=5, stream_ping_timeout=1)
    deaf = Settings(send_stream_pongs=False)
    a, b = pair(quiet, deaf)
    first, second = a.open_stream(), a.open_stream()
    shuttle(a, b)
    assert a.next_timeout_ns() == 5 * SECOND
    a.handle_timeout(5 * SECOND)
    b.receive_data(a.data_to_send())
    pinged = [event.stream for event in drain(b) if isinstance(event, events.PingReceived)]
    assert [stream.id for stream in pinged if stream] == [0, 2]
    b.pong(b.streams[0])
    a.receive_data(b.data_to_send(), 5 * SECOND + 7)
    assert events.PongReceived(first, 7) in drain(a)
    assert a.next_timeout_ns() == 6 * SECOND
    a.handle_timeout(6 * SECOND)
    assert drain(a) == [events.StreamTimedOut(second)]
    assert a.next_timeout_ns() == 10 * SECOND + 7


def test_unsolicited_pongs_of_a_stream_leave_nothing_behind() -> None:
    a, b = pair(Settings(stream_ping_interval=5, stream_ping_timeout=1), Settings())
    first, second = a.open_stream(), a.open_stream()
    shuttle(a, b)
    for now_ns in range(1000):
        a.receive_data(encode_stream(Packet.PONG, second.id), now_ns)
    assert len(a._timers) <= 2
    # The heartbeats are still right: each stream is pinged when it has been silent for the interval.
    a.handle_timeout(5 * SECOND)
    shuttle(a, b, now_ns=5 * SECOND)
    drain(a)
    assert a.next_timeout_ns() == 5 * SECOND + 999
    for now_ns in range(5 * SECOND, 100 * SECOND, SECOND):
        for number in range(100):
            a.receive_data(encode_stream(Packet.PONG, second.id), now_ns + number)
        while (due := a.next_timeout_ns()) is not None and due <= now_ns + 99:
            a.handle_timeout(now_ns + 99)
            b.receive_data(a.data_to_send())
            a.receive_data(b.data_to_send(), now_ns + 99)
    assert len(a._timers) <= 4
    assert not [event for event in drain(a) if isinstance(event, events.StreamTimedOut)]
    assert not first.ended


def test_pings_are_bounded_and_unsolicited_pongs_ignored() -> None:
    a, b = pair()
    b.receive_data(b"\x70")
    assert drain(b) == [events.PongReceived(None, -1)]
    for _ in range(64):
        a.ping()
    with pytest.raises(LocalProtocolError) as caught:
        a.ping()
    assert caught.value.rule == "ping-limit"


def test_an_event_reports_that_a_queue_has_drained() -> None:
    a, b = pair(Settings(stream_window=1000))
    stream = a.open_stream()
    a.write(stream, bytes(3000))
    stream.notify_below = 1500
    shuttle(a, b)
    assert drain(a) == []
    b.consume(b.streams[0], 1000)
    shuttle(a, b)
    assert drain(a) == [events.StreamDrained(stream)]
    assert stream.queued == 1000


def test_mutable_data_is_copied_when_written() -> None:
    a, b = pair()
    stream = a.open_stream()
    data = bytearray(b"before")
    a.write(stream, data)
    data[:] = b"after!"
    shuttle(a, b)
    assert drain(b)[1] == events.DataReceived(b.streams[0], b"before")


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream_window": -1},
        {"peer_streams": 2**64},
        {"packet_limit": 0},
        {"initial_streams": (InitialStream(1), InitialStream(1))},
    ],
)
def test_invalid_settings_are_rejected(wrong: dict) -> None:
    with pytest.raises(ConfigurationError):
        Settings(**wrong)


def test_idle_streams_send_nothing() -> None:
    a, b = pair(Settings(peer_streams=2000, ping_interval=None))
    streams = [a.open_stream() for _ in range(1000)]
    shuttle(a, b)
    drain(b)
    assert not a.wants_to_send
    assert not b.wants_to_send
    assert a.next_timeout_ns() is None
    busy = a.open_stream()
    a.write(busy, b"x")
    shuttle(a, b)
    assert [event for event in drain(b) if isinstance(event, events.DataReceived)] == [
        events.DataReceived(b.streams[busy.id], b"x")
    ]
    assert not a._ready
    assert len(streams) + 1 == len(b.streams)


def test_credit_is_restored_throughout_a_stream() -> None:
    a, b = pair(Settings(stream_window=1 << 16))
    stream = a.open_stream()
    received = 0
    for _ in range(80):
        a.write(stream, bytes(1 << 15))
        shuttle(a, b)
        for event in drain(b):
            if isinstance(event, events.DataReceived):
                received += len(event.data)
                b.consume(event.stream, len(event.data))
        shuttle(a, b)
    assert received == 80 << 15


def test_aborting_a_stream_sets_the_abort_bit_of_its_close() -> None:
    a, b = pair()
    stream = a.open_stream()
    a.write(stream, b"never sent")
    a.close(stream, discard=True)
    sent = a.data_to_send()
    assert bytes((0x81, stream.id)) in sent
    b.receive_data(sent)
    assert events.StreamFinished(b.streams[stream.id], aborted=True) in drain(b)


def test_aborting_sends_an_ordinary_close_without_mark_aborts() -> None:
    a, b = pair(Settings(mark_aborts=False))
    stream = a.open_stream()
    a.close(stream, discard=True)
    sent = a.data_to_send()
    assert bytes((0x80, stream.id)) in sent
    b.receive_data(sent)
    assert events.StreamFinished(b.streams[stream.id]) in drain(b)


def test_a_held_stream_counts_against_the_limit_after_it_ended() -> None:
    a, b = pair(Settings(peer_streams=1))
    b.holds_streams = True
    stream = a.open_stream()
    a.stop_read(stream)
    a.close(stream)
    b.receive_data(a.data_to_send())
    (opened,) = (event.stream for event in drain(b) if isinstance(event, events.StreamOpened))
    shuttle(a, b)
    assert opened.ended
    assert not a.can_open
    b.release(opened)
    shuttle(a, b)
    assert a.can_open


@pytest.mark.parametrize("length", [0, 1, 255, 256, 1000, 1001, LONE_BYTES, LONE_BYTES + 1])
@pytest.mark.parametrize("credit", [0, 1000, INFINITE])
def test_a_lone_write_is_encoded_as_a_queued_one(length: int, credit: int) -> None:
    settings = Settings(stream_window=credit)
    data = bytearray(length)
    ends = [pair(settings)[0] for _ in range(2)]
    streams = [end.open_stream() for end in ends]
    for end, stream in zip(ends, streams, strict=True):
        assert end.packet_of(stream, b"?") == b""  # its creation is still queued
        end.data_to_send()
        if credit:
            end.receive_data(encode_stream(0, stream.id, 0 if credit == INFINITE else credit))  # type: ignore[arg-type]
    packet = ends[0].packet_of(streams[0], data)
    whole = 0 < length <= min(credit, LONE_BYTES)
    assert bool(packet) == whole
    if not whole:
        ends[0].write(streams[0], data)
    ends[1].write(streams[1], data)
    assert packet + ends[0].data_to_send() == ends[1].data_to_send()
    assert (streams[0].sent, streams[0].send_credit) == (streams[1].sent, streams[1].send_credit)
    ends[0].close(streams[0])
    assert ends[0].packet_of(streams[0], b"?") == b""
