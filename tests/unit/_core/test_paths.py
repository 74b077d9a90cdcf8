"""A send path and a receive path with a memory network between them, compiled and uncompiled."""

from __future__ import annotations

import random
import socket
import struct

import pytest
from tests.unit._core.network import (
    HIGH_WATER_MARK,
    INITIAL_TERM_ID,
    PRESSURE,
    PUBLISHER_LIMIT,
    PUBLISHER_POSITION,
    RECEIVER_ADDRESS,
    RECEIVER_POSITION,
    SENDER_ADDRESS,
    SENDER_LIMIT,
    SENDER_POSITION,
    SESSION_ID,
    SPY,
    STREAM_ID,
    SUBSCRIBER,
    TERM_LENGTH,
    Modules,
    Pair,
    frame,
    modules,
)

from mainstem._core import layout
from mainstem._core.system_counter import SystemCounter

MS = 1_000_000


@pytest.fixture(params=[True, False], ids=["compiled", "uncompiled"])
def core(request: pytest.FixtureRequest) -> Modules:
    return modules(compiled=request.param)


def status(
    position: int,
    window: int,
    *,
    flags: int = 0,
    receiver_id: int = 99,
    session_id: int = SESSION_ID,
    term_length: int = TERM_LENGTH,
) -> bytes:
    term_id, offset = INITIAL_TERM_ID + position // term_length, position % term_length
    return struct.pack(
        "<iBBHiiiiiq", 36, 0, flags, layout.TYPE_SM, session_id, STREAM_ID, term_id, offset, window, receiver_id
    )


def nak(offset: int, length: int, *, term_id: int = INITIAL_TERM_ID) -> bytes:
    return struct.pack("<iBBHiiiii", 28, 0, 0, 2, SESSION_ID, STREAM_ID, term_id, offset, length)


def kinds(events: list[tuple[int, int, int, int, int, int, bytes, bytes]]) -> list[int]:
    return [event[0] for event in events]


@pytest.mark.parametrize("seed", range(4))
def test_both_logs_become_equal_over_any_network(core: Modules, seed: int) -> None:
    faults = random.Random(seed)
    pair = Pair(core)
    pair.connect()
    wanted: list[bytes] = []
    seen: list[bytes] = []
    read = 0
    while pair.writer.position < 5 * pair.term_length:
        pair.writer.limit = pair.send_path.publisher_limit
        payload = faults.randbytes(faults.randrange(0, 1377))
        while pair.writer.append(payload):
            wanted.append(payload)
            payload = faults.randbytes(faults.randrange(0, 1377))
        for _ in range(3):
            pair.now_ns += MS
            pair.cycle()
            pair.deliver(faults, loss=0.2, duplicates=0.1, reorder=True)
        read += pair.read(read, seen)
        pair.consume()
    for _ in range(400):
        pair.now_ns += 20 * MS
        pair.cycle()
        pair.deliver(faults, loss=0.2)
        read += pair.read(read, seen)
        pair.consume()
        if read == pair.writer.position:
            break
    assert pair.value(SENDER_POSITION) == pair.value(RECEIVER_POSITION) == pair.writer.position
    assert seen == wanted


