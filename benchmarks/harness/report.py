"""Ratios and reports. Larger ratios are always better, and each ratio is taken from a pair of runs in one benchmark run."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.results import goal_of, keep, write_tables

if TYPE_CHECKING:
    from harness.options import Options


@dataclass(kw_only=True)
class Ratio:
    """Mainstem's results relative to a peer's: one value per pair of consecutive runs."""

    peer: str
    goal: float | None = None
    lowest_goal: float | None = None
    pairs: list[float] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        lowest, median, highest = min(self.pairs), statistics.median(self.pairs), max(self.pairs)
        goals = [(median, self.goal), (lowest, self.lowest_goal)]
        return {
            "peer": self.peer,
            "min": round(lowest, 3),
            "median": round(median, 3),
            "max": round(highest, 3),
            "pairs": len(self.pairs),
            "goal": self.goal,
            "lowest_goal": self.lowest_goal,
            "met": None if self.goal is None else all(goal is None or value >= goal for value, goal in goals),
        }


@dataclass(kw_only=True)
class Report:
    """The options of one benchmark, and its results."""

    options: Options
    ratios: dict[str, Ratio] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def pair(
        self,
        name: str,
        *,
        peer: str,
        ours: float,
        theirs: float,
        goal: float | None = None,
        lowest_goal: float | None = None,
        smaller_is_better: bool = False,
    ) -> None:
        """Add one pair. ``smaller_is_better`` turns times into a ratio that is larger when ours is shorter.

        ``goal`` is the target for the median, ``lowest_goal`` the target for each pair.
        """
        ratio = self.ratios.setdefault(name, Ratio(peer=peer, goal=goal, lowest_goal=lowest_goal))
        ratio.pairs.append(theirs / ours if smaller_is_better else ours / theirs)

    def figure(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)

    def as_dict(self) -> dict[str, Any]:
        return {
            "machine": machine(),
            "ratios": {name: ratio.as_dict() for name, ratio in self.ratios.items()},
            "skipped": self.skipped,
            "figures": {name: round(statistics.median(values), 3) for name, values in self.figures.items()},
            "notes": self.notes,
        }

    def print(self) -> None:
        if self.options.write:
            keep(self.options.benchmark, self.as_dict())
            write_tables()
        if self.options.json:
            print(json.dumps(self.as_dict()))
            return
        facts = self.as_dict()
        print("  ".join(f"{key}: {value}" for key, value in facts["machine"].items()))
        for name, ratio in facts["ratios"].items():
            goal = "" if ratio["goal"] is None else f"  goal {goal_of(ratio)}: {'met' if ratio['met'] else 'NOT MET'}"
            spread = f"({ratio['min']:.2f}-{ratio['max']:.2f}, {ratio['pairs']} pairs)"
            print(f"{name:44} {ratio['median']:9.2f} x {ratio['peer']:12} {spread}{goal}")
        for name, value in facts["figures"].items():
            print(f"{name:44} {value:14,.3f}")
        for peer, why in facts["skipped"].items():
            print(f"skipped {peer}: {why}")
        for note in facts["notes"]:
            print(f"note: {note}")


def machine() -> dict[str, Any]:
    """Return enough facts to identify the machine that a number came from."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    limits = {name: int(Path(f"/proc/sys/net/core/{name}").read_text()) for name in ("rmem_max", "wmem_max")}
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **limits,
    }
