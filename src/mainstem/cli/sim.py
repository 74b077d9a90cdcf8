"""Run the simulator's scenarios over many seeds, and reduce a run that fails."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from mainstem.cli._process import say
from mainstem.errors import ConfigurationError


def run(
    scenario: Annotated[
        list[str] | None, typer.Option("--scenario", help="Run only this scenario.", metavar="NAME", show_default="all")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Run this many seeds.")] = 50,
    first: Annotated[int, typer.Option("--first", metavar="N", help="The first of the seeds.")] = 1,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Run only this seed, and print what each scenario did.")
    ] = None,
    workers: Annotated[
        int,
        typer.Option("--workers", metavar="N", min=0, help="Run in this many processes (0 = one for each processor)."),
    ] = 0,
    without: Annotated[
        str, typer.Option("--without", metavar="KIND,...", help="Leave out these kinds of faults.")
    ] = "",
    drop: Annotated[
        str, typer.Option("--drop", metavar="N,...", help="Leave out these faults of the schedule, by number.")
    ] = "",
    scale: Annotated[
        float | None,
        typer.Option(
            "--scale",
            metavar="SHARE",
            help="Send this share of a long run's messages.",
            show_default="drawn from the seed",
        ),
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Reduce a failing run to what its failure needs.")
    ] = True,
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
