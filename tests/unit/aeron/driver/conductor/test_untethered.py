"""When an untethered subscriber is in danger of being cut off."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainstem.aeron.driver.conductor.life_cycle import untethered_image_limit, untethered_limit

WINDOW = 1 << 15


def test_subscribers_in_the_last_quarter_of_the_window_are_eligible() -> None:
    assert untethered_limit(100_000, WINDOW) == 100_000 - WINDOW + WINDOW // 4


@given(told=st.integers(0, 1 << 40), asleep=st.integers(0, WINDOW // 4), mtu=st.sampled_from((1408, 8192, 16384)))
def test_a_sender_that_used_up_its_window_is_not_stalled_forever(told: int, asleep: int, mtu: int) -> None:
    # The sleeper is at most a quarter window ahead of what the sender knows; the others have read all that the sender can send.
    furthest = told + WINDOW - mtu
    assert told + asleep <= untethered_image_limit(furthest, WINDOW, told, mtu)


@given(told=st.integers(0, 1 << 40), used=st.integers(0, WINDOW // 2))
def test_no_other_subscriber_is_eligible_while_there_is_room(told: int, used: int) -> None:
    assert untethered_image_limit(told + used, WINDOW, told, 1408) == untethered_limit(told + used, WINDOW)
