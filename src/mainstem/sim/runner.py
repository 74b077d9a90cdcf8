"""Run scenarios over many seeds. A failing seed is shrunk and printed with its trace and one command that replays it."""

from __future__ import annotations

import gc
import logging
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.checkers import CHECKED
from mainstem.sim.clock import START_NS
from mainstem.sim.scenarios import SCENARIOS
from mainstem.sim.schedule import Plan
from mainstem.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence


# -- shrinking ---------------------------------------------------------------------------------------------------------
#
# Each attempt is a complete run with a ``Plan`` that leaves more out. Faults that are left out are still drawn, so the others stay
# the same, but the run differs and may pass. An attempt that still fails is the starting point of the next.


MAX_TRIES = 200  # runs: a case with a dozen kinds and ten faults needs about fifty
SIZES = (0.02, 0.05, 0.1, 0.25, 0.5)


def shrink(plan: Plan, kinds: Collection[str], faults: Collection[int], fails: Callable[[Plan], bool]) -> Plan:
    """Return the smallest plan found that still fails.

    ``kinds`` and ``faults`` are the ones that occurred in the failing run of ``plan``. ``fails`` runs a plan.
    """
    tries = 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(plan, kinds, faults):
            if tries >= MAX_TRIES:
                return plan
            tries += 1
            if fails(smaller):
                plan, is_smaller = smaller, True
                break
    return plan


def _smaller(plan: Plan, kinds: Collection[str], faults: Collection[int]) -> Iterator[Plan]:
    """Yield plans that leave more out, starting with those that leave out the most."""
    without = frozenset(kinds) - plan.without
    dropped = frozenset(faults) - plan.dropped
    if dropped:
        yield replace(plan, dropped=plan.dropped | dropped)
    if len(without) > 1:
        yield replace(plan, without=plan.without | without)
    yield from (replace(plan, without=plan.without | {kind}) for kind in sorted(without))
    yield from (replace(plan, dropped=plan.dropped | {number}) for number in sorted(dropped))
    yield from (replace(plan, size=size) for size in SIZES if plan.size is None or size < plan.size)


@dataclass(frozen=True)
class Outcome:
    scenario: str
    seed: int
    plan: Plan = field(default_factory=Plan)
    facts: str = ""
    failure: str = ""
    trace: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    faults: tuple[int, ...] = ()
    simulated_ns: int = 0
    messages: int = 0
    bytes_checked: int = 0

    @property
    def replay(self) -> str:
        """The command that replays this run exactly."""
        return f"mainstem sim --scenario {self.scenario} --seed {self.seed}{self.plan.arguments}"

    @property
    def kind_of_failure(self) -> str:
        lines = self.failure.strip().splitlines()
        return next((line.partition(":")[0] for line in reversed(lines) if line[:1].strip()), "")


def run_one(scenario: str, seed: int, plan: Plan | None = None) -> Outcome:
    """Run one world from one seed, without the faults that ``plan`` leaves out."""
    plan = plan or Plan()
    CHECKED.messages = CHECKED.bytes = 0
    world = World(seed, plan=plan)
    world.network.checker = world.wire
    facts = failure = trace = ""
    try:
        with world:
            facts = SCENARIOS[scenario](world)
            if world.network.checker is not None and not world.wire.is_blind:
                world.wire.efficiency.round_trip_ns = world.network.round_trip_ns
                world.wire.efficiency.finish()
    except Exception:
        failure, trace = traceback.format_exc(), str(world.trace)
    outcome = Outcome(
        scenario,
        seed,
        plan,
        facts,
        failure,
        trace,
        world.network.counts,
        tuple(fault.number for fault in world.schedule.faults) if world.schedule is not None else (),
        world.now_ns - START_NS,
        CHECKED.messages,
        CHECKED.bytes,
    )
    # Clients and drivers form reference cycles that hold megabytes unknown to the collector. Objects from before the first world
    # are frozen (``keep_quiet``), so that the collector traverses only this world.
    del world
    gc.collect()
    return outcome


def keep_quiet() -> None:
    """Silence warnings, which scenarios provoke on purpose, and freeze existing objects for the garbage collector."""
    logging.getLogger("mainstem").addHandler(logging.NullHandler())
    gc.freeze()


def run_many(
    scenarios: Sequence[str], seeds: Iterable[int], *, workers: int, plan: Plan | None = None
) -> Iterator[Outcome]:
    """Run every scenario with every seed in ``workers`` processes."""
    jobs = [(scenario, seed, plan) for seed in seeds for scenario in scenarios]
    if workers == 1:
        yield from (run_one(*job) for job in jobs)
        return
    with ProcessPoolExecutor(workers, initializer=keep_quiet) as pool:
        yield from pool.map(run_one, *zip(*jobs, strict=True), chunksize=4)


def smallest(outcome: Outcome) -> Outcome:
    """Return the smallest run that fails in the same way."""

    def fails(plan: Plan) -> bool:
        return run_one(outcome.scenario, outcome.seed, plan).kind_of_failure == outcome.kind_of_failure

    plan = shrink(outcome.plan, outcome.counts.keys(), outcome.faults, fails)
    return outcome if plan == outcome.plan else run_one(outcome.scenario, outcome.seed, plan)


@dataclass
class Summary:
    passed: int = 0
    failed: int = 0
    simulated_ns: int = 0
    messages: int = 0
    bytes_checked: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.failed += bool(outcome.failure)
        self.passed += not outcome.failure
        self.simulated_ns += outcome.simulated_ns
        self.messages += outcome.messages
        self.bytes_checked += outcome.bytes_checked
        self.counts.update(outcome.counts)

    def __str__(self) -> str:
        checked = f"{self.messages:,} messages and {self.bytes_checked:,} bytes checked"
        lines = [f"{self.simulated_ns // NS_PER_SECOND:,} simulated seconds, {checked}"]
        if self.counts:
            faults = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.counts.items()))
            lines.append(f"faults of links and hosts: {faults}")
        lines.append(f"{self.passed} passed, {self.failed} failed")
        return "\n".join(lines)


def report(outcome: Outcome, *, reduce: bool) -> str:
    """Return the failure, the last frames, and the command that replays the run. ``reduce`` shrinks the run first."""
    lines = [f"\n{outcome.scenario} seed {outcome.seed} failed:", outcome.failure]
    least = smallest(outcome) if reduce else outcome
    if least.plan != outcome.plan:
        lines += ["failure of the reduced run:", least.failure, f"replay the whole run with: {outcome.replay}"]
    return "\n".join([*lines, "the last frames:", least.trace, f"replay it with: {least.replay}"])
