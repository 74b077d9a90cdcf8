"""Session ids: never a reserved one, nor one in use on the same endpoint and stream."""

from __future__ import annotations

from random import Random

import pytest

from mainstem.aeron.driver.conductor.session_ids import SessionIds
from mainstem.errors import RegistrationError


@pytest.mark.parametrize("seed", range(20))
def test_a_session_id_in_use_is_not_handed_out_again(seed: int) -> None:
    ids = SessionIds(Random(seed), reserved_low=-1, reserved_high=1000)
    first = ids.take(())
    in_use = {first, first + 1, first + 2, first + 5}
    taken = SessionIds(Random(seed), reserved_low=-1, reserved_high=1000)
    following = [taken.take(in_use) for _ in range(3)]
    assert following == [first + 3, first + 4, first + 6]


def test_a_reserved_session_id_is_skipped() -> None:
    ids = SessionIds(Random(1), reserved_low=-(1 << 31), reserved_high=(1 << 31) - 10)
    assert {ids.take(()) for _ in range(9)} == set(range((1 << 31) - 9, 1 << 31))


@pytest.mark.parametrize("reserved_high", [(1 << 31) - 1, (1 << 31) - 2])
def test_exhausted_session_ids_raise(reserved_high: int) -> None:
    ids = SessionIds(Random(1), reserved_low=-(1 << 31), reserved_high=reserved_high)
    with pytest.raises(RegistrationError, match="no session id is free"):
        ids.take({reserved_high + 1})
    assert reserved_high == (1 << 31) - 1 or ids.take(()) == reserved_high + 1


def test_finds_the_only_free_session_id_after_a_wrap() -> None:
    ids = SessionIds(Random(1), reserved_low=-(1 << 31) + 4, reserved_high=(1 << 31) - 5)
    free = [ids.take(()) for _ in range(8)]
    for one in free:
        assert ids.take(set(free) - {one}) == one
