"""Connections under everything that a network and an application may do, seed by seed."""

from __future__ import annotations

import os

import pytest
from aqueduct_world import World

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("MAINSTEM_AQUEDUCT_SEEDS", "200"))
ONCE_FAILED = (1, 11, 13, 17, 20, 22, 39, 189, 209, 285, 327, 673, 850)


def run(seed: int, connections: int) -> None:
    try:
        World(seed, connections=connections).run()
    except Exception as error:
        command = f"python tests/simulation/aqueduct/aqueduct_world.py --seed {seed} --connections {connections}"
        raise AssertionError(f"{error}\nreplay: {command}") from error


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
@pytest.mark.timeout(300)
def test_one_connection_keeps_every_promise(first: int) -> None:
    for seed in range(first, first + 50):
        run(seed, 1)


@pytest.mark.parametrize("connections", [2, 3])
@pytest.mark.timeout(300)
def test_several_connections_keep_every_promise(connections: int) -> None:
    for seed in range(SEEDS // 4):
        run(10_000 + seed, connections)


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_seeds_that_once_failed_do_not_fail_again(seed: int) -> None:
    run(seed, 1)


def test_a_run_is_its_seed() -> None:
    def trace(seed: int) -> tuple[int, list[str]]:
        world = World(seed)
        world.run()
        return world.now, [str(fate) for fate in world.messages.values()]

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)
