"""The many-to-one ring buffer, compiled and as plain Python."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit._core.uncompiled import load

from mainstem._core.memory import buffer as compiled_buffer
from mainstem._core.memory import ring_buffer as compiled_ring_buffer

PLAIN = {name: load(f"memory.{name}") for name in ("buffer", "ring_buffer")}
CAPACITY = 1024
TAIL, HEAD_CACHE, HEAD = CAPACITY + 128, CAPACITY + 256, CAPACITY + 384


def make(form, capacity=CAPACITY):
    buffer_module = compiled_buffer if form == "compiled" else PLAIN["buffer"]
    ring_module = compiled_ring_buffer if form == "compiled" else PLAIN["ring_buffer"]
    return ring_module.ManyToOneRingBuffer(buffer_module.AtomicBuffer(bytearray(capacity + 768)))


@pytest.fixture(params=["compiled", "plain"])
def ring(request):
    return make(request.param)


def drain(ring, limit=1000):
    got = []
    ring.read(lambda type_id, payload: got.append((type_id, payload)), limit)
    return got


def start_at(ring, position):
    for offset in (TAIL, HEAD_CACHE, HEAD):
        ring.buffer.put_i64(offset, position)


def test_a_record_is_laid_out_as_length_type_payload(ring):
    assert ring.write(7, b"tide")
    assert ring.buffer.get_bytes(0, 16) == struct.pack("<ii4sxxxx", 12, 7, b"tide")
    assert ring.buffer.get_i64(TAIL) == 16


def test_records_are_read_in_order_and_their_bytes_are_zeroed_before_the_head_moves(ring):
    for n in range(5):
        assert ring.write(n + 1, bytes([n]) * n)
    assert drain(ring, 2) == [(1, b""), (2, b"\1")]
    assert drain(ring) == [(3, b"\2\2"), (4, b"\3\3\3"), (5, b"\4" * 4)]
    assert ring.buffer.get_bytes(0, CAPACITY) == bytes(CAPACITY)
    assert ring.size == 0
    assert ring.consumer_position == ring.producer_position == 8 + 16 * 4


def test_write_fails_when_the_ring_is_full_and_succeeds_after_a_read(ring):
    written = 0
    while ring.write(1, b"x" * 120):
        written += 1
    assert written == CAPACITY // 128
    assert len(drain(ring, 1)) == 1
    assert ring.write(1, b"x" * 120)
    assert not ring.write(1, b"x" * 120)


def test_a_record_that_would_cross_the_end_goes_to_the_front_behind_padding(ring):
    start_at(ring, CAPACITY - 24)
    assert ring.write(9, b"0123456789abcdef0")
    assert ring.buffer.get_i32(CAPACITY - 24) == 24
    assert ring.buffer.get_i32(CAPACITY - 20) == -1
    assert ring.buffer.get_i32(0) == 25
    assert drain(ring) == []  # one read ends at the end of the ring
    assert drain(ring) == [(9, b"0123456789abcdef0")]


def test_wrapping_fails_while_the_front_is_not_free(ring):
    ring.buffer.put_i64(TAIL, 2 * CAPACITY - 24)
    ring.buffer.put_i64(HEAD, CAPACITY + 16)
    ring.buffer.put_i64(HEAD_CACHE, CAPACITY + 16)
    assert not ring.write(9, b"0123456789abcdef0")
    ring.buffer.put_i64(HEAD, CAPACITY + 32)
    assert ring.write(9, b"0123456789abcdef0")


def test_a_claim_holds_up_later_records_until_it_is_committed(ring):
    offset = ring.try_claim(5, 4)
    assert ring.buffer.get_i32(offset - 8) == -12
    assert ring.write(6, b"later")
    assert drain(ring) == []
    ring.buffer.put_bytes(offset, b"soon")
    ring.commit(offset)
    assert drain(ring) == [(5, b"soon"), (6, b"later")]


def test_an_aborted_claim_is_skipped(ring):
    offset = ring.try_claim(5, 4)
    ring.abort(offset)
    ring.write(6, b"later")
    assert drain(ring) == [(6, b"later")]


@pytest.mark.parametrize("offset", [0, 8, 12, 4096, -8])
def test_commit_rejects_an_offset_without_an_open_claim(ring, offset):
    with pytest.raises(ValueError, match="not that of a claim"):
        ring.commit(offset)


def test_write_refuses_a_payload_above_an_eighth_of_the_capacity(ring):
    assert ring.write(1, bytes(CAPACITY // 8))
    with pytest.raises(ValueError, match="exceeds the maximum of 128"):
        ring.write(1, bytes(CAPACITY // 8 + 1))


@pytest.mark.parametrize("type_id", [0, -1])
def test_write_refuses_a_type_that_is_not_positive(ring, type_id):
    with pytest.raises(ValueError, match="not positive"):
        ring.write(type_id, b"")


def test_a_handler_that_raises_has_consumed_its_record(ring):
    ring.write(1, b"a")
    ring.write(2, b"b")

    def fail(type_id, payload):
        raise LookupError(type_id)

    with pytest.raises(LookupError):
        ring.read(fail)
    assert drain(ring) == [(2, b"b")]


def test_a_record_with_an_invalid_length_is_rejected_and_not_consumed(ring):
    ring.write(1, b"a")
    ring.buffer.put_i32(0, CAPACITY + 8)
    for _ in range(2):
        with pytest.raises(ValueError, match="does not fit"):
            drain(ring)


def test_unblock_does_nothing_on_an_empty_ring_or_a_whole_record(ring):
    assert not ring.unblock()
    ring.write(1, b"a")
    assert not ring.unblock()


def test_unblock_turns_an_open_claim_into_padding(ring):
    ring.try_claim(5, 20)
    ring.write(6, b"later")
    assert ring.unblock()
    assert drain(ring) == [(6, b"later")]


def test_unblock_skips_a_claim_without_a_header_up_to_the_next_record(ring):
    ring.buffer.put_i64(TAIL, 40)
    ring.write(6, b"later")
    assert ring.unblock()
    assert ring.buffer.get_i32(0) == 40
    assert drain(ring) == [(6, b"later")]


def test_unblock_waits_until_a_later_record_shows_the_claims_length(ring):
    ring.buffer.put_i64(TAIL, 40)
    assert not ring.unblock()


def test_unblock_pads_to_the_end_when_the_tail_has_passed_it(ring):
    start_at(ring, CAPACITY - 40)
    ring.buffer.put_i64(TAIL, CAPACITY)
    ring.write(6, b"later")
    assert ring.unblock()
    assert drain(ring) == []
    assert drain(ring) == [(6, b"later")]


def test_correlation_ids_count_up_and_the_heartbeat_is_kept(ring):
    assert [ring.next_correlation_id() for _ in range(3)] == [0, 1, 2]
    assert ring.consumer_heartbeat_ms == 0
    ring.consumer_heartbeat_ms = -1
    assert ring.consumer_heartbeat_ms == -1


@pytest.mark.parametrize("form", ["compiled", "plain"])
def test_a_capacity_must_be_a_power_of_two(form):
    with pytest.raises(ValueError, match="power of two"):
        make(form, 1000)


def test_use_after_the_buffer_was_closed_raises(ring):
    ring.buffer.close()
    with pytest.raises(IndexError, match="closed"):
        ring.write(1, b"a")
    with pytest.raises(IndexError, match="closed"):
        drain(ring)


@pytest.mark.parametrize("form", ["compiled", "plain"])
@given(st.lists(st.one_of(st.binary(max_size=128), st.integers(1, 6)), max_size=60))
def test_reads_match_writes_in_any_interleaving(form, steps):
    ring = make(form)
    sent, got = [], []
    for step in steps:
        if isinstance(step, bytes):
            if ring.write(len(sent) % 7 + 1, step):
                sent.append((len(sent) % 7 + 1, step))
        else:
            got += drain(ring, step)
    while ring.size:
        got += drain(ring)
    assert got == sent
    assert ring.buffer.get_bytes(0, CAPACITY) == bytes(CAPACITY)
