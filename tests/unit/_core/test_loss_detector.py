"""Which gaps the loss detector reports, and when."""

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


MS = 1_000_000
LINGER_MS = 10
COPY_MS = 11
MOST_COPIES = 3  # per request


def detector(core: Modules, first_ns: int = 1_000, retry_ns: int = 100_000, *, group: bool = False) -> Any:
    return core.loss_detector.LossDetector(core.delay.StaticDelay(first_ns, retry_ns), group)


def respond(losses: Any, gap: tuple[int, int], at_ns: int, took_ns: int) -> None:
    """Request a gap at ``at_ns`` and fill it ``took_ns`` later."""
    losses.on_scan([gap], at_ns - 1_000)
    assert losses.due(at_ns) == [gap]
    losses.on_scan([], at_ns + took_ns)


def test_reports_a_gap_once_its_delay_has_passed_and_again_once_senders_forgot_it(core: Modules) -> None:
    losses = detector(core)
    assert losses.deadline_ns == NEVER_NS
    losses.on_scan([(64, 128)], 0)
    assert losses.due(999) == []
    assert losses.due(1_000) == [(64, 128)]
    again = 1_000 + LINGER_MS * MS
    assert losses.deadline_ns == again
    assert losses.due(again - 1) == []
    assert losses.due(again) == [(64, 128)]


def test_a_longer_retry_delay_is_kept(core: Modules) -> None:
    losses = detector(core, retry_ns=50 * MS)
    losses.on_scan([(64, 128)], 0)
    assert losses.due(1_000) == [(64, 128)]
    assert losses.deadline_ns == 1_000 + 50 * MS


def test_a_missing_part_before_an_arrived_one_is_lost_and_the_rest_is_awaited(core: Modules) -> None:
    losses = detector(core)
    losses.on_scan([(0, 640)], 0)
    assert losses.due(1_000) == [(0, 640)]
    losses.on_scan([(0, 64), (192, 448)], 2_000)
    assert losses.due(2_000) == [(0, 64)]
    assert losses.deadline_ns >= 1_000 + LINGER_MS * MS


def test_a_retransmission_arriving_in_order_is_not_requested_again(core: Modules) -> None:
    losses = detector(core)
    losses.on_scan([(0, 640)], 0)
    assert losses.due(1_000) == [(0, 640)]
    for start in range(64, 640, 64):
        losses.on_scan([(start, 640 - start)], 1_000 + 100 * start)
        assert losses.due(1_000 + 100 * start) == []


def test_the_measured_response_time_sets_the_retry_delay(core: Modules) -> None:
    losses = detector(core)
    now_ns = MS
    for number in range(20):
        respond(losses, (64 * number, 64), now_ns, 100 * MS)
        now_ns += 200 * MS
    assert losses.response_ns == pytest.approx(100 * MS, rel=0.01)
    losses.on_scan([(6_400, 64)], now_ns - 1_000)
    assert losses.due(now_ns) == [(6_400, 64)]
    # Two copies, because a lost request costs that much time. Then the detector waits for the response to the last one.
    for _ in range(2):
        assert losses.deadline_ns == now_ns + COPY_MS * MS
        now_ns = losses.deadline_ns
        assert losses.due(now_ns) == [(6_400, 64)]
    assert now_ns + 100 * MS < losses.deadline_ns < now_ns + 120 * MS


def test_a_copy_is_not_sent_once_the_gap_is_closed(core: Modules) -> None:
    losses = detector(core)
    respond(losses, (0, 64), MS, 30 * MS)
    losses.on_scan([(128, 64)], 100 * MS - 1_000)
    assert losses.due(100 * MS) == [(128, 64)]
    assert losses.deadline_ns == (100 + COPY_MS) * MS
    losses.on_scan([], 105 * MS)
    assert losses.deadline_ns == NEVER_NS


