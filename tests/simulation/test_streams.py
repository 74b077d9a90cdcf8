"""Whole drivers and clients in a simulated world, seed by seed. ``make sim SEEDS=200`` runs more of them."""

from __future__ import annotations

import pytest
from tests.support.tiers import long_after

from mainstem.sim.runner import main, run_one
from mainstem.sim.scenarios import SCENARIOS
from mainstem.sim.world import World

pytestmark = pytest.mark.simulation

SEEDS = range(1, 5)
FAILED: list[tuple[str, int]] = [
    ("untethered", 5),
    ("untethered", 12),
    ("redundant", 284),
    ("redundant", 112),
]  # every (scenario, seed) that ever failed stays here
CASES = FAILED + [(scenario, seed) for seed in SEEDS for scenario in sorted(SCENARIOS)]


@pytest.mark.parametrize(("scenario", "seed"), long_after(len(FAILED) + len(SCENARIOS), CASES))
def test_every_promise_holds_whatever_the_network_does(scenario: str, seed: int) -> None:
    outcome = run_one(scenario, seed)
    assert not outcome.failure, f"{outcome.failure}\nreplay it with: {outcome.replay}"


def test_a_run_is_its_seed_frame_for_frame() -> None:
    def run() -> tuple[str, int, str]:
        world = World(7)
        with world:
            facts = SCENARIOS["unicast"](world)
        return facts, world.trace.total, str(world.trace)

    assert run() == run()


def test_a_failing_seed_prints_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(world: World) -> str:
        SCENARIOS["unicast"](world)
        raise AssertionError("on purpose")

    monkeypatch.setitem(SCENARIOS, "broken", broken)
    assert main(["--scenario", "broken", "--seed", "3"]) == 1
    said = capsys.readouterr()
    assert "replay it with: python -m mainstem.sim --scenario broken --seed 3" in said.err
    assert "0 passed, 1 failed" in said.out
