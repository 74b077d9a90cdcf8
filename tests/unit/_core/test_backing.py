"""How far ahead of its producers a sparse log has its blocks."""

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


def new_backing(monkeypatch: pytest.MonkeyPatch, results: list[int], *, margin: int = 0, ahead: int = AHEAD) -> Any:
    """One whose steps end as ``results`` says, and well after those."""
    module = uncompiled.load("driver.backing")
    monkeypatch.setattr(module, "back_pages", lambda *_: results.pop(0) if results else 0)
    log = uncompiled.load("memory.buffer").AtomicBuffer(bytearray(LOG_LENGTH))
    return module.Backing(log, TERM_LENGTH, 0, margin, ahead)


def steps(backing: Any, produced: int, goal: int = LOG_LENGTH) -> int:
    """How many steps are taken: one a call, and then none."""
    before = [backing.position]
    for _ in range(200):
        backing.limit(goal, produced, 0)
        before.append(backing.position)
    taken = [after - at for at, after in pairwise(before)]
    count = sum(step > 0 for step in taken)
    assert all(0 < step <= STEP for step in taken[:count])
    return count


def test_a_publication_is_open_when_it_has_the_blocks_of_its_first_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    backing = new_backing(monkeypatch, [], margin=2 * MIB)
    assert backing.missing == 10 * MIB + 4 * KIB
    limits = []
    while not backing.is_open:
        limits.append(backing.limit(AHEAD, 0, 0))
    assert limits[-1] == AHEAD
    assert backing.missing == 0


def test_a_publication_gets_more_blocks_when_an_eighth_of_what_was_ahead_is_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backing = new_backing(monkeypatch, [])

    def ahead(produced: int) -> int:
        return int(backing.position - backing.margin - produced)

    assert steps(backing, 0) == 33
    assert ahead(0) == AHEAD
    assert steps(backing, 1 * MIB) == 0, "seven eighths are left"
    assert steps(backing, 1 * MIB + 4 * KIB) == 5
    assert ahead(1 * MIB + 4 * KIB) == AHEAD
    steps(backing, TERM_LENGTH)
    assert ahead(TERM_LENGTH) == 16 * MIB
    assert not backing.is_complete
    for _ in range(200):
        backing.limit(LOG_LENGTH, 2 * TERM_LENGTH, 0)
    assert backing.is_complete


def test_a_publication_is_open_as_soon_as_its_limit_is_where_it_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for goal in (STEP, 4 * KIB, AHEAD, LOG_LENGTH):
        backing = new_backing(monkeypatch, [], ahead=goal)
        while backing.limit(goal, 0, 0) < goal:
            assert not backing.is_open
        assert backing.is_open, goal


def test_a_publication_without_any_space_is_open_and_held(monkeypatch: pytest.MonkeyPatch) -> None:
    backing = new_backing(monkeypatch, [28])
    assert backing.limit(AHEAD, 0, 0) < 0
    assert (backing.is_open, backing.is_held) == (True, True)


def test_a_refill_that_a_full_file_system_ends_goes_on_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    backing = new_backing(monkeypatch, [0, 0, 28], ahead=128 * KIB)
    for _ in range(4):
        backing.limit(LOG_LENGTH, 2 * MIB, 0)
    assert backing.is_held
    position = backing.position
    backing.limit(LOG_LENGTH, 2 * MIB, 1)
    assert (backing.is_held, backing.position) == (True, position), "it is not asked again at once"
    backing.limit(LOG_LENGTH, 2 * MIB, 20_000_000)
    assert not backing.is_held
    assert backing.position > position
