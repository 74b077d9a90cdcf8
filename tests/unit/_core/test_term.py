"""Operations on a term: scanning for datagrams and gaps, inserting, cleaning, unblocking."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit._core.network import INITIAL_TERM_ID, TERM_LENGTH, Modules, Writer, frame, modules, new_log

from mainstem._core import layout


@pytest.fixture(params=[True, False], ids=["compiled", "uncompiled"])
def core(request: pytest.FixtureRequest) -> Modules:
    return modules(compiled=request.param)


def scan(core: Modules, log: Any, offset: int = 0, *, window: int = 1 << 20, mtu: int = 1408, **limits: int) -> Any:
    return core.term.RunBatch().scan(log, 0, offset, TERM_LENGTH, window, mtu, **limits)


def filled(core: Modules, *lengths: int) -> Any:
    log = new_log(core)
    writer = Writer(log)
    for length in lengths:
        writer.append(bytes(length))
    return log


def test_a_datagram_holds_as_many_whole_frames_as_fit(core: Modules) -> None:
    assert scan(core, filled(core, 600, 600, 600), max_segments=1) == [(0, 1280, 1280, 1280), (1280, 640, 640, 1920)]


def test_equal_datagrams_and_a_shorter_one_behind_them_are_one_run(core: Modules) -> None:
    assert scan(core, filled(core, *[1000] * 3, 1100, 1000)) == [
        (0, 3168, 1056, 3168),
        (3168, 1152 + 1056, 1152, 5376),
    ]
    assert scan(core, filled(core, *[1200] * 3, 100, 1300)) == [
        (0, 2 * 1248, 1248, 2496),
        (2496, 1408 + 1344, 1408, 5248),
    ]


def test_without_segmentation_each_datagram_is_a_run(core: Modules) -> None:
    assert scan(core, filled(core, 1000, 1000), max_segments=1) == [(0, 1056, 1056, 1056), (1056, 1056, 1056, 2112)]


def test_padding_sends_its_header_alone_as_the_last_of_its_datagram(core: Modules) -> None:
    log = new_log(core)
    writer = Writer(log, position=TERM_LENGTH - 256)
    writer.append(bytes(32))
    writer.append(bytes(300))
    assert scan(core, log, TERM_LENGTH - 256) == [(TERM_LENGTH - 256, 96, 96, 256)]


def test_a_frame_longer_than_the_window_left_blocks(core: Modules) -> None:
    batch = core.term.RunBatch()
    log = filled(core, 1000)
    assert batch.scan(log, 0, 0, TERM_LENGTH, 1024, 1408) == []
    assert batch.is_blocked
    assert batch.scan(log, 0, 1056, TERM_LENGTH, 1024, 1408) == []
    assert not batch.is_blocked


@given(
    lengths=st.lists(st.integers(0, 1376), max_size=60),
    window=st.integers(0, TERM_LENGTH),
    max_segments=st.integers(1, 64),
    max_runs=st.integers(1, 16),
)
def test_runs_cover_the_frames_from_the_start_without_holes(
    lengths: list[int], window: int, max_segments: int, max_runs: int
) -> None:
    core = modules(compiled=True)
    log = filled(core, *lengths)
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + ((length + 63) & ~31))
    position = 0
    for offset, length, segment, advance in scan(
        core, log, window=window, max_segments=max_segments, max_runs=max_runs
    ):
        assert offset == position
        assert segment <= 1408
        assert -(-length // segment) <= max_segments
        for end in range(offset + segment, offset + length, segment):
            assert end in ends
        position += length
        assert advance == position
    assert position in ends
    assert position <= window


def test_exactly_the_gaps_are_found(core: Modules) -> None:
    log = new_log(core)
    for offset in (64, 192, 512):
        log.put_bytes(offset, frame(bytes(32), term_offset=offset))
    assert core.term.gaps(log, 0, 0, 576) == [(0, 64), (128, 64), (256, 256)]
    assert core.term.gaps(log, 0, 0, 576, 1) == [(0, 64)]
    assert core.term.gaps(log, 0, 64, 128) == []


def test_inserts_only_into_zeroed_space(core: Modules) -> None:
    log = new_log(core)
    datagram = core.AtomicBuffer(bytearray(frame(b"x" * 40, term_offset=64)))
    assert core.term.insert(log, 64, datagram)
    assert log.get_bytes(64, len(datagram)) == datagram.get_bytes(0, len(datagram))
    assert not core.term.insert(log, 64, core.AtomicBuffer(bytearray(frame(b"y" * 40, term_offset=64))))
    assert log.get_bytes(96, 40) == b"x" * 40


def test_a_gap_is_filled_only_while_it_is_all_zero(core: Modules) -> None:
    log = new_log(core)
    log.put_u8(127, 1)
    assert not core.term.fill_gap(log, 0, 0, 128, INITIAL_TERM_ID)
    log.put_u8(127, 0)
    assert core.term.fill_gap(log, 0, 0, 128, INITIAL_TERM_ID)
    assert log.get_bytes(0, 32) == frame(b"", term_offset=0, kind=layout.TYPE_PAD, length=128)


def test_cleans_to_the_end_of_a_term_at_most(core: Modules) -> None:
    log = new_log(core)
    log.put_bytes(0, b"\xff" * 2 * TERM_LENGTH)
    assert core.term.clean(log, TERM_LENGTH, TERM_LENGTH - 64, TERM_LENGTH + 64) == TERM_LENGTH
    assert log.get_bytes(TERM_LENGTH - 96, 32) == b"\xff" * 32
    assert not any(log.get_bytes(TERM_LENGTH - 64, 64))
    assert log.get_u8(TERM_LENGTH) == 0xFF
    assert core.term.clean(log, TERM_LENGTH, TERM_LENGTH, TERM_LENGTH) == TERM_LENGTH


@pytest.mark.parametrize("term_length", [TERM_LENGTH, 16 * 1024 * 1024], ids=["near", "past the caches"])
@pytest.mark.parametrize(("first", "end"), [(0, 32), (32, 96), (96, 320), (32, 4096), (64, 4160), (0, 65_536)])
def test_cleans_exactly_the_requested_range(core: Modules, term_length: int, first: int, end: int) -> None:
    log = new_log(core, term_length=term_length)
    log.put_bytes(term_length - 64, b"\xff" * (64 + end + 64))
    assert core.term.clean(log, term_length, term_length + first, term_length + end) == term_length + end
    before, cleaned, after = (
        log.get_bytes(term_length + at, n) for at, n in ((-64, first + 64), (first, end - first), (end, 64))
    )
    assert set(before) == set(after) == {0xFF}
    assert not any(cleaned)


def claim(log: Any, offset: int, length: int) -> None:
    """Leave the state of a dead producer: a moved tail and, if ``length`` is not 0, a negative frame length."""
    log.put_i64(3 * TERM_LENGTH, (INITIAL_TERM_ID << 32) | (offset + 128))
    log.put_i32(offset, -length)


def test_a_claimed_frame_becomes_padding(core: Modules) -> None:
    log = filled(core, 32)
    claim(log, 64, 128)
    assert core.term.unblock(log, TERM_LENGTH, INITIAL_TERM_ID, 64)
    assert log.get_bytes(64, 32) == frame(b"", term_offset=64, kind=layout.TYPE_PAD, length=128)
    assert not core.term.unblock(log, TERM_LENGTH, INITIAL_TERM_ID, 64)


def test_a_claim_without_a_length_is_padded_up_to_the_next_frame(core: Modules) -> None:
    log = filled(core, 32)
    claim(log, 64, 0)
    log.put_bytes(160, frame(bytes(0), term_offset=160))
    assert core.term.unblock(log, TERM_LENGTH, INITIAL_TERM_ID, 64)
    assert log.get_i32(64) == 96


def test_an_unfinished_end_of_a_term_is_padded_and_the_log_rotated(core: Modules) -> None:
    log = new_log(core)
    log.put_i64(3 * TERM_LENGTH, (INITIAL_TERM_ID << 32) | (TERM_LENGTH + 64))
    assert core.term.unblock(log, TERM_LENGTH, INITIAL_TERM_ID, TERM_LENGTH - 64)
    assert log.get_i32(TERM_LENGTH - 64) == 64
    meta = 3 * TERM_LENGTH
    assert log.get_i32(meta + layout.LOG_ACTIVE_TERM_COUNT_OFFSET) == 1
    assert log.get_i64(meta + 8) == (INITIAL_TERM_ID + 1) << 32
    assert core.term.producer_position(log, TERM_LENGTH, INITIAL_TERM_ID) == TERM_LENGTH


def test_a_producer_that_died_before_rotating_is_helped(core: Modules) -> None:
    log = new_log(core)
    log.put_i64(3 * TERM_LENGTH, (INITIAL_TERM_ID << 32) | TERM_LENGTH)
    assert core.term.unblock(log, TERM_LENGTH, INITIAL_TERM_ID, TERM_LENGTH)
    assert log.get_i32(3 * TERM_LENGTH + layout.LOG_ACTIVE_TERM_COUNT_OFFSET) == 1


def test_nothing_is_unblocked_without_a_claim(core: Modules) -> None:
    log = filled(core, 32)
    assert not core.term.unblock(log, TERM_LENGTH, INITIAL_TERM_ID, 64)


def test_the_producers_position_does_not_pass_the_end_of_the_term(core: Modules) -> None:
    log = new_log(core)
    log.put_i64(3 * TERM_LENGTH, (INITIAL_TERM_ID << 32) | (TERM_LENGTH + 4096))
    assert core.term.producer_position(log, TERM_LENGTH, INITIAL_TERM_ID) == TERM_LENGTH