def test_each_wait_doubles_while_no_response_was_measured(core: Modules) -> None:
    losses = detector(core)
    losses.on_scan([(0, 64)], 0)
    requested = []
    while losses.deadline_ns < 1_000 * MS:
        now_ns = losses.deadline_ns
        assert losses.due(now_ns) == [(0, 64)]
        requested.append(now_ns // MS)
    assert requested == [0, 10, 30, 70, 150, 310, 630]


def test_a_response_to_a_later_request_shows_that_an_earlier_one_was_lost(core: Modules) -> None:
    losses = detector(core)
    respond(losses, (0, 64), MS, MS)
    losses.on_scan([(128, 64), (256, 64), (512, 64)], 9 * MS)
    assert losses.due(10 * MS) == [(128, 64), (256, 64), (512, 64)]
    losses.on_scan([(128, 64), (512, 64)], 11 * MS)
    # Not the gap at 512: its turn comes after the one that was filled.
    assert losses.due(11 * MS) == [(128, 64)]
    losses.on_scan([(128, 64), (512, 64)], 11 * MS + 1)
    assert losses.due(11 * MS + 1) == []


def test_in_a_group_the_requests_of_others_can_fill_a_gap(core: Modules) -> None:
    losses = detector(core, group=True)
    respond(losses, (0, 64), MS, MS)
    losses.on_scan([(128, 64), (256, 64)], 9 * MS)
    assert len(losses.due(10 * MS)) == 2
    losses.on_scan([(128, 64)], 11 * MS)
    assert losses.due(11 * MS) == []


def test_a_late_datagram_does_not_count_as_a_retransmission(core: Modules) -> None:
    losses = detector(core)
    for number in range(20):
        respond(losses, (64 * number, 64), MS + 200 * number * MS, 100 * MS)
    now_ns = 5_000 * MS
    losses.on_scan([(6_400, 64), (12_800, 64)], now_ns - 1_000)
    assert len(losses.due(now_ns)) == 2
    losses.on_scan([(6_400, 64)], now_ns + 2 * MS)
    assert losses.due(now_ns + 2 * MS) == []


def test_an_increased_round_trip_is_noticed(core: Modules) -> None:
    losses = detector(core)
    for number in range(20):
        respond(losses, (64 * number, 64), MS + 20 * number * MS, MS)
    copies = []
    for number in range(20):
        begin_ns = (1 + number) * 1_000 * MS
        gap = (6_400 + 64 * number, 64)
        losses.on_scan([gap], begin_ns)
        copies.append(0)
        while losses.deadline_ns < begin_ns + 100 * MS:
            copies[-1] += len(losses.due(losses.deadline_ns))
        losses.on_scan([], begin_ns + 100 * MS)
    assert copies[0] > MOST_COPIES
    assert max(copies[5:]) == MOST_COPIES


def test_a_sender_that_stopped_for_long_slows_repair_down_to_a_second_at_most(core: Modules) -> None:
    losses = detector(core)
    respond(losses, (0, 64), MS, 9_000 * MS)
    now_ns = 10_000 * MS
    losses.on_scan([(64, 64)], now_ns - 1_000)
    assert losses.due(now_ns) == [(64, 64)]
    for _ in range(2):
        now_ns = losses.deadline_ns
        assert losses.due(now_ns) == [(64, 64)]
    assert losses.deadline_ns == now_ns + 1_000 * MS


def test_several_gaps_are_reported_together(core: Modules) -> None:
    losses = detector(core)
    gaps = [(0, 64), (128, 64), (256, 1024)]
    losses.on_scan(gaps, 0)
    assert losses.due(1_000) == gaps


def test_a_growing_gap_keeps_its_timer_and_its_new_part_gets_another(core: Modules) -> None:
    losses = detector(core)
    losses.on_scan([(0, 64), (128, 64)], 0)
    losses.on_scan([(0, 64), (128, 96)], 900)
    assert losses.gaps == [(0, 64), (128, 96)]
    assert losses.due(1_000) == [(0, 64), (128, 64)]
    assert losses.due(1_900) == [(192, 32)]


def test_parts_of_a_gap_that_are_due_together_are_one_request(core: Modules) -> None:
    losses = detector(core)
    losses.on_scan([(0, 64), (128, 64)], 0)
    losses.on_scan([(0, 64), (128, 96)], 900)
    assert losses.due(1_900) == [(0, 64), (128, 96)]


def test_adjacent_gaps_are_requested_separately(core: Modules) -> None:
    losses = detector(core)
    losses.on_scan([(65_472, 64), (65_536, 64)], 0)
    assert losses.due(1_000) == [(65_472, 64), (65_536, 64)]


def test_a_gap_that_was_closed_is_forgotten(core: Modules) -> None:
    losses = detector(core)
    losses.on_scan([(0, 64)], 0)
    losses.on_scan([], 10)
    assert losses.due(1 << 40) == []
    assert losses.deadline_ns == NEVER_NS


def test_each_lost_byte_is_counted_once_as_gaps_grow_and_split(core: Modules) -> None:
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
        assert losses.deadline_ns == NEVER_NS if not gaps else losses.deadline_ns <= now_ns + LINGER_MS * MS
        now_ns += 7
        asked = losses.due(now_ns)
        assert all(any(p <= q and q + m <= p + n for p, n in gaps) for q, m in asked)
        if gaps:
            assert losses.deadline_ns > now_ns