@pytest.mark.parametrize("term_length", [TERM_LENGTH, 4 * TERM_LENGTH])
def test_no_frame_of_an_earlier_term_is_left_where_a_subscriber_or_a_gap_scan_may_look(
    core: Modules, term_length: int
) -> None:
    pair = Pair(core, term_length=term_length, window=term_length // 4)
    pair.connect()
    rng = random.Random(term_length)

    def assert_current(start: int, end: int) -> None:
        """Check that every frame that begins in the range belongs there, and that the rest is zero."""
        while start <= end:
            at = (start // term_length % 3) * term_length + start % term_length
            length = pair.in_log.get_i32(at)
            if length:
                term_id = INITIAL_TERM_ID + start // term_length
                header = struct.pack("<i", start % term_length), struct.pack("<i", term_id)
                assert (pair.in_log.get_bytes(at + 8, 4), pair.in_log.get_bytes(at + 20, 4)) == header
            start += (length + 31) & ~31 or 32

    end = 7 * term_length
    while pair.value(RECEIVER_POSITION) < end:
        for _ in range(8):
            pair.writer.limit = pair.value(PUBLISHER_LIMIT)
            pair.writer.append(bytes([rng.randrange(1, 256)]) * rng.randrange(1, 1300))
        pair.deliver(rng, loss=0.05, duplicates=0.05, reorder=True)
        pair.now_ns += MS
        pair.cycle()
        assert_current(pair.value(RECEIVER_POSITION), pair.value(HIGH_WATER_MARK))
        pair.consume()


def test_sends_a_setup_at_once_and_every_100_ms_until_a_receiver_reports(core: Modules) -> None:
    pair = Pair(core)
    due = []
    for millisecond in range(350):
        pair.now_ns = 1 + millisecond * MS
        pair.sender.run_cycle(pair.now_ns)
        due += [millisecond for kind in kinds(pair.sender.events.take()) if kind == layout.EVENT_SETUP_DUE]
    assert due == [0, 100, 200, 300]
    assert not pair.sender_transport.take()


def test_a_setup_carries_the_streams_position(core: Modules) -> None:
    pair = Pair(core)
    pair.cycle()
    pair.send_path.send_setup(layout.SETUP_FLAG_GROUP, 4)
    ((_, setup),) = pair.sender_transport.take()
    expected = (40, 0, 0x40, 5, 0, SESSION_ID, STREAM_ID, INITIAL_TERM_ID, INITIAL_TERM_ID, TERM_LENGTH, 1408, 4)
    assert struct.unpack("<iBBHiiiiiiii", setup) == expected


def test_sends_heartbeats_every_100_ms_once_connected_and_none_before(core: Modules) -> None:
    pair = Pair(core)
    for _ in range(300):
        pair.now_ns += MS
        pair.sender.run_cycle(pair.now_ns)
    assert not pair.sender_transport.take()
    pair.connect()
    pair.send_path.heartbeat_now()
    sent = []
    for millisecond in range(350):
        pair.now_ns += MS
        pair.sender.run_cycle(pair.now_ns)
        sent += [(millisecond, datagram) for _, datagram in pair.sender_transport.take()]
    assert [millisecond for millisecond, _ in sent] == [0, 100, 200, 300]
    expected = struct.pack("<iBBHiiiiq", 0, 0, 0xC0, 1, 0, SESSION_ID, STREAM_ID, INITIAL_TERM_ID, 0)
    assert {datagram for _, datagram in sent} == {expected}
    assert pair.value(SystemCounter.HEARTBEATS_SENT) == 4


def test_a_stalled_sender_sends_heartbeats_after_10_ms_and_then_less_often(core: Modules) -> None:
    pair = Pair(core)
    pair.send_path.add_receiver(99, 1056, pair.now_ns)
    for _ in range(2):
        pair.writer.append(bytes(1000))
    sent = []
    for millisecond in range(320):
        pair.sender.run_cycle(pair.now_ns)
        sent += [(millisecond, len(datagram)) for _, datagram in pair.sender_transport.take()]
        pair.now_ns += MS
    assert sent == [(0, 1056), (10, 32), (30, 32), (70, 32), (150, 32), (250, 32)]


def test_a_sender_past_its_limit_by_padding_also_announces_where_it_begins(core: Modules) -> None:
    pair = Pair(core)
    pair.send_path.add_receiver(99, TERM_LENGTH - 512, pair.now_ns)
    # The last frame does not fit in the term, which is padded by 1,024 bytes.
    for length in [992] * (TERM_LENGTH // 1_024 - 1) + [1_376]:
        pair.writer.append(bytes(length))
    while pair.send_path.sender_position < TERM_LENGTH:
        pair.sender.run_cycle(pair.now_ns)
    pair.sender_transport.take()
    assert pair.send_path.sender_position > pair.send_path.sender_limit
    pair.send_path.end_of_stream = True
    pair.send_path.heartbeat_now()
    pair.sender.run_cycle(pair.now_ns)
    fields = [struct.unpack("<iBBHiiiiq", datagram) for _, datagram in pair.sender_transport.take()]
    # The stream does not end where the padding begins.
    assert [(flags, offset, term) for _, _, flags, _, offset, _, _, term, _ in fields] == [
        (0xC0, TERM_LENGTH - 1_024, INITIAL_TERM_ID),
        (0xE0, 0, INITIAL_TERM_ID + 1),
    ]
    pair.send_path.add_receiver(99, TERM_LENGTH, pair.now_ns)
    pair.send_path.heartbeat_now()
    pair.sender.run_cycle(pair.now_ns)
    assert len(pair.sender_transport.take()) == 1


def test_padding_within_a_term_that_leads_past_the_limit_is_announced_too(core: Modules) -> None:
    pair = Pair(core)
    pair.send_path.add_receiver(99, 1_024, pair.now_ns)
    pair.writer.append(bytes(480))
    pair.writer._put(frame(b"", term_offset=512, kind=layout.TYPE_PAD, length=8_192), 8_192)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.send_path.sender_position == 512 + 8_192
    pair.sender_transport.take()
    pair.send_path.heartbeat_now()
    pair.sender.run_cycle(pair.now_ns)
    assert [struct.unpack_from("<i", datagram, 8)[0] for _, datagram in pair.sender_transport.take()] == [
        512,
        512 + 8_192,
    ]


def test_a_sender_past_its_limit_by_padding_accepts_a_slow_receivers_status(core: Modules) -> None:
    pair = Pair(core)
    half = TERM_LENGTH // 2
    pair.send_path.add_receiver(99, TERM_LENGTH - 512, pair.now_ns)
    for length in [992] * (TERM_LENGTH // 1_024 - 1) + [1_376]:
        pair.writer.append(bytes(length))
    while pair.send_path.sender_position < TERM_LENGTH:
        pair.sender.run_cycle(pair.now_ns)
    pair.now_ns += MS
    pair.sender_transport.deliver(status(half - 512, half), RECEIVER_ADDRESS)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SystemCounter.STATUS_MESSAGES_REJECTED) == 0
    assert pair.send_path.last_status_ns == pair.now_ns


@pytest.mark.parametrize(("revoked", "flags"), [(False, 0xE0), (True, 0xF0)])
def test_a_heartbeat_carries_the_end_of_the_stream(core: Modules, revoked: bool, flags: int) -> None:
    pair = Pair(core)
    pair.connect()
    pair.send_path.end_of_stream = True
    pair.send_path.revoked = revoked
    pair.send_path.heartbeat_now()
    pair.sender.run_cycle(pair.now_ns)
    ((_, heartbeat),) = pair.sender_transport.take()
    assert heartbeat[layout.FRAME_FLAGS_OFFSET] == flags


def test_the_publishers_limit_follows_receivers_joining_and_leaving(core: Modules) -> None:
    pair = Pair(core)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(PUBLISHER_LIMIT) == 0
    pair.connect()
    pair.sender.run_cycle(pair.now_ns)
    connected = 3 * TERM_LENGTH + layout.LOG_IS_CONNECTED_OFFSET
    assert pair.value(PUBLISHER_LIMIT) == TERM_LENGTH // 2
    assert pair.out_log.get_i32(connected) == 1
    pair.writer.append(bytes(1000))
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(PUBLISHER_POSITION) == pair.value(SENDER_POSITION) == 1056
    pair.send_path.remove_receiver(99)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(PUBLISHER_LIMIT) == 1056
    assert pair.out_log.get_i32(connected) == 0


def test_a_draining_publication_accepts_no_more_offers(core: Modules) -> None:
    pair = Pair(core)
    pair.connect()
    pair.writer.append(bytes(100))
    pair.send_path.draining = True
    pair.send_path.clamp_limit(160)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(PUBLISHER_LIMIT) == 0
    assert pair.value(SENDER_POSITION) == 160


def test_a_slow_spy_limits_the_publisher(core: Modules) -> None:
    pair = Pair(core)
    pair.connect()
    pair.send_path.spies.add(SPY)
    pair.writer.append(bytes(1000))
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(PUBLISHER_LIMIT) == TERM_LENGTH // 2
    pair.set_value(SPY, 1056)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(PUBLISHER_LIMIT) == TERM_LENGTH // 2 + 1056


def test_spies_alone_move_the_sender_and_nothing_is_sent(core: Modules) -> None:
    pair = Pair(core)
    pair.send_path.spies_simulate_connection = True
    pair.send_path.spies.add(SPY)
    pair.writer.append(bytes(1000))
    pair.sender.run_cycle(pair.now_ns)
    assert pair.send_path.connected
    pair.set_value(SPY, 1056)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SENDER_POSITION) == 1056
    assert not pair.sender_transport.take()


def test_back_pressure_is_counted_once_in_each_epoch(core: Modules) -> None:
    pair = Pair(core)
    pair.send_path.add_receiver(99, 2048, pair.now_ns)
    for _ in range(4):
        pair.writer.append(bytes(1000))
    for _ in range(5):
        pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SENDER_POSITION) == 1056
    assert pair.value(PRESSURE) == pair.value(SystemCounter.SENDER_FLOW_CONTROL_LIMITS) == 1
    pair.send_path.add_receiver(99, 2112, pair.now_ns)
    for _ in range(5):
        pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SENDER_POSITION) == 2112
    assert pair.value(PRESSURE) == 2


