"""Ports and session ids: random, never twice at a time, and at the cost that docs/protocols/duologue.md, 4.5 asks for."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.duologue.port_allocator import PortAllocator, SessionAllocator
from mainstem.errors import ConfigurationError, InternalError


class CountedList(list[int]):
    """A list that counts how often an element is read or written."""

    touched = 0

    def __getitem__(self, index: object) -> object:  # type: ignore[override]
        self.touched += 1
        return super().__getitem__(index)  # type: ignore[index]

    def __setitem__(self, index: object, value: object) -> None:  # type: ignore[override]
        self.touched += 1
        super().__setitem__(index, value)  # type: ignore[index,assignment]


@given(st.integers(1, 40), st.lists(st.booleans(), max_size=200), st.integers(0, 1 << 32))
def test_a_port_is_never_given_out_twice_and_always_comes_back(count: int, steps: list[bool], seed: int) -> None:
    rng = Random(seed)
    ports = PortAllocator(9010, count, rng)
    held: set[int] = set()
    for take in steps:
        if take:
            port = ports.allocate()
            assert (port is None) == (len(held) == count)
            if port is not None:
                assert port not in held
                assert 9010 <= port < 9010 + count
                held.add(port)
        elif held:
            port = rng.choice(sorted(held))
            held.remove(port)
            ports.release(port)
        assert ports.in_use == held
        assert ports.free_count == count - len(held)


@pytest.mark.parametrize("count", [10, 1_000, 50_000])
def test_a_port_costs_the_same_however_many_there_are(count: int) -> None:
    ports = PortAllocator(1_000, count, Random(1))
    ports._ports = counted = CountedList(ports._ports)
    taken = [ports.allocate() for _ in range(10)]
    for port in taken:
        assert port is not None
        ports.release(port)
    assert counted.touched <= 20 * 8


def test_a_port_that_is_not_in_use_cannot_be_released() -> None:
    ports = PortAllocator(9010, 4, Random(1))
    port = ports.allocate()
    assert port is not None
    ports.release(port)
    for wrong in (port, 9009, 9014):
        with pytest.raises(InternalError):
            ports.release(wrong)
    with pytest.raises(ConfigurationError):
        PortAllocator(65_530, 10, Random(1))


@given(st.integers(1, 12), st.integers(0, 1 << 32))
def test_every_session_id_of_a_small_range_can_be_had_once(count: int, seed: int) -> None:
    sessions = SessionAllocator(Random(seed), first=5, last=4 + count)
    taken = [sessions.allocate() for _ in range(count)]
    assert sorted(each for each in taken if each is not None) == list(range(5, 5 + count))
    assert sessions.allocate() is None
    sessions.release(5)
    assert sessions.allocate() == 5


def test_the_last_session_ids_are_had_by_a_generator_that_never_meets_them() -> None:
    class Stuck(Random):
        def randint(self, a: int, b: int) -> int:
            return b

    sessions = SessionAllocator(Stuck(), first=5, last=8)
    assert [sessions.allocate() for _ in range(5)] == [8, 5, 6, 7, None]
    with pytest.raises(ConfigurationError, match="5 to 4"):
        SessionAllocator(Random(1), first=5, last=4)


def test_session_ids_keep_no_more_than_those_in_use() -> None:
    sessions = SessionAllocator(Random(3))
    taken = [sessions.allocate() for _ in range(100)]
    assert all(each is not None and 0 < each < 1 << 31 for each in taken)
    assert len(sessions.in_use) == 100
    for each in taken:
        assert each is not None
        sessions.release(each)
    assert not sessions.in_use
    with pytest.raises(InternalError):
        sessions.release(1)
