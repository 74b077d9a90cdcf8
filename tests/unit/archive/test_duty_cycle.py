"""A failing step of a duty cycle does not keep the others from running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.archive.server.duty_cycle import SLICE_NS, DutyCycle, step_each
from mainstem.sim.clock import ManualClock

if TYPE_CHECKING:
    import pytest


def test_steps_after_one_that_fails_run_and_the_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> int:
        raise OSError("no space")

    assert DutyCycle(ManualClock()).run([lambda: 2, fails, lambda: None, lambda: 3]) == 6
    assert "no space" in caplog.text


def test_a_failure_of_what_reports_failures_does_not_stop_the_steps() -> None:
    done = []

    def step(item: int) -> int:
        if item == 1:
            raise ValueError(item)
        done.append(item)
        return 1

    def fail(item: int, text: str) -> None:
        raise OSError(f"{item}: {text}")

    assert step_each([1, 2], step, fail) == 2
    assert done == [2]


def test_the_slice_is_over_after_its_time_until_the_next_cycle_begins() -> None:
    clock = ManualClock()
    cycle = DutyCycle(clock)
    cycle.begin(clock.monotonic_ns())
    assert not cycle.is_over
    clock.advance_ns(SLICE_NS)
    assert cycle.is_over
    cycle.begin(clock.monotonic_ns())
    assert (cycle.is_over, cycle.now_ns) == (False, clock.monotonic_ns())
