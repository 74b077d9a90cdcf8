from __future__ import annotations

import math

import pytest

from mainstem._internal.clock import Deadline
from mainstem.errors import Timeout
from mainstem.sim.clock import ManualClock


def test_a_deadline_expires_when_its_time_has_passed():
    clock = ManualClock()
    deadline = Deadline(clock, 1.5)
    assert (deadline.expired, deadline.left) == (False, 1.5)
    clock.advance_ns(1_000_000_000)
    assert (deadline.expired, deadline.left) == (False, 0.5)
    clock.advance_ns(500_000_001)
    assert (deadline.expired, deadline.left) == (True, 0)


def test_a_deadline_that_has_passed_says_what_took_so_long():
    clock = ManualClock()
    deadline = Deadline(clock, 1.5)
    assert deadline.check("wait for the tide") == 1.5
    clock.advance_ns(1_500_000_001)
    with pytest.raises(Timeout, match=r"wait for the tide: timed out after 1\.5 s") as timeout:
        deadline.check("wait for the tide")
    assert timeout.value.timeout == 1.5


@pytest.mark.parametrize("timeout", [None, math.inf])
def test_a_deadline_without_a_limit_never_expires(timeout):
    clock = ManualClock()
    deadline = Deadline(clock, timeout)
    clock.advance_ns(1 << 60)
    assert (deadline.expired, deadline.left) == (False, None)


def test_nan_is_not_a_timeout():
    with pytest.raises(ValueError, match="NaN"):
        Deadline(ManualClock(), math.nan)
