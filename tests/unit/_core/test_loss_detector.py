"""Which gaps are reported when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit._core.network import Modules, modules

from mainstem._core.layout import NEVER_NS

MAX_GAPS = 64


@pytest.fixture(params=[True, False], ids=["compiled", "uncompiled"])
def core(request: pytest.FixtureRequest) -> Modules:
    return modules(compiled=request.param)


def detector(core: Modules, first_ns: int = 1_000, retry_ns: int = 100_000) -> Any:
    return core.loss_detector.LossDetector(core.delay.StaticDelay(first_ns, retry_ns))


def test_reports_a_gap_once_its_delay_has_passed_and_again_after_each_retry_delay(core: Modules) -> None:
    losses = detector(core)
    assert losses.deadline_ns == NEVER_NS
    losses.on_scan([(64, 128)], 0)
    assert losses.due(999) == []
    assert losses.due(1_000) == [(64, 128)]
    assert losses.deadline_ns == 101_000
    assert losses.due(100_999) == []
    assert losses.due(101_000) == [(64, 128)]


def test_several_gaps_are_reported_together(core: Modules) -> None:
    losses = detector(core)
    gaps = [(0, 64), (128, 64), (256, 1024)]
    losses.on_scan(gaps, 0)
    assert losses.due(1_000) == gaps


def test_a_gap_that_is_found_again_keeps_its_timer_and_one_that_grew_starts_anew(core: Modules) -> None:
    losses = detector(core)
    losses.on_scan([(0, 64), (128, 64)], 0)
    losses.on_scan([(0, 64), (128, 96)], 900)
    assert losses.due(1_000) == [(0, 64)]
    assert losses.due(1_900) == [(128, 96)]


def test_a_gap_that_was_closed_is_forgotten(core: Modules) -> None:
    losses = detector(core)
    losses.on_scan([(0, 64)], 0)
    losses.on_scan([], 10)
    assert losses.due(1 << 40) == []
    assert losses.deadline_ns == NEVER_NS


def test_bytes_are_counted_once_however_a_gap_grows_or_breaks_up(core: Modules) -> None:
    losses = detector(core)
    assert losses.on_scan([(0, 64)], 0) == 64
    assert losses.on_scan([(0, 96)], 1) == 32
    assert losses.on_scan([(0, 32), (64, 32)], 2) == 0
    assert losses.on_scan([(64, 32), (128, 64)], 3) == 64


def test_no_more_gaps_are_tracked_than_are_repaired_at_once(core: Modules) -> None:
    losses = detector(core)
    losses.on_scan([(128 * i, 64) for i in range(2 * MAX_GAPS)], 0)
    assert len(losses.gaps) == MAX_GAPS


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 4)), max_size=8, unique_by=lambda gap: gap[0]),
        max_size=20,
    )
)
def test_every_gap_that_stays_is_reported_within_its_delay(scans: list[list[tuple[int, int]]]) -> None:
    losses = detector(modules(compiled=True), 10, 50)
    now_ns = 0
    for found in scans:
        gaps = sorted((position * 160, length * 32) for position, length in found)
        losses.on_scan(gaps, now_ns)
        assert losses.gaps == gaps
        assert losses.deadline_ns == NEVER_NS if not gaps else losses.deadline_ns <= now_ns + 50
        now_ns += 7
        assert set(losses.due(now_ns)) <= set(gaps)
        if gaps:
            assert losses.deadline_ns > now_ns
