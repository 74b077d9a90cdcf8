"""How far ahead of its producers a sparse log allocates blocks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.unit._core import uncompiled

if TYPE_CHECKING:
    import pytest

KIB, MIB = 1024, 1024 * 1024
TERM_LENGTH, STEP = 16 * MIB, 256 * KIB
LOG_LENGTH = 3 * TERM_LENGTH


AHEAD = 8 * MIB


def new_backing(
    monkeypatch: pytest.MonkeyPatch, results: list[int], *, margin: int = 0, ahead: int = AHEAD, start: int = 0
) -> Any:
    """Return an allocator whose steps have the given ``results``, and succeed after that."""
    module = uncompiled.load("driver.block_allocator")
    monkeypatch.setattr(module, "allocate_pages", lambda *_: results.pop(0) if results else 0)
    log = uncompiled.load("memory.buffer").AtomicBuffer(bytearray(LOG_LENGTH))
    return module.BlockAllocator(log, TERM_LENGTH, start, margin, ahead)


def steps(allocator: Any, produced: int, goal: int = LOG_LENGTH) -> int:
    """Return how many steps the allocator takes: one per call, then none."""
    before = [allocator.position]
    for _ in range(200):
        allocator.limit(goal, produced, 0)
        before.append(allocator.position)
    taken = [after - at for at, after in pairwise(before)]
    count = sum(step > 0 for step in taken)
    assert all(0 < step <= STEP for step in taken[:count])
    return count


def test_a_stream_begins_with_the_blocks_of_its_first_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    for start in (0, 4128, 2 * TERM_LENGTH, LOG_LENGTH + 3 * TERM_LENGTH - MIB):
        allocator = new_backing(monkeypatch, [], margin=2 * MIB, start=start)
        assert allocator.limit(LOG_LENGTH + start, start, 0) <= start, "nothing has its blocks"
        ranges = allocator.first_ranges()
        assert allocator.begin()
        assert allocator.limit(start + AHEAD, start, 0) == start + AHEAD
        assert ranges[0][0] == (start - start % 4096) % LOG_LENGTH
        assert all(offset + length <= LOG_LENGTH for offset, length in ranges)
        assert AHEAD + 2 * MIB < sum(length for _, length in ranges) <= AHEAD + 2 * MIB + 12 * KIB


def test_a_short_log_has_all_of_its_blocks_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = new_backing(monkeypatch, [], ahead=2 * LOG_LENGTH, start=4128)
    assert allocator.first_ranges() == [(4096, LOG_LENGTH - 4096), (0, 4096)]
    assert allocator.begin()
    assert allocator.is_complete


def test_a_kernel_without_preallocation_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = new_backing(monkeypatch, [22])
    assert not allocator.begin()
    assert allocator.limit(AHEAD, 0, 0) == AHEAD


def test_a_publication_gets_more_blocks_when_an_eighth_of_what_was_ahead_is_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allocator = new_backing(monkeypatch, [])

    def ahead(produced: int) -> int:
        return int(allocator.position - allocator.margin - produced)

    assert steps(allocator, 0) == 33
    assert ahead(0) == AHEAD
    assert steps(allocator, 1 * MIB) == 0, "seven eighths are left"
    assert steps(allocator, 1 * MIB + 4 * KIB) == 5
    assert ahead(1 * MIB + 4 * KIB) == AHEAD
    steps(allocator, TERM_LENGTH)
    assert ahead(TERM_LENGTH) == 16 * MIB
    assert not allocator.is_complete
    for _ in range(200):
        allocator.limit(LOG_LENGTH, 2 * TERM_LENGTH, 0)
    assert allocator.is_complete


def test_a_window_below_an_eighth_of_what_is_ahead_never_runs_dry(monkeypatch: pytest.MonkeyPatch) -> None:
    for window in (8 * KIB, 64 * KIB, MIB, TERM_LENGTH // 2):
        allocator = new_backing(monkeypatch, [], margin=2 * MIB)
        assert allocator.begin()
        produced = 0
        while produced < 2 * TERM_LENGTH:  # a publisher that fills its window, and readers that keep up
            limit = max(allocator.limit(produced + window, produced, 0) for _ in range(300))
            assert limit > produced, f"a window of {window} bytes is stuck at {produced}"
            produced = limit


def test_blocks_that_a_full_file_system_refuses_hold_a_stream_back(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = new_backing(monkeypatch, [28])
    assert allocator.limit(AHEAD, 0, 0) < 0
    assert allocator.is_waiting


def test_an_allocation_stopped_by_a_full_file_system_continues_later(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = new_backing(monkeypatch, [0, 0, 28], ahead=128 * KIB)
    for _ in range(4):
        allocator.limit(LOG_LENGTH, 2 * MIB, 0)
    assert allocator.is_waiting
    position = allocator.position
    allocator.limit(LOG_LENGTH, 2 * MIB, 1)
    assert (allocator.is_waiting, allocator.position) == (True, position), "it is not asked again at once"
    allocator.limit(LOG_LENGTH, 2 * MIB, 20_000_000)
    assert not allocator.is_waiting
    assert allocator.position > position
