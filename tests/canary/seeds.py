"""Runs simulators seed by seed until one fails; ends with 1 then, and prints which as the last line.

``python -m tests.canary.seeds --seeds 200 unicast gaps`` goes from seed 1 on, every scenario with each seed;
``python -m tests.canary.seeds unicast:7 aqueduct:12`` runs exactly these.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AQUEDUCT = "aqueduct"
AQUEDUCT_FOLDER = Path(__file__).resolve().parents[1] / "simulation" / "aqueduct"


def _runner(scenario: str) -> Callable[[int], str]:
    """A function from a seed to its failure, empty where every promise was kept."""
    if scenario == AQUEDUCT:
        sys.path.insert(0, str(AQUEDUCT_FOLDER))
        from aqueduct_world import World  # type: ignore[import-not-found]

        def run_aqueduct(seed: int) -> str:
            try:
                World(seed).run()
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            return ""

        return run_aqueduct
    from mainstem.sim.runner import run_one

    return lambda seed: run_one(scenario, seed).failure


def _pairs(words: list[str], seeds: int) -> Iterator[tuple[str, int]]:
    exact = [word.split(":") for word in words if ":" in word]
    yield from ((scenario, int(seed)) for scenario, seed in exact)
    for number in range(seeds):
        for scenario in (word for word in words if ":" not in word):
            yield scenario, number if scenario == AQUEDUCT else number + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("scenario", nargs="+")
    options = parser.parse_args()
    runners: dict[str, Callable[[int], str]] = {}
    for scenario, seed in _pairs(options.scenario, options.seeds):
        if scenario not in runners:
            runners[scenario] = _runner(scenario)
        failure = runners[scenario](seed)
        if failure:
            lines = failure.strip().splitlines()
            print(f"{lines[-1][:300]}\n{scenario}:{seed}")
            return 1
    return 0


if __name__ == "__main__":
    from mainstem.sim.runner import keep_quiet

    keep_quiet()
    raise SystemExit(main())
