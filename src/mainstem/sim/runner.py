"""Runs scenarios over many seeds; a failing seed prints its trace and one command that replays it."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.sim.scenarios import SCENARIOS
from mainstem.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


@dataclass(frozen=True)
class Outcome:
    """How one seed of one scenario ended; ``failure`` is empty when everything held."""

    scenario: str
    seed: int
    facts: str = ""
    failure: str = ""
    trace: str = ""

    @property
    def replay(self) -> str:
        """The command that runs exactly this again."""
        return f"python -m mainstem.sim --scenario {self.scenario} --seed {self.seed}"


def run_one(scenario: str, seed: int) -> Outcome:
    """One world from one seed."""
    world = World(seed)
    world.network.checker = world.wire
    try:
        with world:
            facts = SCENARIOS[scenario](world)
    except Exception:
        return Outcome(scenario, seed, failure=traceback.format_exc(), trace=str(world.trace))
    finally:
        # Clients and drivers know each other in circles, and hold megabytes that the collector does not see.
        del world
        gc.collect()
    return Outcome(scenario, seed, facts=facts)


def keep_quiet() -> None:
    """Drivers warn of what scenarios do to them on purpose: only what fails is worth a word."""
    logging.getLogger("mainstem").addHandler(logging.NullHandler())


def run_many(scenarios: Sequence[str], seeds: Iterable[int], *, workers: int) -> Iterator[Outcome]:
    """Every scenario with every seed, over ``workers`` processes."""
    jobs = [(scenario, seed) for seed in seeds for scenario in scenarios]
    if workers == 1:
        yield from (run_one(*job) for job in jobs)
        return
    with ProcessPoolExecutor(workers, initializer=keep_quiet) as pool:
        yield from pool.map(run_one, *zip(*jobs, strict=True), chunksize=4)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: ``python -m mainstem.sim [--seeds N | --seed S] [--scenario NAME]``."""
    parser = argparse.ArgumentParser(prog="python -m mainstem.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="how many seeds, from --first on")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int, help="only this one, and say what happened")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), action="append", help="only these")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    seeds = [chosen.seed] if chosen.seed is not None else range(chosen.first, chosen.first + chosen.seeds)
    names = chosen.scenario or sorted(SCENARIOS)
    keep_quiet()
    passed = failed = 0
    for outcome in run_many(names, seeds, workers=1 if chosen.seed is not None else chosen.workers):
        if outcome.failure:
            failed += 1
            print(f"\n{outcome.scenario} seed {outcome.seed} failed:\n{outcome.failure}", file=sys.stderr)
            print(f"the last frames:\n{outcome.trace}", file=sys.stderr)
            print(f"replay it with: {outcome.replay}", file=sys.stderr)
        else:
            passed += 1
            if chosen.seed is not None:
                print(f"{outcome.scenario} seed {outcome.seed}: {outcome.facts}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
