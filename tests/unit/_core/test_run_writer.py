"""Runs of plain messages, encoded and taken out again, both compiled and from the uncompiled source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.aqueduct_frames import Message
from tests.unit._core.uncompiled import load

from mainstem._core.aqueduct import run_writer as compiled
from mainstem.aqueduct.frames import (
    ACK_RELIABLE,
    CHANNEL_CONTROL,
    CLOSED_CHANNEL_LOST,
    FINISH_SENDER,
    RANGE_FRAMES,
    SENT_UNRELIABLE,
    Incomplete,
    decode_frame,
    encode_frame,
)
from mainstem.aqueduct.limits import Limits
from mainstem.errors import RemoteProtocolError

if TYPE_CHECKING:
    from types import ModuleType

CHANNEL, PREFIX = 5, b"\x03\x05"
LIMITS = Limits(max_payload=100, max_attachments=3)
BOTH = [pytest.param(compiled, id="compiled"), pytest.param(load("aqueduct.run_writer"), id="uncompiled")]
both = pytest.mark.parametrize("module", BOTH)


def ledger(module: ModuleType, *, messages: int = 1000, size: int = 1 << 20, largest: int = 1 << 16) -> tuple[Any, Any]:
    writer = module.MessageWriter()
    made = module.Ledger(writer, CHANNEL, messages, size, largest, 1000)
    made.open_fast_path(2, False)
    return writer, made


@both
@given(payloads=st.lists(st.binary(max_size=300) | st.integers(0, 6_000).map(bytes), max_size=40))
def test_rows_round_trip_unchanged(module: ModuleType, payloads: list[bytes]) -> None:
    writer, made = ledger(module)
    for payload in payloads:
        while not made.put(payload):
            writer.renew()
    stream_id, pieces = writer.take()
    assert stream_id == (2 if payloads else -1)
    data = b"".join(pieces)
    position = 0
    for number, payload in enumerate(payloads):
        frame, position = decode_frame(data, position, len(data))
        assert frame == Message(5, number, (), payload)
    assert position == len(data)
    reader = module.RunReader()
    assert reader.read(data, 0, PREFIX, 0, 1000, 1 << 16) == payloads
    assert (reader.position, reader.count, reader.size) == (len(data), len(payloads), sum(map(len, payloads)))
    assert (made.count, made.size) == (len(payloads), sum(map(len, payloads)))


@both
@given(numbers=st.tuples(st.integers(0, 1 << 40), st.integers(1, 30)), cut=st.integers(0, 200))
def test_only_whole_messages_of_the_run_are_taken(module: ModuleType, numbers: tuple[int, int], cut: int) -> None:
    first, count = numbers
    frames = [Message(5, first + index, (), b"x" * (index * 7)).encode() for index in range(count)]
    whole = b"".join(frames)
    data = whole[: max(0, len(whole) - cut)]
    reader = module.RunReader()
    payloads = reader.read(data, 0, PREFIX, first, 1000, 1 << 16)
    complete = 0
    while complete < count and len(b"".join(frames[: complete + 1])) <= len(data):
        complete += 1
    assert len(payloads) == complete
    assert reader.position == len(b"".join(frames[:complete]))


@both
@pytest.mark.parametrize(
    "frame",
    [
        Message(6, 0, (), b"another channel").encode(),
        Message(5, 1, (), b"another number").encode(),
        Message(5, 0, (12,), b"something attached").encode(),
        Message(5, 0, (), b"x" * 101).encode(),
        b"\x03\x05\x80\x00\x00\x00",
        b"\x03\x05\x00\x00\x81\x00x",
        b"\x03\x05" + b"\xff" * 9 + b"\x01\x00\x00",
        b"\x03\x05\x00\x00" + b"\xff" * 9 + b"\x01",
        b"\x04\x05",
        b"\x03",
        b"",
    ],
)
def test_unexpected_files_are_left_alone(module: ModuleType, frame: bytes) -> None:
    reader = module.RunReader()
    assert reader.read(frame, 0, PREFIX, 0, 10, 100) == []
    assert (reader.position, reader.count) == (0, 0)


@both
@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_within_their_bounds(module: ModuleType, data: bytes) -> None:
    reader = module.RunReader()
    for start in (data, PREFIX + b"\x00\x00" + data):
        payloads = reader.read(start, 0, PREFIX, 0, 10, 1000)
        assert reader.position <= len(start)
        assert sum(map(len, payloads)) == reader.size <= len(start)


@both
def test_nothing_is_accepted_beyond_a_bound_or_while_closed(module: ModuleType) -> None:
    writer, made = ledger(module, messages=2, size=100, largest=60)
    assert not made.put(bytearray(b"only bytes are plain"))
    assert not made.put(bytes(61))
    assert made.put(bytes(60))
    assert made.put(bytes(60))
    assert not made.put(b"")
    made.acknowledge(0, 2)
    made.close_fast_path()
    assert not made.put(b"")
    made.open_fast_path(2, False)
    assert made.put(b"")
    assert made.first == 2
    assert writer.stream_id == 2


@both
def test_the_byte_limit_grows_as_the_receiver_acknowledges_bytes(module: ModuleType) -> None:
    writer = module.MessageWriter()
    ledgers = [module.Ledger(writer, CHANNEL, 1000, 4 << 20, 1 << 20, 1000) for _ in range(20)]
    first = ledgers[0]
    assert first.byte_limit() == 256 << 10
    for _ in range(4):
        assert first.size < first.byte_limit()
        first.add(64 << 10, None)
    assert first.size == first.byte_limit()
    first.acknowledge(0, 2)
    assert first.byte_limit() == 384 << 10
    assert first.size < first.byte_limit()
    # The ledgers can hold 16 MiB together before each is limited to a sixteenth of that.
    for made in ledgers:
        for _ in range(8):
            made.acknowledge(made.add(1 << 20, None), made.next)
        assert made.byte_limit() == 4 << 20
    for made in ledgers[1:]:
        made.add(1 << 20, None)
    assert writer.unacknowledged > 16 << 20
    assert {made.byte_limit() for made in ledgers} == {1 << 20}
    first.max_bytes = 1000
    assert first.byte_limit() == 1000
    for made in ledgers:
        made.clear()
    assert writer.unacknowledged == 0


@both
@given(
    head=st.tuples(*[st.integers(0, 1 << 62)] * 2, st.lists(st.integers(0, 1 << 62), max_size=5).map(tuple)),
    payload=st.binary(max_size=200),
)
def test_usual_frames_are_decoded_as_any_are(module: ModuleType, head: Any, payload: bytes) -> None:
    channel, number, ids = head
    encoded = module.integer_frame(3, channel)
    encoded = module.message_head(encoded, number, ids, len(payload)) + payload
    assert encoded == Message(*head, payload).encode()
    frames = [encoded]
    frames += [
        encode_frame(tag, number) for tag in (CHANNEL_CONTROL, SENT_UNRELIABLE, FINISH_SENDER, CLOSED_CHANNEL_LOST)
    ]
    frames += [encode_frame(tag, counts) for tag in RANGE_FRAMES for counts in ((), (3,), (0, 2, 1), (number,))]
    reader = module.RunReader()
    for data in frames:
        for end in (len(data), *range(min(len(data), 40))):
            padded = b"\xff" + data[:end]
            try:
                expected = decode_frame(padded, 1, len(padded), LIMITS)
            except (Incomplete, RemoteProtocolError):
                expected = None
            found = reader.frame(padded, 1, LIMITS.max_payload, LIMITS.max_attachments, LIMITS.max_range_bytes)
            assert found in (None, expected)
            assert found == expected or number > 1 << 40 or expected is None


@both
def test_other_streams_wait_until_these_messages_are_read(module: ModuleType) -> None:
    writer, one = ledger(module)
    other = module.Ledger(writer, 9, 10, 1000, 100, 1000)
    other.open_fast_path(6, False)
    assert one.put(b"a")
    assert not other.put(b"b")
    writer.take()
    assert other.put(b"b")
    assert writer.stream_id == 6


@both
def test_the_first_item_wakes_a_thread_and_many_request_a_turn(module: ModuleType) -> None:
    writer, made = ledger(module)
    woken: list[int] = []
    writer.wake = lambda: woken.append(1)
    count = 0
    while made.put(b"x"):
        count += 1
    assert made.is_spent
    assert len(woken) == 1
    assert 100 < count < 1000
    writer.take()
    assert not made.put(b"x")
    writer.renew()
    assert made.put(b"x")
    assert len(woken) == 2


@both
def test_acknowledgments_in_any_order_free_dependents(module: ModuleType) -> None:
    _, made = ledger(module)
    for index in range(10):
        assert made.add(index, f"entry {index}" if index % 3 == 0 else None) == index
    assert made.acknowledge(5, 8) == ["entry 6"]
    assert (made.first, made.count, made.size) == (0, 7, 45 - 18)
    with pytest.raises(ValueError, match="5"):
        made.acknowledge(4, 6)
    with pytest.raises(IndexError):
        made.acknowledge(9, 11)
    assert made.acknowledge(0, 4) == ["entry 0", "entry 3"]
    assert made.first == 8
    assert made.clear() == ["entry 9"]
    assert (made.first, made.next, made.count, made.size) == (10, 10, 0, 0)


def alone(module: ModuleType, *, unreliable: bool) -> tuple[Any, Any]:
    writer, made = ledger(module)
    writer.opening = b"\x02\x00"
    writer.stream_room, writer.datagram_room, writer.max_datagram = 20, 20, 200
    made.open_fast_path(-1, unreliable)
    made.next_unreliable = 300
    return writer, made


@both
@pytest.mark.parametrize("unreliable", [False, True])
@given(payloads=st.lists(st.binary(max_size=150), max_size=20))
def test_single_rows_round_trip_and_are_gathered_again(
    module: ModuleType, payloads: list[bytes], unreliable: bool
) -> None:
    writer, made = alone(module, unreliable=unreliable)
    first = made.next_unreliable if unreliable else 0
    assert all(made.put(payload) for payload in payloads)
    singles, datagrams = writer.take_alone()
    assert not writer.has_alone
    frames = datagrams if unreliable else singles
    assert (singles if unreliable else datagrams) == []
    for number, (frame, payload) in enumerate(zip(frames, payloads, strict=True), first):
        assert frame == b"\x02\x00" + Message(5, number, (), payload).encode()
    items = [b"junk", *(frame[2:] for frame in frames), Message(5, first + 99, (), b"").encode()]
    reader = module.RunReader()
    assert reader.gather(items, 0, 64, 1000) == []
    if payloads:
        assert reader.gather(items, 1, 64, 1000) == payloads
        assert (reader.channel, reader.number, reader.count) == (5, first, len(payloads))
        assert reader.size == sum(map(len, payloads))
        assert reader.gather(items, 1, 1, 1000) == payloads[:1]
        assert reader.gather([items[1] + b"more"], 0, 64, 1000) == []
    assert list(writer.undeclared) == ([CHANNEL] if unreliable and payloads else [])


@both
def test_no_datagram_is_sent_when_blocked(module: ModuleType) -> None:
    writer, made = alone(module, unreliable=True)
    assert not made.put(bytearray(b"no bytes"))
    assert not made.put(bytes(200))
    made.close_fast_path()
    assert not made.put(b"closed")
    made.open_fast_path(-1, True)
    assert [made.put(b"x") for _ in range(21)] == [True] * 20 + [False]
    writer.datagram_room = 20
    made.next_unreliable = 1000
    assert not made.put(b"beyond the bound")
    made.mark = 1
    assert made.put(b"within it")


@both
def test_no_stream_is_opened_without_room_for_one(module: ModuleType) -> None:
    writer, made = alone(module, unreliable=False)
    writer.stream_room = 1
    assert made.put(b"one")
    assert not made.put(b"no room for another")
    assert writer.waiting_singles == 1


@both
@pytest.mark.parametrize(
    ("base", "ranges", "end", "counts"),
    [
        (0, [], 0, ()),
        (5, [(5, 8)], 8, (3,)),
        (5, [(6, 8)], 8, (0, 1, 2)),
        (5, [(5, 6), (9, 10)], 12, (1, 3, 1, 2)),
        (5, [], 7, (0, 2)),
        (1 << 63, [((1 << 63) + 1, (1 << 64) - 1)], (1 << 64) - 1, (0, 1, (1 << 63) - 2)),
    ],
)
def test_ranges_become_run_lengths(
    module: ModuleType, base: int, ranges: list[tuple[int, int]], end: int, counts: tuple[int, ...]
) -> None:
    assert module.ranges_frame(ACK_RELIABLE, base, ranges, end) == encode_frame(ACK_RELIABLE, counts)