def test_refused_sends_are_retried(core: Modules) -> None:
    pair = Pair(core, max_segments=1)
    pair.connect()
    for _ in range(4):
        pair.writer.append(bytes(1000))
    pair.sender_transport.send_limit = 2
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SENDER_POSITION) == 2112
    assert pair.value(SystemCounter.SHORT_SENDS) == 1
    pair.sender_transport.send_limit = None
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SENDER_POSITION) == 4224
    assert [len(datagram) for _, datagram in pair.sender_transport.take()] == [1056] * 4


def test_a_status_message_of_a_known_receiver_raises_the_limit_and_of_an_unknown_one_is_reported(core: Modules) -> None:
    pair = Pair(core)
    pair.sender_transport.deliver(status(0, 4096), RECEIVER_ADDRESS)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SENDER_LIMIT) == 0
    assert layout.EVENT_NEW_RECEIVER in kinds(pair.sender.events.take())
    pair.send_path.add_receiver(99, 4096, pair.now_ns)
    assert pair.value(SENDER_LIMIT) == 4096
    pair.sender_transport.deliver(status(64, 4096), RECEIVER_ADDRESS)
    pair.sender_transport.deliver(status(32, 1024), RECEIVER_ADDRESS)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SENDER_LIMIT) == 4160
    assert pair.value(SystemCounter.STATUS_MESSAGES_RECEIVED) == 3


