"""Ports are random, never allocated twice at a time, and cost what docs/protocols/duologue.md, 4.5 requires."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.duologue.server_core import PortAllocator


class CountedList(list[int]):
    """A list that counts how often its elements are read or written."""

    touched = 0

    def __getitem__(self, index: object) -> object:  # type: ignore[override]
        self.touched += 1
        return super().__getitem__(index)  # type: ignore[index]

    def __setitem__(self, index: object, value: object) -> None:  # type: ignore[override]
        self.touched += 1
        super().__setitem__(index, value)  # type: ignore[index,assignment]


@given(st.integers(1, 40), st.lists(st.booleans(), max_size=200), st.integers(0, 1 << 32))
def test_a_port_is_allocated_once_and_always_returned(count: int, steps: list[bool], seed: int) -> None:
    rng = Random(seed)
    ports = PortAllocator(range(9010, 9010 + count), rng)
    held: set[int] = set()
    for take in steps:
        if take:
            if ports.free_count:
                port = ports.allocate()
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
def test_allocating_a_port_takes_constant_time(count: int) -> None:
    ports = PortAllocator(range(1_000, 1_000 + count), Random(1))
    ports._free = counted = CountedList(ports._free)
    taken = [ports.allocate() for _ in range(10)]
    for port in taken:
        ports.release(port)
    assert counted.touched <= 20 * 8


def test_a_port_that_is_not_in_use_cannot_be_released() -> None:
    ports = PortAllocator(range(9010, 9014), Random(1))
    port = ports.allocate()
    ports.release(port)
    for wrong in (port, 9009, 9014):
        with pytest.raises(KeyError):
            ports.release(wrong)
