"""Run the simulator's scenarios over many seeds, and reduce a run that fails."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from mainstem.cli._options import flag, integer, option
from mainstem.cli._process import say
from mainstem.errors import ConfigurationError


def run(
    scenario: Annotated[list[str] | None, option("--scenario", "NAME", "Run only this scenario.", "all")] = None,
    seeds: Annotated[int, integer("--seeds", "Run this many seeds.", minimum=1)] = 50,
    first: Annotated[int, integer("--first", "The first of the seeds.", minimum=None)] = 1,
    seed: Annotated[
        int | None, integer("--seed", "Run only this seed, and print what each scenario did.", minimum=None)
    ] = None,
    workers: Annotated[int, integer("--workers", "Run in this many processes (0 = one for each processor).")] = 0,
    without: Annotated[str, option("--without", "KIND,...", "Leave out these kinds of faults.")] = "",
    drop: Annotated[str, option("--drop", "N,...", "Leave out these faults of the schedule, by number.")] = "",
    scale: Annotated[
        float | None, option("--scale", "SHARE", "Send this share of a long run's messages.", "drawn from the seed")
    ] = None,
    shrink: Annotated[bool, flag("--shrink/--no-shrink", "Reduce a failing run to what its failure needs.")] = True,
) -> None:
    """Run the simulator's scenarios over many seeds, and reduce a run that fails.

    A seed determines a run, frame for frame. A run that fails prints the command that replays it, and the exit code is 1.

    Example: mainstem sim --seeds 20

    Example: mainstem sim --scenario storm --seed 7 --without crash
    """
    from mainstem.sim.runner import Summary, keep_quiet, report, run_many
    from mainstem.sim.scenarios import SCENARIOS
    from mainstem.sim.schedule import Plan

    names = scenario or sorted(SCENARIOS)
    for name in names:
        if name not in SCENARIOS:
            raise ConfigurationError(f"unknown scenario {name!r}; choose one of {', '.join(sorted(SCENARIOS))}")
    plan = Plan(frozenset(_words(without)), frozenset(_numbers(drop)), scale)
    keep_quiet()
    summary = Summary()
    chosen = range(first, first + seeds) if seed is None else [seed]
    processes = 1 if seed is not None else workers or os.cpu_count() or 1
    for outcome in run_many(names, chosen, workers=processes, plan=plan):
        summary.add(outcome)
        if outcome.failure:
            say(report(outcome, reduce=shrink))
        elif seed is not None:
            print(f"{outcome.scenario} seed {outcome.seed}: {outcome.facts}")
    print(summary)
    if summary.failed:
        raise typer.Exit(1)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in _words(text)]
    except ValueError:
        raise ConfigurationError(f"--drop must be numbers of faults, as in 3,7 (got {text!r})") from None
