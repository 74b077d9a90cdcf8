from __future__ import annotations

import struct
import tracemalloc
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit._core.uncompiled import load

from mainstem._core import layout
from mainstem._core.log import columns as compiled
from mainstem._core.memory.buffer import AtomicBuffer

uncompiled: Any = load("log.columns")
EVERYTHING = layout.COLUMN_ALL
CODES = {
    "position": "q",
    "session_id": "i",
    "stream_id": "i",
    "term_id": "i",
    "term_offset": "i",
    "flags": "h",
    "type": "h",
    "reserved_value": "q",
    "offset": "q",
    "length": "i",
    "payload_offsets": "i",
}


@pytest.fixture(params=[compiled, uncompiled], ids=["compiled", "uncompiled"])
def columns(request: pytest.FixtureRequest) -> Any:
    return request.param


@dataclass
class Frame:
    payload: bytes
    flags: int = 0xC0
    kind: int = 1
    session_id: int = -7
    stream_id: int = 1001
    reserved: int = 0

    def encode(self, term_id: int, term_offset: int) -> bytes:
        length = 32 + len(self.payload)
        head = struct.pack(
            "<iBBHiiiiq",
            length,
            0,
            self.flags,
            self.kind,
            term_offset,
            self.session_id,
            self.stream_id,
            term_id,
            self.reserved,
        )
        return (head + self.payload).ljust((length + 31) & ~31, b"\0")


def run_of(frames: list[Frame], term_id: int = 3) -> bytes:
    out = bytearray()
    for frame in frames:
        out += frame.encode(term_id, len(out))
    return bytes(out)


