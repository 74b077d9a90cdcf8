"""Run the simulator seed by seed until one fails; then exit with 1 and print the failed seed as the last line.

``python -m tests.mutants.seeds --seeds 200 unicast gaps`` starts at seed 1 and runs every scenario with each seed; ``python -m
tests.mutants.seeds unicast:7 aqueduct:12`` runs exactly these.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mainstem.sim.runner import keep_quiet, run_one

if TYPE_CHECKING:
    from collections.abc import Iterator


def _pairs(words: list[str], seeds: int) -> Iterator[tuple[str, int]]:
    exact = [word.split(":") for word in words if ":" in word]
    yield from ((scenario, int(seed)) for scenario, seed in exact)
    for seed in range(1, seeds + 1):
        for scenario in (word for word in words if ":" not in word):
            yield scenario, seed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("scenario", nargs="+")
    options = parser.parse_args()
    for scenario, seed in _pairs(options.scenario, options.seeds):
        failure = run_one(scenario, seed).failure
        if failure:
            lines = failure.strip().splitlines()
            print(f"{lines[-1][:300]}\n{scenario}:{seed}")
            return 1
    return 0


if __name__ == "__main__":
    keep_quiet()
    raise SystemExit(main())
