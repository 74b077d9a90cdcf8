"""The broadcast buffer, compiled and as plain Python."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit._core.uncompiled import load

from mainstem._core.memory import broadcast as compiled_broadcast
from mainstem._core.memory import buffer as compiled_buffer

PLAIN = {name: load(f"memory.{name}") for name in ("buffer", "broadcast")}
CAPACITY = 1024
INTENT, TAIL, LATEST = CAPACITY, CAPACITY + 8, CAPACITY + 16


def make(form):
    module = compiled_broadcast if form == "compiled" else PLAIN["broadcast"]
    memory = compiled_buffer if form == "compiled" else PLAIN["buffer"]
    buffer = memory.AtomicBuffer(bytearray(CAPACITY + 128))
    return SimpleNamespace(
        buffer=buffer,
        transmitter=module.BroadcastTransmitter(buffer),
        receiver=lambda: module.BroadcastReceiver(buffer),
    )


@pytest.fixture(params=["compiled", "plain"])
def pair(request):
    return make(request.param)


def take(receiver, limit=1000):
    got = []
    assert receiver.receive(lambda type_id, payload: got.append((type_id, payload)), limit) == len(got)
    return got


def test_a_record_is_laid_out_as_length_type_payload_with_the_trailer_behind(pair):
    pair.transmitter.transmit(3, b"abcde")
    pair.transmitter.transmit(4, b"")
    assert pair.buffer.get_bytes(0, 24) == struct.pack("<ii5sxxxii", 13, 3, b"abcde", 8, 4)
    assert [pair.buffer.get_i64(at) for at in (INTENT, TAIL, LATEST)] == [24, 24, 16]


def test_every_receiver_gets_every_record(pair):
    receivers = [pair.receiver(), pair.receiver()]
    for n in range(5):
        pair.transmitter.transmit(n + 1, bytes([n]))
    for receiver in receivers:
        assert take(receiver, 2) == [(1, b"\0"), (2, b"\1")]
        assert take(receiver) == [(3, b"\2"), (4, b"\3"), (5, b"\4")]
        assert take(receiver) == []


def test_a_late_receiver_starts_at_the_latest_record(pair):
    pair.transmitter.transmit(1, b"old")
    pair.transmitter.transmit(2, b"latest")
    assert take(pair.receiver()) == [(2, b"latest")]


def test_padding_at_the_end_is_followed_to_the_front(pair):
    receiver = pair.receiver()
    for n in range(30):
        pair.transmitter.transmit(1 + n, bytes([n]) * 90)
        assert take(receiver) == [(1 + n, bytes([n]) * 90)]


@pytest.mark.parametrize("length", [60, 56, 1])  # records that end in padding, fill the buffer, or are short
def test_a_lapped_receiver_reports_an_overrun_and_never_skips_records_silently(pair, length):
    receiver = pair.receiver()
    for n in range(400):
        pair.transmitter.transmit(1 + n, bytes([n % 256]) * length)
    got = []
    assert receiver.receive(lambda *record: got.append(record), 10) == compiled_broadcast.OVERRUN
    assert got == []


def test_a_record_overwritten_while_it_is_read_is_an_overrun(pair):
    receiver = pair.receiver()
    pair.transmitter.transmit(1, b"gone")
    pair.transmitter.transmit(2, b"gone")

    def overtake(type_id, payload):
        assert type_id == 1
        pair.buffer.put_i64(INTENT, 10 * CAPACITY)  # the transmitter is about to write over everything
        pair.buffer.put_i32(16, 1 << 20)

    assert receiver.receive(overtake, 1) == 1
    pair.buffer.put_i64(LATEST, 16)
    assert receiver.receive(overtake, 1) == compiled_broadcast.OVERRUN


def test_a_payload_above_an_eighth_of_the_capacity_is_refused(pair):
    pair.transmitter.transmit(1, bytes(CAPACITY // 8))
    with pytest.raises(ValueError, match="exceeds the maximum of 128"):
        pair.transmitter.transmit(1, bytes(CAPACITY // 8 + 1))
    with pytest.raises(ValueError, match="not positive"):
        pair.transmitter.transmit(0, b"")


def test_use_after_the_buffer_was_closed_raises(pair):
    receiver = pair.receiver()
    pair.buffer.close()
    with pytest.raises(IndexError, match="closed"):
        pair.transmitter.transmit(1, b"")
    with pytest.raises(IndexError, match="closed"):
        take(receiver)


@pytest.mark.parametrize("form", ["compiled", "plain"])
@given(st.lists(st.one_of(st.binary(max_size=128), st.integers(1, 6)), max_size=60))
def test_a_receiver_sees_every_record_in_order_until_it_reports_an_overrun(form, steps):
    pair = make(form)
    receiver = pair.receiver()
    sent, got = [], []
    for step in [*steps, 1000]:
        if isinstance(step, bytes):
            sent.append((len(sent) + 1, step))
            pair.transmitter.transmit(*sent[-1])
        elif receiver.receive(lambda *record: got.append(record), step) == compiled_broadcast.OVERRUN:
            assert got == sent[: len(got)]
            assert len(got) < len(sent)
            return
    assert got == sent