def rows_of(taken: dict[str, bytearray]) -> list[dict[str, Any]]:
    lists: dict[str, list[Any]] = {n: memoryview(taken[n]).cast(CODES[n]).tolist() for n in taken if n != "payload"}
    if "payload" in taken:
        ends = lists.pop("payload_offsets")
        data = bytes(taken["payload"])
        lists["payload"] = [data[a:b] for a, b in pairwise(ends)]
    names = list(lists)
    return [dict(zip(names, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def expected_frames(frames: list[Frame], base: int, term_id: int = 3, padding: bool = False) -> list[dict[str, Any]]:
    rows, offset = [], 0
    for frame in frames:
        at, offset = offset, offset + (32 + len(frame.payload) + 31 & ~31)
        if frame.kind == 1 or padding:
            rows.append(
                {
                    "position": base + offset,
                    "session_id": frame.session_id,
                    "stream_id": frame.stream_id,
                    "term_id": term_id,
                    "term_offset": at,
                    "flags": frame.flags,
                    "type": frame.kind,
                    "reserved_value": frame.reserved,
                    "length": len(frame.payload),
                    "payload": frame.payload if frame.kind else b"",
                }
            )
    return rows


def expected_messages(frames: list[Frame], base: int) -> list[dict[str, Any]]:
    """Join frames in a plain model: fragments from a begin to an end without a gap form a message."""
    rows: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for row in expected_frames(frames, base, padding=True):
        if row["type"] != 1:
            # Padding within a message is a gap in it.
            parts = []
            continue
        if row["flags"] & 0x80:
            parts = []
        elif not parts:
            continue
        parts.append(row)
        if row["flags"] & 0x40:
            joined = dict(parts[0])
            joined["position"] = row["position"]
            joined["flags"] = parts[0]["flags"] | row["flags"]
            joined["payload"] = b"".join(part["payload"] for part in parts)
            joined["length"] = len(joined["payload"])
            rows.append(joined)
            parts = []
    return rows


frame_lists = st.lists(
    st.builds(
        Frame,
        payload=st.binary(max_size=70),
        flags=st.sampled_from([0xC0, 0xC0, 0x80, 0x40, 0x00, 0xE0]),
        kind=st.sampled_from([1, 1, 1, 1, 0]),
        session_id=st.integers(-(2**31), 2**31 - 1),
        stream_id=st.integers(-(2**31), 2**31 - 1),
        reserved=st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(frames=frame_lists, base=st.integers(0, 2**40), padding=st.booleans(), step=st.integers(1, 40))
def test_frames_become_the_rows_of_a_plain_model(frames: list[Frame], base: int, padding: bool, step: int) -> None:
    data = run_of(frames)
    for module in (compiled, uncompiled):
        batch = module.Columns(EVERYTHING, 1, 1)
        at = 0
        while at < len(data):
            passed = batch.add_frames(data, at, len(data), base + at, step, padding)
            assert passed > 0
            at += passed
        assert rows_of(batch.take()) == expected_frames(frames, base, padding=padding)


@settings(max_examples=150, deadline=None)
@given(frames=frame_lists, base=st.integers(0, 2**40), step=st.integers(1, 40))
def test_messages_become_the_rows_of_a_plain_model(frames: list[Frame], base: int, step: int) -> None:
    data = run_of(frames)
    for module in (compiled, uncompiled):
        batch, fragments = module.Columns(EVERYTHING, 1, 1), module.Fragments()
        at = 0
        while at < len(data):
            passed = batch.add_messages(data, at, len(data), base + at, fragments, step)
            assert passed > 0
            at += passed
        assert rows_of(batch.take()) == expected_messages(frames, base)


@settings(max_examples=60, deadline=None)
@given(frames=frame_lists, wanted=st.integers(0, EVERYTHING))
def test_each_selection_of_columns_has_the_same_values(frames: list[Frame], wanted: int) -> None:
    wanted &= EVERYTHING
    data = run_of(frames)
    for module in (compiled, uncompiled):
        names = {n for i, n in enumerate(module.NAMES[:10]) if wanted >> i & 1}
        names |= {"payload"} if wanted & layout.COLUMN_PAYLOAD else set()
        batch, fragments = module.Columns(wanted), module.Fragments()
        batch.add_messages(data, 0, len(data), 0, fragments)
        rows = [{n: row[n] for n in names} for row in expected_messages(frames, 0)]
        assert rows_of(batch.take()) == (rows if names else [])


def test_a_message_is_joined_across_calls_and_memories(columns: Any) -> None:
    first = run_of([Frame(b"a" * 40, flags=0x80, reserved=9)])
    second = run_of([Frame(b"b" * 8, flags=0x00)])
    third = run_of([Frame(b"c" * 3, flags=0x60)])
    batch, fragments = columns.Columns(), columns.Fragments()
    position = 4096
    for part in (first, second, third):
        position += batch.add_messages(part, 0, len(part), position, fragments)
    (row,) = rows_of(batch.take())
    assert (row["payload"], row["flags"], row["position"]) == (b"a" * 40 + b"b" * 8 + b"ccc", 0xE0, position)
    assert (row["reserved_value"], row["length"]) == (9, 51)


def test_a_fragment_after_a_gap_is_not_joined(columns: Any) -> None:
    head, tail = run_of([Frame(b"head", flags=0x80)]), run_of([Frame(b"tail", flags=0x40)])
    batch, fragments = columns.Columns(), columns.Fragments()
    batch.add_messages(head, 0, len(head), 0, fragments)
    batch.add_messages(tail, 0, len(tail), len(head) + 32, fragments)
    assert batch.rows == 0
    assert fragments.dropped == 1


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"", layout.WALK_AT_LIMIT),
        (bytes(64), layout.WALK_AT_END),
        (struct.pack("<i", -96) + bytes(60), layout.WALK_AT_END),
        (struct.pack("<i", 16) + bytes(60), layout.WALK_CORRUPT),
        (struct.pack("<iHH", 4096, 0xC0, 1) + bytes(56), layout.WALK_TORN),
        (bytes(8), layout.WALK_TORN),
    ],
)
def test_a_run_ends_where_a_frame_is_not_whole(columns: Any, tail: bytes, reason: int) -> None:
    good = run_of([Frame(b"x" * 10)] * 3)
    data = good + tail
    batch = columns.Columns()
    assert batch.add_frames(data, 0, len(data), 0) == len(good)
    assert (batch.rows, batch.stopped) == (3, reason)
    walk = columns.FrameWalk()
    assert walk.run(data, 0, len(data)) == reason
    assert (walk.offset, walk.boundary, walk.frames, walk.messages) == (len(good), len(good), 3, 3)


def test_a_walk_finds_the_end_of_the_last_whole_message(columns: Any) -> None:
    data = run_of([Frame(b"a"), Frame(b"", kind=0), Frame(b"b", flags=0x80), Frame(b"c", flags=0)])
    walk = columns.FrameWalk()
    walk.run(data, 0, len(data))
    assert (walk.offset, walk.boundary, walk.messages, walk.frames) == (len(data), 96, 1, 3)


def test_a_walk_stops_after_max_messages(columns: Any) -> None:
    data = run_of([Frame(b"a", flags=0x80), Frame(b"b", flags=0x40)] * 10)
    walk = columns.FrameWalk()
    assert walk.run(data, 0, len(data), 4) == layout.WALK_FULL
    assert (walk.offset, walk.messages) == (4 * 128, 4)


def test_a_copy_has_the_frames_that_were_walked_up_to_the_first_padding(columns: Any) -> None:
    data = run_of([Frame(b"a" * 40), Frame(b"b", flags=0x80), Frame(b"z" * 200, kind=0), Frame(b"c")])
    walk, target = columns.FrameWalk(), bytearray(b"\xff" * 1024)
    assert walk.copy(data, 0, len(data), target) == layout.WALK_FULL
    padding = 96 + 64
    assert (walk.offset, walk.last, walk.frames, walk.messages, walk.others) == (padding + 256, padding, 2, 1, 1)
    assert target[: padding + 32] == data[: padding + 32]
    assert set(target[padding + 32 :]) == {0xFF}
    assert walk.copy(data, walk.offset, len(data), target) == layout.WALK_AT_LIMIT
    assert (target[:64], walk.others) == (data[-64:], 0)


@pytest.mark.parametrize("room", range(0, 260, 32))
def test_a_copy_stops_before_a_frame_without_room(columns: Any, room: int) -> None:
    data = run_of([Frame(b"a" * 40), Frame(b"b" * 40)]) + bytes(64)
    walk, target = columns.FrameWalk(), bytearray(room)
    reason = walk.copy(data, 0, len(data), target)
    assert walk.offset == min(room // 96, 2) * 96
    assert reason == (layout.WALK_FULL if room < 192 else layout.WALK_AT_END)
    assert target[: walk.offset] == data[: walk.offset]


def test_an_empty_region_may_lie_at_any_address(columns: Any) -> None:
    memory = memoryview(bytearray(8))
    for address in range(4):
        walk = columns.FrameWalk()
        assert walk.run(memory[address:address], 0, 0) == layout.WALK_AT_LIMIT
        assert walk.offset == 0


def test_offsets_point_at_payloads_without_a_copy(columns: Any) -> None:
    frames = [Frame(bytes([i]) * i) for i in range(20)]
    memory = bytearray(run_of(frames))
    data = AtomicBuffer(memory) if columns is compiled else memory
    batch = columns.Columns(layout.COLUMN_OFFSET | layout.COLUMN_LENGTH)
    batch.add_frames(data, 0, len(memory), 0)
    rows = rows_of(batch.take())
    assert [bytes(memory[r["offset"] : r["offset"] + r["length"]]) for r in rows] == [f.payload for f in frames]


def test_taken_rows_are_not_changed_by_the_next_batch(columns: Any) -> None:
    batch = columns.Columns()
    one, two = run_of([Frame(b"one")]), run_of([Frame(b"two")])
    batch.add_frames(one, 0, len(one), 0)
    taken = batch.take()
    batch.add_frames(two, 0, len(two), 0)
    assert [r["payload"] for r in rows_of(taken)] == [b"one"]
    assert [r["payload"] for r in rows_of(batch.take())] == [b"two"]
    assert rows_of(batch.take()) == []


def test_ranges_outside_the_memory_are_refused(columns: Any) -> None:
    data = run_of([Frame(b"x")])
    for offset, limit in ((-32, 64), (0, 96), (64, 32)):
        with pytest.raises(IndexError):
            columns.Columns().add_frames(data, offset, limit, 0)
        with pytest.raises(IndexError):
            columns.FrameWalk().run(data, offset, limit)
    with pytest.raises(ValueError, match="OFFSET"):
        columns.Columns(layout.COLUMN_OFFSET).add_messages(data, 0, 64, 0, columns.Fragments())
    with pytest.raises(ValueError, match="not a column"):
        columns.Columns(1 << 11)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=400).map(lambda b: b[: len(b) & ~3]))
def test_random_memory_never_reads_outside_and_always_ends(data: bytes) -> None:
    results = []
    for module in (compiled, uncompiled):
        batch, fragments, walk = module.Columns(), module.Fragments(), module.FrameWalk()
        passed = batch.add_messages(data, 0, len(data), 0, fragments)
        walk.run(data, 0, len(data))
        copied, target = module.FrameWalk(), bytearray(192)
        copied.copy(data, 0, len(data), target)
        results.append((passed, batch.stopped, walk.offset, walk.boundary, batch.take(), copied.offset, bytes(target)))
        assert copied.offset <= walk.offset
    assert results[0] == results[1]


def test_batches_do_not_leak() -> None:
    data = run_of([Frame(b"x" * 100, flags=0x80), Frame(b"y" * 100, flags=0x40)] * 50)
    batch, fragments = compiled.Columns(), compiled.Fragments()

    def rounds(n: int) -> None:
        for _ in range(n):
            batch.add_messages(data, 0, len(data), 0, fragments)
            batch.take()

    rounds(5)
    tracemalloc.start()
    try:
        rounds(5)
        before = tracemalloc.get_traced_memory()[0]
        rounds(200)
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()
