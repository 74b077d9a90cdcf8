"""Worlds that take milliseconds each, run for many seeds."""

from __future__ import annotations

import pytest
from tests.support.case_selection import long_after

from mainstem.sim.runner import run_one

pytestmark = pytest.mark.simulation

WORLDS = ("aqueduct", "bymux", "jmux", "power_loss", "recorders")


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("seeds", long_after(1, [range(5, 8), range(8, 12)]), ids=str)
def test_invariants_hold_in_many_runs(world: str, seeds: range) -> None:
    for seed in seeds:
        outcome = run_one(world, seed)
        assert not outcome.failure, f"{outcome.failure}\nreplay it with: {outcome.replay}"


@pytest.mark.parametrize("world", [*WORLDS, "archive"])
def test_a_run_is_determined_by_its_seed(world: str) -> None:
    first = [run_one(world, seed) for seed in (1, 2)]
    assert [run_one(world, seed) for seed in (1, 2)] == first
    assert first[0].facts != first[1].facts
