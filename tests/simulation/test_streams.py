"""Whole drivers and clients in a simulated world, one seed after another. ``make sim SEEDS=200`` runs more seeds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.support.case_selection import long_after

from mainstem import cli
from mainstem.sim import fault_injector
from mainstem.sim.checkers import Violation
from mainstem.sim.runner import run_one, smallest
from mainstem.sim.scenarios import SCENARIOS
from mainstem.sim.schedule import Plan
from mainstem.sim.wire import WireChecker, _Request
from mainstem.sim.world import World

if TYPE_CHECKING:
    from mainstem.sim.schedule import Fault

pytestmark = pytest.mark.simulation

SEEDS = range(1, 5)
FAILED: list[tuple[str, int]] = [
    ("untethered", 5),
    ("untethered", 12),
    ("redundant", 284),
    ("redundant", 112),
    ("storm", 370),
    ("storm", 446),
    ("storm", 209),
    ("storm", 206),
    ("storm", 220),
]  # every (scenario, seed) that ever failed
CASES = [(scenario, seed) for seed in SEEDS for scenario in sorted(SCENARIOS)]


@pytest.mark.parametrize(("scenario", "seed"), long_after(6, FAILED) + long_after(len(SCENARIOS), CASES))
def test_invariants_hold_whatever_the_network_does(scenario: str, seed: int) -> None:
    outcome = run_one(scenario, seed)
    assert not outcome.failure, f"{outcome.failure}\nreplay it with: {outcome.replay}"


def test_a_run_is_determined_by_its_seed_frame_for_frame() -> None:
    def run() -> tuple[str, int, str]:
        world = World(7)
        with world:
            facts = SCENARIOS["unicast"](world)
        return facts, world.trace.total, str(world.trace)

    assert run() == run()


def sim(*arguments: str) -> int:
    """Return the exit code of ``mainstem sim``."""
    with pytest.raises(SystemExit) as end:
        cli.main(["sim", *arguments])
    code = end.value.code
    return code if isinstance(code, int) else 0


def test_a_failing_seed_prints_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(world: World) -> str:
        SCENARIOS["unicast"](world)
        raise AssertionError("on purpose")

    monkeypatch.setitem(SCENARIOS, "broken", broken)
    assert sim("--scenario", "broken", "--seed", "3") == 1
    said = capsys.readouterr()
    assert "replay the whole run with: mainstem sim --scenario broken --seed 3\n" in said.err
    # The run fails whichever fault is left out, so shrinking leaves out all of them.
    assert re.search(r"replay it with: mainstem sim --scenario broken --seed 3 --without \S+ --scale 0.02\n", said.err)
    assert "0 passed, 1 failed" in said.out


@pytest.mark.long
def test_a_planted_violation_is_reduced_to_the_faults_that_it_needs_and_replays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A storm of many faults in which only a crash causes the violation is reduced to that crash."""
    begin = fault_injector.KINDS["crash"].start

    def broken(struck: fault_injector.FaultInjector, fault: Fault) -> None:
        begin(struck, fault)
        raise Violation("planted")

    monkeypatch.setitem(fault_injector.KINDS, "crash", fault_injector.KINDS["crash"]._replace(start=broken))
    outcomes = (run_one("storm", seed, Plan(size=0.05)) for seed in range(1, 100))
    outcome = next(each for each in outcomes if "planted" in each.failure and len(each.faults) > 3)
    least = smallest(outcome)
    assert "planted" in least.failure
    assert len(least.faults) == 1
    again = run_one("storm", outcome.seed, least.plan)
    assert (again.failure, again.trace) == (least.failure, least.trace)


def test_the_summary_names_faults_and_what_was_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim("--scenario", "storm", "--seeds", "2", "--workers", "1", "--scale", "0.05") == 0
    said = capsys.readouterr().out
    assert re.search(
        r"[1-9]\d* simulated seconds, [\d,]+ messages and [\d,]+ bytes checked\nfaults of links and hosts: \w", said
    )
    assert "2 passed, 0 failed" in said


def test_one_ignored_nak_in_64_breaks_the_bound_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is judged when it is due. One in 64 counts as not served, as if the sender had ignored it."""
    monkeypatch.setattr(WireChecker, "is_strict", False, raising=False)
    original = _Request.is_served
    judged = 0

    def one_in_64(request: _Request) -> bool:
        nonlocal judged
        judged += 1
        return judged % 64 != 0 and original(request)

    monkeypatch.setattr(_Request, "is_served", one_in_64)
    failures = [run_one("gaps", seed).failure for seed in (1, 2, 3)]
    assert any("share of NAKs ignored" in failure for failure in failures)
