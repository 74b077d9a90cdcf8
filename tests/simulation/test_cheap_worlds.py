"""Worlds that take milliseconds each: many seeds of them."""

from __future__ import annotations

import pytest

from mainstem.sim.runner import run_one

pytestmark = pytest.mark.simulation

WORLDS = ("aqueduct", "bymux", "jmux", "power_loss", "recorders")


@pytest.mark.parametrize("world", WORLDS)
def test_invariants_hold_in_many_runs(world: str) -> None:
    for seed in range(5, 12):
        outcome = run_one(world, seed)
        assert not outcome.failure, f"{outcome.failure}\nreplay it with: {outcome.replay}"


@pytest.mark.parametrize("world", [*WORLDS, "archive"])
def test_a_run_is_determined_by_its_seed(world: str) -> None:
    first = [run_one(world, seed) for seed in range(1, 4)]
    assert [run_one(world, seed) for seed in range(1, 4)] == first
    assert len({outcome.facts for outcome in first}) == 3
