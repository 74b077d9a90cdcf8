"""Memory that another process has corrupted: reads stay bounded, and the error names the memory.

Each structure lies between guard bytes, which nothing may write. A load far out of bounds would crash the process.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.support.case_selection import long_after
from tests.unit._core.logs import COMPILED, LIMIT, POSITION, UNCOMPILED, Core, Log, T
from tests.unit._core.network import SPY, SUBSCRIBER, Modules, Pair, modules, new_log
from tests.unit._core.network import TERM_LENGTH as NETWORK_TERM

from mainstem._core import layout
from mainstem._core.memory.broadcast import BroadcastReceiver, BroadcastTransmitter
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.memory.counters import CountersManager, CountersReader
from mainstem._core.memory.ring_buffer import ManyToOneRingBuffer

GUARD = 1 << 16
PATTERN = bytes(range(1, 129)) * (GUARD // 128)
META = 3 * T
NUMBERS = (0, 1, 5, 31, 32, 33, 4095, T - 32, T, T + 32, (1 << 31) - 1, -1, -5, -32, -T, -(1 << 31))
POSITIONS = (-1, -32, -T, -(1 << 62), 5, T + 1, (1 << 62) + 8)


@pytest.fixture(params=[COMPILED, UNCOMPILED], ids=["compiled", "uncompiled"])
def core(request: pytest.FixtureRequest) -> Core:
    return request.param


@pytest.fixture(params=[True, False], ids=["compiled", "uncompiled"])
def paths(request: pytest.FixtureRequest) -> Modules:
    return modules(compiled=request.param)


class Guarded:
    """Memory between guards."""

    def __init__(self, length: int) -> None:
        self.whole = bytearray(PATTERN + bytes(length) + PATTERN)
        self.memory = AtomicBuffer(AtomicBuffer(self.whole), GUARD, length)

    def check(self) -> None:
        assert self.whole[:GUARD] == PATTERN
        assert self.whole[-GUARD:] == PATTERN


class GuardedLog(Log):
    """A log between guards."""

    def __init__(self) -> None:
        super().__init__()
        self.guarded = Guarded(self.memory.capacity)
        self.guarded.memory.put_bytes(0, self.memory.get_bytes(0, self.memory.capacity))
        self.memory = self.guarded.memory


@pytest.mark.parametrize("position", POSITIONS)
def test_a_subscriber_position_must_be_a_frame_boundary(core: Core, position: int) -> None:
    log = Log(core)
    log.concurrent().offer(b"message")
    image = log.image()
    log.counters.put_i64(POSITION * 128, position)
    offsets, lengths = core.memory(64), core.memory(64)
    for read in (
        lambda: image.poll(print),
        lambda: image.bounded_poll(print, 1 << 40),
        lambda: image.poll_messages(print),
        lambda: image.controlled_poll(print),
        lambda: image.block_poll(print, 4096),
        image.poll_bytes,
        lambda: image.scan(offsets, lengths),
        image.readable,
    ):
        with pytest.raises(ValueError, match=f"no frame begins at position {position}$"):
            read()
    assert log.position == position


def test_an_appender_refuses_a_tail_between_two_frames(core: Core) -> None:
    for kind in ("concurrent", "exclusive"):
        log = Log(core)
        log.memory.put_i64(META, log.memory.get_i64(META) + 5)
        with pytest.raises(ValueError, match="no frame begins there"):
            getattr(log, kind)()


def test_a_concurrently_moved_tail_leaves_frames_aligned(core: Core) -> None:
    log = Log(core)
    writer = log.concurrent()
    log.memory.put_i64(META, log.memory.get_i64(META) + 5)
    writer.offer(b"x")
    assert log.memory.get_i32(0) == layout.DATA_HEADER_LENGTH + 1


def test_an_appender_refuses_a_term_that_cannot_be_active(core: Core) -> None:
    for kind in ("concurrent", "exclusive"):
        log = Log(core)
        log.memory.put_i32(META + layout.LOG_ACTIVE_TERM_COUNT_OFFSET, -3)
        with pytest.raises(ValueError, match="term -3 is active"):
            getattr(log, kind)()
    log.memory.put_i32(META + layout.LOG_ACTIVE_TERM_COUNT_OFFSET, 1)
    with pytest.raises(ValueError, match="term 1 is active, and its tail has the id"):
        log.exclusive()


@pytest.mark.parametrize("seed", long_after(8, range(40)))
def test_corrupt_metadata_does_not_lead_outside_the_log(seed: int) -> None:
    rng = random.Random(seed)
    log = GuardedLog()
    writers = [log.concurrent(), log.exclusive()]
    image = log.image()
    for _ in range(60):
        at = META + rng.choice((0, 8, 16, layout.LOG_ACTIVE_TERM_COUNT_OFFSET))
        if rng.random() < 0.5:
            log.memory.put_i64(at, rng.choice(NUMBERS) << 32 | rng.getrandbits(18))
        else:
            log.memory.put_i32(at, rng.choice(NUMBERS))
        for _ in range(3):
            with suppress(ValueError):
                for writer in writers:
                    writer.offer(rng.randbytes(rng.choice((1, 100, 5000))))
                    writer.offer_many([b"one", bytes(3000)])
                    assert isinstance(writer.position, int)
        log.memory.put_i32(rng.randrange(0, 3 * T, 32), rng.choice(NUMBERS))
        log.counters.put_i64(POSITION * 128, rng.choice((*POSITIONS, 0, T, 7 * T + 64)))
        with suppress(ValueError):
            image.poll(bytes, 5)
        with suppress(ValueError):
            image.poll_bytes(5)
    log.guarded.check()


@pytest.mark.parametrize("length", [5, 31, 1 << 20, (1 << 31) - 1])
def test_a_scan_for_datagrams_stops_at_a_frame_that_is_not_possible(paths: Modules, length: int) -> None:
    log = new_log(paths)
    for kind in (layout.TYPE_DATA, layout.TYPE_PAD):
        log.put_i32(0, 64)
        log.put_u8(6, layout.TYPE_DATA)
        log.put_i32(64, length)
        log.put_u8(64 + 6, kind)
        batch = paths.term.RunBatch()
        assert batch.scan(log, 0, 0, NETWORK_TERM, 1 << 20, 65504) == [(0, 64, 64, 64)]
        assert batch.scan(log, 0, 64, NETWORK_TERM, 1 << 20, 65504) == []
        assert batch.malformed_length == length
        assert not batch.is_blocked


def test_a_frame_may_not_run_over_the_end_of_its_term(paths: Modules) -> None:
    log = new_log(paths)
    log.put_i32(NETWORK_TERM - 64, 96)
    log.put_u8(NETWORK_TERM - 64 + 6, layout.TYPE_DATA)
    batch = paths.term.RunBatch()
    assert batch.scan(log, 0, NETWORK_TERM - 64, NETWORK_TERM, 1 << 20, 1408) == []
    assert batch.malformed_length == 96


def test_a_corrupt_frame_is_reported_once_and_holds_up_its_stream_alone(paths: Modules) -> None:
    pair = Pair(paths)
    pair.connect()
    pair.writer.append(b"whole")
    position = pair.writer.position
    pair.send_path.log.put_i32(position, 7)
    for _ in range(5):
        pair.cycle()
    events = [event for event in pair.sender.events.take() if event[0] == layout.EVENT_MALFORMED_FRAME]
    assert [event[4] for event in events] == [7]
    assert pair.send_path.sender_position == position


def test_gaps_end_at_the_limit(paths: Modules) -> None:
    log = new_log(paths)
    log.put_i32(0, (1 << 31) - 1)
    assert paths.term.gaps(log, 0, 0, 4096) == []
    log.put_i32(0, 32)
    assert paths.term.gaps(log, 0, 0, 4096) == [(32, 4096 - 32)]


@pytest.mark.parametrize("length", [-5, -(1 << 20), -(1 << 31)])
def test_an_invalid_abandoned_claim_raises(paths: Modules, length: int) -> None:
    log = new_log(paths)
    log.put_i32(64, length)
    before = log.get_bytes(0, 4096)
    with pytest.raises(ValueError, match=f"position 64: a claim of {-length} bytes is not possible"):
        paths.term.unblock(log, NETWORK_TERM, 3, 64)
    assert log.get_bytes(0, 4096) == before
    for position in (-32, 5):
        with pytest.raises(ValueError, match=f"no frame begins at position {position}"):
            paths.term.unblock(log, NETWORK_TERM, 3, position)


def test_a_counter_without_a_position_does_not_stall_the_stream(paths: Modules) -> None:
    pair = Pair(paths)
    pair.counters.put_i64(SPY * 128, -7)
    with pytest.raises(ValueError, match="holds no position: -7"):
        pair.send_path.spies.add(SPY)
    assert len(pair.send_path.spies) == 0


@pytest.mark.parametrize("value", [1 << 62, (1 << 63) - 1, -(1 << 63)])
def test_a_corrupt_subscriber_position_ends_no_cycle_and_cleans_nothing_ahead(paths: Modules, value: int) -> None:
    pair = Pair(paths)
    pair.connect()
    pair.receive_path.subscribers.add(SUBSCRIBER)
    pair.writer.append(bytes(1000))
    for _ in range(5):
        pair.now_ns += 1_000_000
        pair.cycle()
        pair.deliver()
    position = pair.writer.position
    pair.counters.put_i64(SUBSCRIBER * 128, value)
    pair.send_path.spies_simulate_connection = True
    pair.cycle()
    assert pair.receive_path.rebuild_position == position
    assert pair.receive_path.clean_position <= position


@pytest.mark.parametrize("seed", long_after(8, range(20)))
def test_a_corrupt_ring_buffer_works_or_raises(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        guarded = Guarded(1024 + layout.RING_TRAILER_LENGTH)
        ring = ManyToOneRingBuffer(guarded.memory)
        ring.write(1, b"first")
        ring.write(2, b"second")
        trailer = 1024 + rng.choice((layout.RING_HEAD_OFFSET, layout.RING_TAIL_OFFSET, layout.RING_HEAD_CACHE_OFFSET))
        guarded.memory.put_i64(trailer, rng.choice(NUMBERS) + rng.choice((0, 1 << 40, -(1 << 62))))
        guarded.memory.put_i32(rng.randrange(0, 1024, 8), rng.choice(NUMBERS))
        for _ in range(4):
            with suppress(ValueError):
                ring.write(3, rng.randbytes(rng.randrange(128)))
            with suppress(ValueError):
                ring.read(lambda _type_id, _payload: None)
            with suppress(ValueError):
                ring.unblock()
        guarded.check()


def test_a_corrupt_ring_buffer_names_the_invalid_value() -> None:
    memory = AtomicBuffer(bytearray(1024 + layout.RING_TRAILER_LENGTH))
    ring = ManyToOneRingBuffer(memory)
    memory.put_i64(1024 + layout.RING_TAIL_OFFSET, 12)
    with pytest.raises(ValueError, match="begins at position 12"):
        ring.write(1, b"")
    memory.put_i64(1024 + layout.RING_HEAD_OFFSET, 4)
    for take in (lambda: ring.read(print), ring.unblock):
        with pytest.raises(ValueError, match="begins at position 4"):
            take()
    memory.put_i64(1024 + layout.RING_HEAD_OFFSET, 0)
    memory.put_i32(0, -4096)
    with pytest.raises(ValueError, match="a claim of 4096 bytes at offset 0"):
        ring.unblock()


@pytest.mark.parametrize("seed", long_after(8, range(20)))
def test_a_corrupt_broadcast_buffer_works_or_reports_an_overrun(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        guarded = Guarded(1024 + layout.BROADCAST_TRAILER_LENGTH)
        transmitter, receiver = BroadcastTransmitter(guarded.memory), BroadcastReceiver(guarded.memory)
        for _ in range(rng.randrange(30)):
            transmitter.transmit(1, rng.randbytes(rng.randrange(100)))
        trailer = 1024 + rng.choice(
            (layout.BROADCAST_TAIL_INTENT_OFFSET, layout.BROADCAST_TAIL_OFFSET, layout.BROADCAST_LATEST_OFFSET)
        )
        guarded.memory.put_i64(trailer, rng.choice(NUMBERS) + rng.choice((0, 1 << 40, -(1 << 62))))
        guarded.memory.put_i32(rng.randrange(0, 1024, 8), rng.choice(NUMBERS))
        for _ in range(20):
            assert receiver.receive(lambda _type_id, _payload: None, 10) in range(-1, 11)
        BroadcastReceiver(guarded.memory).receive(lambda _type_id, _payload: None)
        with suppress(ValueError):
            transmitter.transmit(1, bytes(100))
        guarded.check()


@pytest.mark.parametrize("seed", range(5))
def test_counters_with_corrupt_metadata_are_read(seed: int) -> None:
    rng = random.Random(seed)
    metadata, values = Guarded(512 * 16), Guarded(128 * 16)
    manager = CountersManager(metadata.memory, values.memory, 0)
    for number in range(10):
        manager.allocate(number, b"key", f"label {number}")
    reader = CountersReader(metadata.memory, values.memory)
    for _ in range(300):
        metadata.memory.put_i32(rng.randrange(0, 512 * 16, 4), rng.choice(NUMBERS))
        for counter_id in reader:
            assert len(reader.label_bytes(counter_id)) <= layout.COUNTER_LABEL_MAX_LENGTH
            assert len(reader.key(counter_id)) == layout.COUNTER_KEY_MAX_LENGTH
            reader.set_label(counter_id, bytes(1000))
        reader.find(rng.choice(NUMBERS), 0)
    metadata.check()
    values.check()


def test_any_limit_value_rejects_or_admits(core: Core) -> None:
    for value in (-(1 << 63), -1, 0, (1 << 63) - 1):
        log = Log(core)
        log.counters.put_i64(LIMIT * 128, value)
        assert (log.concurrent().offer(b"message") > 0) == (value > 0)


@pytest.mark.parametrize("excess", [32, 64, 4096])
def test_a_reader_follows_no_frame_over_the_end_of_its_term(core: Core, excess: int) -> None:
    log = Log(core)
    appender, image = log.exclusive(), log.image()
    while appender.position < T - 128:
        assert appender.offer(bytes(96)) > 0
    image.poll(lambda fragment: None, 10_000)
    log.memory.put_i32(log.position, T - log.position + excess)
    with pytest.raises(ValueError, match="is not possible where"):
        image.poll(lambda fragment: None, 10)
