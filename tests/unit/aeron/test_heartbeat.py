"""A heartbeat that stopped is noticed in time, and one that goes on never counts as stopped, whichever way the clock is set."""

from __future__ import annotations

import pytest

from mainstem.aeron.heartbeat import HeartbeatWatch

S_NS = 1_000_000_000
TIMEOUT_NS = 10 * S_NS


def ages(jump_ms: int, jump_at: int, stopped_at: int, offset_ms: int = 600) -> list[int]:
    """Return the seconds at which a watch that looks once a second says that a heartbeat is old. The clock jumps, then it stops."""
    beat_ms = 1_700_000_000_000
    watch = HeartbeatWatch(beat_ms, beat_ms, 0)
    old = []
    for second in range(1, 60):
        epoch_ms = 1_700_000_000_000 + 1000 * second + (jump_ms if second >= jump_at else 0)
        if watch.is_older(TIMEOUT_NS, beat_ms, epoch_ms, second * S_NS):
            old.append(second)
        if second < stopped_at:
            beat_ms = epoch_ms + offset_ms  # after this look, before the next one
    return old


@pytest.mark.parametrize("jump_ms", [-3_600_000, -20_000, 20_000, 3_600_000])
def test_a_living_process_stays_alive(jump_ms: int) -> None:
    assert ages(jump_ms, jump_at=20, stopped_at=100) == []


@pytest.mark.parametrize("jump_at", [100, 22, 25, 35])
@pytest.mark.parametrize("jump_ms", [-3_600_000, -20_000, 20_000, 3_600_000])
def test_a_dead_process_is_noticed(jump_ms: int, jump_at: int) -> None:
    # The last heartbeat is at 19.6 s: it is 10 s old at the look at 30 s, and the watch knows by 31 s.
    first, *_ = found = ages(jump_ms, jump_at, stopped_at=20)
    assert first in (30, 31)
    assert found == list(range(first, 60))


def test_without_a_jump_the_wall_clock_decides() -> None:
    assert ages(0, jump_at=100, stopped_at=20)[0] == 30


def test_the_first_age_is_that_of_the_wall_clock() -> None:
    watch = HeartbeatWatch(1_000, 8_000, 0)
    assert not watch.is_older(TIMEOUT_NS, 1_000, 11_000, 3 * S_NS)
    assert watch.is_older(TIMEOUT_NS, 1_000, 11_001, 3 * S_NS + 1_000_000)