@pytest.mark.parametrize(
    ("message", "counter"),
    [
        (status(TERM_LENGTH // 2 + 32, 0), SystemCounter.STATUS_MESSAGES_REJECTED),
        (status(0, TERM_LENGTH // 2 + 1), SystemCounter.INVALID_PACKETS),
        (status(0, -1), SystemCounter.INVALID_PACKETS),
        (status(16, 0), SystemCounter.INVALID_PACKETS),
        (status(0, 0)[:35], SystemCounter.INVALID_PACKETS),
        (nak(0, 64)[:24], SystemCounter.INVALID_PACKETS),
        (nak(16, 64), SystemCounter.INVALID_PACKETS),
        (nak(-32, 64), SystemCounter.INVALID_PACKETS),
        (nak(64, -32), SystemCounter.INVALID_PACKETS),
        (nak(TERM_LENGTH - 32, 64), SystemCounter.INVALID_PACKETS),
        (status(0, 0)[:7], SystemCounter.INVALID_PACKETS),
        (b"\x24\0\0\0\x01" + status(0, 0)[5:], SystemCounter.INVALID_PACKETS),
        (struct.pack("<iBBH20x", 28, 0, 0, 77), SystemCounter.INVALID_PACKETS),
        (struct.pack("<iBBHiiqqii", 40, 0, 0, 4, SESSION_ID, STREAM_ID, 0, 0, 13, 1), SystemCounter.INVALID_PACKETS),
    ],
)
def test_a_control_frame_that_breaks_a_rule_is_counted_and_changes_nothing(
    core: Modules, message: bytes, counter: int
) -> None:
    pair = Pair(core)
    pair.connect()
    limit = pair.value(SENDER_LIMIT)
    pair.sender_transport.deliver(message, RECEIVER_ADDRESS)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(counter) == 1
    assert pair.value(SENDER_LIMIT) == limit
    assert set(kinds(pair.sender.events.take())) <= {layout.EVENT_SETUP_DUE}


def test_a_receiver_that_is_silent_for_5_seconds_is_reported(core: Modules) -> None:
    pair = Pair(core)
    pair.connect()
    pair.sender.run_cycle(pair.now_ns)
    pair.now_ns += 4_900 * MS
    pair.sender.run_cycle(pair.now_ns)
    assert layout.EVENT_RECEIVER_EXPIRED not in kinds(pair.sender.events.take())
    pair.now_ns += 500 * MS
    pair.sender.run_cycle(pair.now_ns)
    assert [event[4] for event in pair.sender.events.take() if event[0] == layout.EVENT_RECEIVER_EXPIRED] == [99]


def test_with_minimum_tracking_the_slowest_counted_receiver_sets_the_limit(core: Modules) -> None:
    pair = Pair(core)
    pair.send_path.tracks_minimum = True
    pair.send_path.add_receiver(1, 8192, pair.now_ns)
    pair.send_path.add_receiver(2, 4096, pair.now_ns)
    pair.send_path.add_receiver(3, 1024, pair.now_ns, False)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SENDER_LIMIT) == 4096
    pair.send_path.limit_cap = 2048
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SENDER_LIMIT) == 2048


def test_resends_whole_frames_and_nothing_that_was_not_sent(core: Modules) -> None:
    pair = Pair(core)
    pair.connect()
    for _ in range(3):
        pair.writer.append(bytes(1000))
    pair.sender.run_cycle(pair.now_ns)
    pair.sender_transport.take()
    pair.writer.append(bytes(1000))
    assert pair.send_path.resend(1056, 1 << 20) == 2112
    assert [struct.unpack_from("<i", datagram, 8)[0] for _, datagram in pair.sender_transport.take()] == [1056, 2112]
    assert pair.send_path.resend(3168, 1056) == 0
    assert pair.value(SystemCounter.RETRANSMITS_SENT) == 1


def test_answers_a_nak_once_in_ten_milliseconds(core: Modules) -> None:
    pair = Pair(core)
    pair.connect()
    pair.send_path.set_nak_counter(SPY)
    for _ in range(3):
        pair.writer.append(bytes(1000))
    pair.sender.run_cycle(pair.now_ns)
    pair.sender_transport.take()
    for wait, answers in ((0, 1), (1, 0), (9, 1)):
        pair.now_ns += wait * MS
        pair.sender_transport.deliver(nak(1056, 1056), RECEIVER_ADDRESS)
        pair.sender.run_cycle(pair.now_ns)
        assert [len(datagram) for _, datagram in pair.sender_transport.take()] == [1056] * answers
    assert pair.value(SystemCounter.NAKS_RECEIVED) == pair.value(SPY) == 3
    assert pair.value(SystemCounter.RETRANSMITS_SENT) == 2
    assert pair.value(SystemCounter.RETRANSMITTED_BYTES) == 2 * 1056


@pytest.mark.parametrize(
    "datagram",
    [
        nak(0, 32)[:27],
        nak(-32, 32),
        nak(16, 32),
        nak(0, -32),
        nak(TERM_LENGTH - 32, 64),
        nak(TERM_LENGTH, 0),
        nak((1 << 31) - 32, (1 << 31) - 32),
        # No memory precedes the log: a position there must be neither read nor sent.
        nak(TERM_LENGTH - 1056, 1056, term_id=INITIAL_TERM_ID - 1),
        nak(TERM_LENGTH - 1056, 1056, term_id=INITIAL_TERM_ID - 2),
        nak(0, 1056, term_id=INITIAL_TERM_ID - (1 << 31)),
    ],
)
@pytest.mark.parametrize("delay_ns", [0, MS])
def test_a_request_outside_the_stream_is_counted_and_ignored(core: Modules, datagram: bytes, delay_ns: int) -> None:
    pair = Pair(core)
    pair.connect()
    pair.send_path.set_retransmit(core.retransmit.RetransmitHandler(TERM_LENGTH, delay_ns=delay_ns))
    pair.writer.append(bytes(1000))
    pair.sender.run_cycle(pair.now_ns)
    pair.sender_transport.take()
    pair.sender_transport.deliver(datagram, RECEIVER_ADDRESS)
    for _ in range(3):
        pair.sender.run_cycle(pair.now_ns)
        pair.now_ns += MS
    assert pair.sender_transport.take() == []
    assert pair.value(SystemCounter.INVALID_PACKETS) == 1
    assert pair.value(SystemCounter.NAKS_RECEIVED) == 0


@pytest.mark.parametrize(
    "datagram",
    [
        status(0, 4096)[:35],
        status(16, 4096),
        status(0, -32),
        status(0, TERM_LENGTH // 2 + 32),
        status(-32, 4096),
        status(-TERM_LENGTH // 2, 4096),
    ],
)
def test_a_status_message_outside_the_stream_is_counted_and_ignored(core: Modules, datagram: bytes) -> None:
    pair = Pair(core)
    pair.connect()
    before = pair.value(SENDER_LIMIT), pair.send_path.receiver_count
    pair.sender_transport.deliver(datagram, RECEIVER_ADDRESS)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SystemCounter.INVALID_PACKETS) == 1
    assert (pair.value(SENDER_LIMIT), pair.send_path.receiver_count) == before
    assert kinds(pair.sender.events.take()) == []


def test_a_delayed_retransmission_is_sent_when_due(core: Modules) -> None:
    pair = Pair(core)
    pair.connect()
    pair.send_path.set_retransmit(core.retransmit.RetransmitHandler(TERM_LENGTH, delay_ns=5 * MS))
    pair.writer.append(bytes(1000))
    pair.sender.run_cycle(pair.now_ns)
    pair.sender_transport.take()
    pair.sender_transport.deliver(nak(0, 1056), RECEIVER_ADDRESS)
    pair.sender.run_cycle(pair.now_ns)
    assert not pair.sender_transport.take()
    pair.now_ns += 5 * MS
    pair.sender.run_cycle(pair.now_ns)
    assert len(pair.sender_transport.take()) == 1


def test_requests_of_strangers_do_not_affect_a_known_receiver(core: Modules) -> None:
    pair = Pair(core)
    pair.connect()
    rate = TERM_LENGTH
    pair.send_path.set_retransmit(core.retransmit.RetransmitHandler(TERM_LENGTH, rate=rate))
    for _ in range(20):
        pair.writer.append(bytes(1000))
    pair.sender.run_cycle(pair.now_ns)
    pair.sender_transport.deliver(status(0, TERM_LENGTH // 2), RECEIVER_ADDRESS)
    pair.sender.run_cycle(pair.now_ns)
    pair.sender_transport.take()
    stranger = struct.pack("<HH4s8x", socket.AF_INET, 0x7856, b"\x7f\x00\x00\x42")
    for n in range(500):
        pair.sender_transport.deliver(nak(1056 * (n % 20), 1056), stranger)
        pair.sender.run_cycle(pair.now_ns)
        pair.now_ns += 100_000
    of_strangers = len(pair.sender_transport.take())
    assert 0 < of_strangers <= rate // 16 // 1056 + 5
    assert pair.value(SystemCounter.RETRANSMIT_OVERFLOW) > 400
    pair.now_ns += 20 * MS
    pair.sender_transport.deliver(nak(0, 1056), RECEIVER_ADDRESS)
    pair.sender.run_cycle(pair.now_ns)
    assert len(pair.sender_transport.take()) == 1


def test_a_full_pool_of_a_group_is_counted(core: Modules) -> None:
    pair = Pair(core)
    pair.connect()
    pair.send_path.set_retransmit(core.retransmit.RetransmitHandler(TERM_LENGTH, True, 1))
    for _ in range(3):
        pair.writer.append(bytes(1000))
    pair.sender.run_cycle(pair.now_ns)
    for offset in (0, 1056):
        pair.sender_transport.deliver(nak(offset, 64), RECEIVER_ADDRESS)
    pair.sender.run_cycle(pair.now_ns)
    assert pair.value(SystemCounter.RETRANSMIT_OVERFLOW) == 1


def receive(pair: Pair, *datagrams: bytes) -> None:
    for datagram in datagrams:
        pair.receiver_transport.deliver(datagram, SENDER_ADDRESS)
    pair.receiver.run_cycle(pair.now_ns)


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\0" * 7,
        frame(bytes(32), term_offset=0)[:48],
        frame(bytes(32), term_offset=0) + bytes(32),
        frame(bytes(32), term_offset=0, version=1),
        frame(bytes(32), term_offset=16),
        frame(bytes(32), term_offset=-32),
        frame(bytes(32), term_offset=TERM_LENGTH),
        frame(bytes(32), term_offset=TERM_LENGTH - 32),
        frame(bytes(32), term_offset=0, length=31),
        frame(bytes(32), term_offset=0, length=-64),
        frame(bytes(32), term_offset=0, length=128),
        frame(bytes(32), term_offset=0, length=0),
        frame(bytes(32), term_offset=0) + frame(bytes(32), term_offset=0),
        frame(bytes(32), term_offset=0) + frame(bytes(32), term_offset=64, session_id=2),
        frame(bytes(32), term_offset=0) + frame(bytes(32), term_offset=64, term_id=INITIAL_TERM_ID + 1),
        frame(bytes(32), term_offset=0) + frame(bytes(32), term_offset=64, kind=layout.TYPE_SETUP),
        frame(b"", term_offset=0, kind=layout.TYPE_PAD, length=64) + frame(bytes(32), term_offset=64),
        frame(b"", term_offset=32, kind=layout.TYPE_PAD, length=TERM_LENGTH),
        struct.pack("<iBBH32x", 40, 0, 0, 5),
        struct.pack("<iBBH32x", 40, 0, 0, 99),
        struct.pack("<iBBH", 8, 0, 0, 3),
    ],
    ids=lambda datagram: f"{len(datagram)}-{datagram[:8].hex()}",
)
def test_a_datagram_that_breaks_a_rule_is_counted_and_not_inserted(core: Modules, datagram: bytes) -> None:
    pair = Pair(core)
    receive(pair, datagram)
    assert pair.value(SystemCounter.INVALID_PACKETS) == (1 if datagram else 0)
    assert pair.receive_path.high_water_mark == 0
    assert not any(pair.in_log.get_bytes(0, 4096))


def setup(
    *, initial: int = 7, active: int = 7, offset: int = 0, term_length: int = TERM_LENGTH, mtu: int = 1408
) -> bytes:
    head = struct.pack("<iBBH", 40, 0, 0, layout.TYPE_SETUP)
    return head + struct.pack("<8i", offset, SESSION_ID, STREAM_ID, initial, active, term_length, mtu, 0)


LAST_TERM_ID, FIRST_TERM_ID = (1 << 31) - 1, -(1 << 31)


@pytest.mark.parametrize(
    "datagram",
    [
        setup(),
        setup(active=8, offset=TERM_LENGTH - 32),
        setup(initial=LAST_TERM_ID, active=FIRST_TERM_ID),
        setup(initial=FIRST_TERM_ID, active=-1),
    ],
)
def test_a_setup_with_a_position_is_reported(core: Modules, datagram: bytes) -> None:
    pair = Pair(core)
    receive(pair, datagram)
    assert pair.value(SystemCounter.INVALID_PACKETS) == 0
    assert kinds(pair.receiver.events.take()) == [layout.EVENT_SETUP]


@pytest.mark.parametrize(
    "datagram",
    [
        setup()[:39],
        setup(active=6),
        setup(active=7 + (1 << 31) - (1 << 32)),
        setup(initial=FIRST_TERM_ID, active=LAST_TERM_ID, offset=-32),
        setup(initial=FIRST_TERM_ID + 1, active=FIRST_TERM_ID),
        setup(offset=16),
        setup(offset=-32),
        setup(offset=TERM_LENGTH),
        setup(term_length=TERM_LENGTH // 2),
        setup(term_length=TERM_LENGTH + 4096),
        setup(term_length=-(1 << 31)),
        setup(mtu=0),
        setup(mtu=1400),
        setup(mtu=65_536),
    ],
)
def test_a_setup_of_an_invalid_stream_is_counted_and_dropped(core: Modules, datagram: bytes) -> None:
    pair = Pair(core)
    receive(pair, datagram)
    assert pair.value(SystemCounter.INVALID_PACKETS) == 1
    assert kinds(pair.receiver.events.take()) == []


def test_beyond_half_a_term_is_an_over_run_and_before_the_last_status_an_under_run(core: Modules) -> None:
    pair = Pair(core)
    receive(pair, frame(bytes(32), term_offset=TERM_LENGTH // 2))
    assert pair.value(SystemCounter.FLOW_CONTROL_OVER_RUNS) == 1
    receive(pair, frame(bytes(32), term_offset=TERM_LENGTH // 2 - 64))
    assert pair.value(SystemCounter.FLOW_CONTROL_OVER_RUNS) == 1
    assert pair.receive_path.high_water_mark == TERM_LENGTH // 2
    for offset in range(0, TERM_LENGTH // 2 - 64, 64):
        receive(pair, frame(bytes(32), term_offset=offset))
    pair.consume()
    receive(pair)
    assert pair.receive_path.last_status_position == TERM_LENGTH // 2
    receive(pair, frame(bytes(32), term_offset=0))
    assert pair.value(SystemCounter.FLOW_CONTROL_UNDER_RUNS) == 1


def test_a_term_before_the_first_is_dropped_silently(core: Modules) -> None:
    pair = Pair(core)
    receive(pair, frame(bytes(32), term_offset=0, term_id=INITIAL_TERM_ID - 1))
    assert pair.receive_path.high_water_mark == 0
    assert pair.value(SystemCounter.INVALID_PACKETS) == 0


def test_existing_data_is_not_overwritten(core: Modules) -> None:
    pair = Pair(core)
    receive(pair, frame(b"a" * 32, term_offset=0), frame(b"b" * 32, term_offset=0))
    assert pair.in_log.get_bytes(32, 32) == b"a" * 32


def test_the_first_status_message_leaves_at_once_and_then_one_every_200_ms(core: Modules) -> None:
    pair = Pair(core, window=32_768)
    sent = []
    for millisecond in range(650):
        pair.now_ns = 1 + millisecond * MS
        pair.receiver.run_cycle(pair.now_ns)
        sent += [(millisecond, datagram) for _, datagram in pair.receiver_transport.take()]
    assert [millisecond for millisecond, _ in sent] == [0, 200, 400, 600]
    assert {datagram for _, datagram in sent} == {status(0, 32_768)}
    assert pair.value(SystemCounter.STATUS_MESSAGES_SENT) == 4


def test_consuming_a_quarter_of_the_window_is_reported_at_once_and_less_not_even_on_time(core: Modules) -> None:
    pair = Pair(core, window=32_768)
    receive(pair, *(frame(bytes(992), term_offset=offset) for offset in range(0, 16_384, 1_024)))
    assert [datagram for _, datagram in pair.receiver_transport.take()] == [status(0, 32_768)]
    pair.set_value(SUBSCRIBER, 8_192)
    pair.now_ns += 200 * MS
    receive(pair)
    assert [datagram for _, datagram in pair.receiver_transport.take()] == [status(0, 32_768)]
    pair.set_value(SUBSCRIBER, 8_192 + 1_024)
    receive(pair)
    assert [datagram for _, datagram in pair.receiver_transport.take()] == [status(9_216, 32_768)]


def test_draining_status_messages_announce_that_the_receiver_leaves(core: Modules) -> None:
    pair = Pair(core)
    pair.receive_path.draining = True
    receive(pair)
    ((_, message),) = pair.receiver_transport.take()
    assert message[layout.FRAME_FLAGS_OFFSET] == layout.SM_FLAG_EOS


def test_a_rejected_image_inserts_nothing_and_reports_status_times(core: Modules) -> None:
    pair = Pair(core)
    receive(pair)
    pair.receiver_transport.take()
    pair.receive_path.rejected = True
    pair.now_ns += 200 * MS
    receive(pair, frame(bytes(32), term_offset=0))
    assert pair.receive_path.high_water_mark == 0
    assert not pair.receiver_transport.take()
    assert kinds(pair.receiver.events.take()) == [layout.EVENT_STATUS_DUE]


def test_several_gaps_are_found_together_and_a_heartbeat_shows_a_lost_tail(core: Modules) -> None:
    pair = Pair(core)
    frames = [frame(bytes(32), term_offset=offset) for offset in (64, 256, 320)]
    receive(pair, *frames, frame(b"", term_offset=448, length=0))
    assert pair.receive_path.detector.gaps == [(0, 64), (128, 128), (384, 64)]


def test_loss_is_reported_once_within_the_gathering_time(core: Modules) -> None:
    pair = Pair(core)
    receive(pair, frame(bytes(32), term_offset=64))
    receive(pair, frame(bytes(32), term_offset=256))
    assert not pair.receiver.events.take()
    pair.now_ns += 10 * MS
    receive(pair)
    assert [(event[0], event[4]) for event in pair.receiver.events.take()] == [(layout.EVENT_LOSS, 64 + 128)]
    pair.receive_path.reports_loss_at_once = True
    receive(pair, frame(bytes(32), term_offset=384))
    pair.now_ns += MS
    receive(pair)
    assert [(event[0], event[4]) for event in pair.receiver.events.take()] == [(layout.EVENT_LOSS, 64)]
    assert pair.receive_path.rebuild_position == 0


def test_naks_every_gap_a_microsecond_after_it_was_seen_and_again_once_senders_forgot_it(core: Modules) -> None:
    pair = Pair(core)
    pair.receive_path.set_nak_counter(SPY)
    receive(pair, frame(bytes(32), term_offset=64), frame(bytes(32), term_offset=256))
    pair.receiver_transport.take()
    start = pair.now_ns
    sent = []
    for microsecond in [*range(400), *range(9_900, 10_100)]:
        pair.now_ns = start + 1_000 * microsecond
        receive(pair)
        sent += [(microsecond, datagram) for _, datagram in pair.receiver_transport.take()]
    times = [(at, struct.unpack_from("<ii", datagram, layout.NAK_TERM_OFFSET_OFFSET)) for at, datagram in sent]
    assert times == [(at, gap) for at in (1, 10_001) for gap in ((0, 64), (128, 128))]
    assert sent[0][1] == struct.pack("<iBBHiiiii", 28, 0, 0, 2, SESSION_ID, STREAM_ID, INITIAL_TERM_ID, 0, 64)
    assert pair.value(SystemCounter.NAKS_SENT) == pair.value(SPY) == 4
    receive(pair, frame(bytes(32), term_offset=0))
    pair.now_ns += 100 * MS
    receive(pair)
    assert len(pair.receiver_transport.take()) == 1


def test_a_retransmission_behind_an_open_gap_is_noticed_without_new_data(core: Modules) -> None:
    pair = Pair(core)
    receive(
        pair, frame(bytes(32), term_offset=64), frame(bytes(32), term_offset=192), frame(bytes(32), term_offset=320)
    )
    pair.now_ns += 1_000
    receive(pair)
    pair.receiver_transport.take()
    for offset in (0, 256):
        pair.now_ns += MS
        receive(pair, frame(bytes(32), term_offset=offset))
    # The response to the last request has arrived, but not the response to the one before it.
    (nak,) = naks(pair)
    assert nak == (128, 64)


def naks(pair: Pair) -> list[tuple[int, int]]:
    """Return the offset and length of each NAK sent."""
    control = [datagram for _, datagram in pair.receiver_transport.take()]
    return [
        struct.unpack_from("<ii", datagram, layout.NAK_TERM_OFFSET_OFFSET)
        for datagram in control
        if struct.unpack_from("<H", datagram, layout.FRAME_TYPE_OFFSET)[0] == layout.TYPE_NAK
    ]


def test_a_sender_past_its_limit_by_padding_reveals_earlier_loss(core: Modules) -> None:
    pair = Pair(core)
    half = TERM_LENGTH // 2
    # The window begins after the first 24 KiB, which were consumed, and ends in the padding, 8 KiB before the end of the term.
    receive(pair, *(frame(bytes(992), term_offset=offset) for offset in range(0, 24 << 10, 1_024)))
    pair.set_value(SUBSCRIBER, 24 << 10)
    receive(pair)
    pair.receiver_transport.take()
    edge = (24 << 10) + half
    # The whole window is lost. The sender is at the end of its padding, beyond its limit.
    end = frame(b"", term_offset=0, term_id=INITIAL_TERM_ID + 1, length=0)
    receive(pair, end)
    assert pair.value(SystemCounter.FLOW_CONTROL_OVER_RUNS) == 0
    assert pair.value(SystemCounter.HEARTBEATS_RECEIVED) == 1
    assert pair.receive_path.last_packet_ns == pair.now_ns
    pair.now_ns += 1_000
    receive(pair)
    assert naks(pair) == [(24 << 10, half)]
    receive(pair, *(frame(bytes(992), term_offset=offset) for offset in range(24 << 10, edge - 1_024, 1_024)))
    padding = frame(b"", term_offset=edge - 1_024, kind=layout.TYPE_PAD, length=TERM_LENGTH - edge + 1_024)
    receive(pair, padding)
    assert pair.receive_path.rebuild_position == TERM_LENGTH
    assert pair.value(SystemCounter.FLOW_CONTROL_OVER_RUNS) == 0


def test_heartbeats_of_a_sender_that_has_gone_on_without_the_receiver_do_not_keep_the_image_alive(
    core: Modules,
) -> None:
    pair = Pair(core)
    half = TERM_LENGTH // 2
    pair.now_ns += MS
    receive(pair, frame(b"", term_offset=half, length=0))
    assert pair.value(SystemCounter.FLOW_CONTROL_OVER_RUNS) == 0
    assert pair.receive_path.high_water_mark == half
    alive_ns = pair.receive_path.last_packet_ns
    assert alive_ns == pair.now_ns
    # A position inside a term, one that no padding reaches from the window, and one that ends the stream.
    for over_runs, (term, offset, flags) in enumerate(
        [(0, half + 32, 0xC0), (1, 0, 0xC0), (0, half + 64, 0xE0)], start=1
    ):
        pair.now_ns += MS
        receive(pair, frame(b"", term_offset=offset, term_id=INITIAL_TERM_ID + term, length=0, flags=flags))
        assert pair.value(SystemCounter.FLOW_CONTROL_OVER_RUNS) == over_runs
    assert pair.value(SystemCounter.HEARTBEATS_RECEIVED) == 1
    assert pair.receive_path.last_packet_ns == alive_ns
    assert pair.receive_path.end_of_stream_position < 0


def test_an_unreliable_gap_becomes_padding(core: Modules) -> None:
    pair = Pair(core)
    detector = core.loss_detector.LossDetector(core.delay.StaticDelay(0, 0))
    pair.receive_path.set_loss_detector(detector, False)
    receive(pair, frame(bytes(32), term_offset=128))
    receive(pair)
    assert pair.receive_path.rebuild_position == 192
    assert pair.in_log.get_i32(0) == 128
    assert pair.in_log.get_u16(layout.FRAME_TYPE_OFFSET) == layout.TYPE_PAD
    assert pair.value(SystemCounter.LOSS_GAP_FILLS) == 1
    assert pair.value(SystemCounter.NAKS_SENT) == 0


def test_the_stream_ends_when_every_live_connection_has_ended(core: Modules) -> None:
    pair = Pair(core)
    other = core.datagram.MemoryTransport()
    index = pair.receive_endpoint.add_transport(other)
    address = core.datagram.Address(SENDER_ADDRESS)
    assert pair.receive_path.add_connection(other, index, address, None, pair.now_ns)
    assert not pair.receive_path.add_connection(other, index, address, None, pair.now_ns)
    end = frame(b"", term_offset=0, length=0, flags=0xE0)
    receive(pair, end)
    assert pair.receive_path.end_of_stream_position == -1
    other.deliver(end, SENDER_ADDRESS)
    receive(pair)
    assert pair.receive_path.end_of_stream_position == 0
    assert layout.EVENT_END_OF_STREAM in kinds(pair.receiver.events.take())
    meta = 3 * TERM_LENGTH
    assert pair.in_log.get_i64(meta + layout.LOG_END_OF_STREAM_POSITION_OFFSET) == 0
    assert pair.in_log.get_i32(meta + layout.LOG_ACTIVE_TRANSPORT_COUNT_OFFSET) == 2


def test_a_dead_connection_does_not_delay_the_end_of_stream(core: Modules) -> None:
    pair = Pair(core)
    other = core.datagram.MemoryTransport()
    index = pair.receive_endpoint.add_transport(other)
    pair.receive_path.add_connection(other, index, core.datagram.Address(SENDER_ADDRESS), None, pair.now_ns)
    pair.now_ns += 5_001 * MS
    receive(pair, frame(b"", term_offset=0, length=0, flags=0xF0))
    assert pair.receive_path.end_of_stream_position == 0
    assert pair.receive_path.revoked
    assert pair.in_log.get_u8(3 * TERM_LENGTH + layout.LOG_IS_PUBLICATION_REVOKED_OFFSET) == 1


def test_status_messages_go_to_every_live_connection(core: Modules) -> None:
    pair = Pair(core)
    other = core.datagram.MemoryTransport()
    index = pair.receive_endpoint.add_transport(other)
    pair.receive_path.add_connection(other, index, core.datagram.Address(RECEIVER_ADDRESS), None, pair.now_ns)
    receive(pair)
    assert [to for to, _ in pair.receiver_transport.take()] == [SENDER_ADDRESS]
    assert [to for to, _ in other.take()] == [RECEIVER_ADDRESS]


def test_data_of_an_unknown_session_is_reported_once_a_batch_and_not_while_silenced(core: Modules) -> None:
    pair = Pair(core)
    stranger = frame(bytes(32), term_offset=0, session_id=77)
    receive(pair, stranger, stranger, frame(bytes(32), term_offset=0, session_id=78, stream_id=5))
    (event,) = pair.receiver.events.take()
    assert event[0] == layout.EVENT_UNKNOWN_SESSION
    assert event[6] == SENDER_ADDRESS
    assert event[7] == stranger[:32]
    pair.receive_endpoint.silences.put(77, STREAM_ID, core.receive_path.Silence(pair.now_ns + MS))
    receive(pair, stranger)
    assert not pair.receiver.events.take()
    pair.now_ns += MS
    receive(pair, stranger)
    assert len(pair.receiver.events.take()) == 1


@pytest.mark.fuzz
def test_100_000_bad_datagrams_raise_nothing_and_leave_a_running_stream_undisturbed() -> None:
    core = modules(compiled=True)
    noise = random.Random(20_240_206)
    pair = Pair(core)
    pair.connect()
    seen: list[bytes] = []
    wanted: list[bytes] = []
    read = 0
    thrown = 0
    while thrown < 100_000:
        pair.writer.limit = pair.send_path.publisher_limit
        payload = noise.randbytes(noise.randrange(1, 1300))
        if pair.writer.append(payload):
            wanted.append(payload)
        pair.now_ns += MS
        pair.sender.run_cycle(pair.now_ns)
        good = [datagram for _, datagram in pair.sender_transport.sent]
        pair.deliver()
        for _ in range(16):
            pair.receiver_transport.deliver(spoilt(noise, good), SENDER_ADDRESS)
            pair.sender_transport.deliver(spoilt(noise, good), RECEIVER_ADDRESS)
            thrown += 1
        for _ in range(4):
            pair.receiver.run_cycle(pair.now_ns)
            pair.receiver.events.take()
            pair.sender.events.take()
        read += pair.read(read, seen)
        pair.consume()
    while pair.sender_transport.inbox:
        pair.sender.run_cycle(pair.now_ns)
    assert len(wanted) > 1000
    assert seen == wanted
    assert pair.value(SystemCounter.INVALID_PACKETS) > 100_000


def spoilt(noise: random.Random, good: list[bytes]) -> bytes:
    """Return a random datagram, or a valid one broken so that it cannot pass for a valid one of this stream."""
    if not good or noise.random() < 0.5:
        return noise.randbytes(noise.randrange(1, 200) | 1)
    datagram = bytearray(noise.choice(good))
    how = noise.randrange(5)
    if how == 0:
        del datagram[noise.randrange(len(datagram) - 1) + 1 :]
        datagram += b"x" * (1 - len(datagram) % 2)
    elif how == 1:
        datagram[layout.FRAME_VERSION_OFFSET] = noise.randrange(1, 256)
    elif how == 2:
        struct.pack_into("<H", datagram, layout.FRAME_TYPE_OFFSET, noise.randrange(12, 65_536))
    elif how == 3:
        struct.pack_into("<i", datagram, layout.FRAME_TERM_OFFSET_OFFSET, noise.randrange(-(1 << 31), 1 << 31) | 1)
    else:
        struct.pack_into("<i", datagram, 0, -noise.randrange(1, 1 << 31))
    return bytes(datagram)


@pytest.mark.parametrize(("offset", "offset_in_frame"), [(0, 32), (8, 40), (-8, 24)])
def test_a_timestamp_is_written_into_each_message_that_has_room_for_it(
    core: Modules, offset: int, offset_in_frame: int
) -> None:
    pair = Pair(core)
    pair.connect()
    pair.sender_transport.epoch_offset_ns = 1_000_000
    pair.receiver_transport.epoch_offset_ns = 2_000_000
    pair.send_path.timestamp_offset = offset
    for payload in (b"x" * 16, b"short", b"y" * 16):
        pair.writer.append(payload)
    pair.sender.run_cycle(pair.now_ns)
    ((_, datagram),) = pair.sender_transport.sent
    stamps = [struct.unpack_from("<q", datagram, at + offset_in_frame)[0] for at in (0, 128)]
    assert stamps == [1_000_001, 1_000_001]
    assert datagram[64 + 32 : 64 + 37] == b"short"
    pair.receive_endpoint.media_timestamp_offset = offset
    pair.receive_endpoint.channel_timestamp_offset = offset
    pair.receive_path.attach(pair.receive_endpoint, pair.receiver.events)
    pair.deliver()
    pair.receiver.run_cycle(pair.now_ns)
    assert [pair.in_log.get_i64(at + offset_in_frame) for at in (0, 128)] == [2_000_001, 2_000_001]


def test_a_timestamp_is_written_behind_padding_too(core: Modules) -> None:
    pair = Pair(core)
    pair.receive_endpoint.channel_timestamp_offset = 0
    pair.receive_path.attach(pair.receive_endpoint, pair.receiver.events)
    padding = frame(b"", term_offset=64, kind=layout.TYPE_PAD, length=32)
    receive(pair, frame(bytes(8), term_offset=0) + padding + frame(bytes(8), term_offset=96))
    assert [pair.in_log.get_i64(at + 32) for at in (0, 96)] == [pair.now_ns, pair.now_ns]


@pytest.mark.parametrize(("streams", "taken"), [(1, 16), (17, 32), (40, 48), (100, 60)])
def test_a_cycle_takes_a_batch_and_as_many_datagrams_as_there_are_streams(
    core: Modules, streams: int, taken: int
) -> None:
    pair = Pair(core)
    for number in range(1, streams):
        pair.receive_endpoint.paths.put(SESSION_ID + number, STREAM_ID, pair.receive_path)
    for number in range(60):
        pair.receiver_transport.deliver(frame(b"x" * 32, term_offset=64 * number), SENDER_ADDRESS)
    pair.receiver.run_cycle(pair.now_ns)
    assert pair.value(HIGH_WATER_MARK) == 64 * taken
    pair.receiver.run_cycle(pair.now_ns)
    assert pair.value(HIGH_WATER_MARK) == 64 * min(2 * taken, 60)


def test_decisions_for_python_end_the_compiled_read(core: Modules) -> None:
    pair = Pair(core)
    for number in range(1, 100):
        pair.receive_endpoint.paths.put(SESSION_ID + number, STREAM_ID, pair.receive_path)
    pair.receiver_transport.deliver(frame(b"", term_offset=0, session_id=SESSION_ID + 1000), SENDER_ADDRESS)
    for number in range(60):
        pair.receiver_transport.deliver(frame(b"x" * 32, term_offset=64 * number), SENDER_ADDRESS)
    pair.receiver.run_cycle(pair.now_ns)
    assert pair.value(HIGH_WATER_MARK) == 64 * 15
    assert len(pair.receiver.events.take()) == 1
