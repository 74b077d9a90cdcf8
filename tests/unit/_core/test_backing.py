"""How far ahead of its producers a sparse log has its blocks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tests.unit._core import uncompiled

if TYPE_CHECKING:
    import pytest

KIB, MIB = 1024, 1024 * 1024
TERM_LENGTH, STEP = 16 * MIB, 256 * KIB
LOG_LENGTH = 3 * TERM_LENGTH


def test_a_publication_gets_blocks_when_half_of_what_was_ahead_is_used_up_and_then_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = uncompiled.load("driver.backing")
    monkeypatch.setattr(module, "back_pages", lambda *_: 0)
    log = uncompiled.load("memory.buffer").AtomicBuffer(bytearray(LOG_LENGTH))
    backing = module.Backing(log, TERM_LENGTH, 0, 0)

    def steps(produced: int) -> int:
        """How many steps are taken: one a call, and then none."""
        before = [backing.position]
        for _ in range(200):
            backing.limit(LOG_LENGTH, produced, 0)
            before.append(backing.position)
        taken = [after - at for at, after in pairwise(before)]
        count = sum(step > 0 for step in taken)
        assert all(0 < step <= STEP for step in taken[:count])
        return count

    def ahead(produced: int) -> int:
        return int(backing.position - backing.margin - produced)

    assert steps(0) == 1
    assert ahead(0) == 128 * KIB
    assert steps(64 * KIB) == 0, "half is left"
    assert steps(2 * MIB) == 16
    assert ahead(2 * MIB) == 2 * MIB
    assert steps(2 * MIB + 512 * KIB) == 0
    assert steps(3 * MIB) == 8
    assert ahead(3 * MIB) == 3 * MIB
    assert steps(TERM_LENGTH) == 104
    assert ahead(TERM_LENGTH) == 16 * MIB
    assert not backing.is_complete
    for _ in range(200):
        backing.limit(LOG_LENGTH, 2 * TERM_LENGTH, 0)
    assert backing.is_complete


def test_a_refill_that_a_full_file_system_ends_goes_on_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    module = uncompiled.load("driver.backing")
    results = [0, 0, 28]
    monkeypatch.setattr(module, "back_pages", lambda *_: results.pop(0) if results else 0)
    backing = module.Backing(uncompiled.load("memory.buffer").AtomicBuffer(bytearray(LOG_LENGTH)), TERM_LENGTH, 0, 0)
    for _ in range(4):
        backing.limit(LOG_LENGTH, 2 * MIB, 0)
    assert backing.is_held
    position = backing.position
    backing.limit(LOG_LENGTH, 256 * KIB, 1)
    assert (backing.is_held, backing.position) == (True, position), "it is not asked again at once"
    backing.limit(LOG_LENGTH, 256 * KIB, 20_000_000)
    assert not backing.is_held
    assert backing.position > position, "it goes on, with more than half left"
