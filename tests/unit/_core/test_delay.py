"""How long a receiver waits before it sends a NAK."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st
from tests.unit._core.network import modules

from mainstem._core.driver.delay import BackoffDelay, StaticDelay


def test_unicast_naks_after_a_microsecond_and_then_every_100() -> None:
    delay = StaticDelay.unicast()
    assert (delay.first_ns(), delay.retry_ns()) == (1_000, 100_000)
    assert StaticDelay.unicast(1).first_ns() == 1_000
    assert StaticDelay.unicast(5_000, 10).retry_ns() == 50_000


@given(st.integers(0, 1 << 32), st.integers(2, 1_000), st.integers(1_000, 1_000_000_000))
def test_a_group_backs_off_within_its_maximum_delay(seed: int, size: int, longest_ns: int) -> None:
    delay = BackoffDelay(random.Random(seed), max_backoff_ns=longest_ns, group_size=size)
    for _ in range(20):
        assert 0 <= delay.first_ns() <= longest_ns + 1
        assert 0 <= delay.retry_ns() <= longest_ns + 1


def test_few_of_a_group_send_an_early_nak() -> None:
    """The first of ten sends its NAK early and suppresses the rest: the density grows as RFC 5401 draws it."""
    delay = BackoffDelay(random.Random(1))
    drawn = sorted(delay.first_ns() for _ in range(10_000))
    scale = math.log(10) + 1
    median = 10_000_000 / scale * math.log(0.5 * (math.exp(scale) - 1) + 1)
    assert abs(drawn[5_000] - median) < 200_000


def test_compiled_and_plain_draw_the_same() -> None:
    both = [modules(compiled=compiled).delay.BackoffDelay(random.Random(9)) for compiled in (True, False)]
    assert [both[0].first_ns() for _ in range(200)] == [both[1].first_ns() for _ in range(200)]
