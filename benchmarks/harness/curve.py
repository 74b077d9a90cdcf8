"""How a cost grows with a number: what a curve is, how its points are measured, kept and drawn.

Each point is a process of its own, so that memory is that of the point and no curve depends on what ran before. Costs are processor
time (of every process that took part) or simulated time: neither depends on what else the machine does, as times on the wall do.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

POINT_TIMEOUT_S = 600
MB = 1e6


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One picture.

    Args:
        name: The curve's name; words.
        over: What there is more and more of.
        cost: What a point's lines are, with their unit.
        points: How many of it.
        quick: The points of a quick run.
        measure: Returns the cost of a point by the names of its lines; under "memory" there may be megabytes.
        why: What the shape comes from, in a sentence.
    """

    name: str
    over: str
    cost: str
    points: tuple[int, ...]
    quick: tuple[int, ...]
    measure: Callable[[int], dict[str, float]]
    why: str


def processor_s_of(pid: int) -> float:
    """Processor time of another process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int | str = "self") -> float:
    """Memory of a process that it shares with no other, and its part of what it shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / MB


def measured(curve: Curve, count: int, repeats: int) -> dict[str, float]:
    """One point: the medians of some processes."""
    runs = [_in_process(curve.name, count) for _ in range(repeats)]
    return {line: round(statistics.median(run[line] for run in runs), 6) for line in runs[0]}


def _in_process(name: str, count: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, sys.argv[0], "--point", f"{name}={count}"],
        stdout=subprocess.PIPE, text=True, timeout=POINT_TIMEOUT_S, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def print_point(curves: dict[str, Curve], text: str) -> None:
    """What the process of a point does."""
    name, _, count = text.partition("=")
    print(json.dumps(curves[name].measure(int(count))))


def draw(curve: dict[str, Any], path: Path) -> None:
    """The picture of what is kept of a curve: both axes are logarithmic, so that what grows in proportion is a straight line."""
    try:
        import matplotlib as mpl
    except ImportError:
        sys.exit("--write draws pictures with matplotlib, which is not installed: pip install --group bench")
    mpl.use("svg")
    # The same figures are the same picture, byte for byte; text stays text.
    mpl.rcParams.update({"svg.hashsalt": "mainstem", "svg.fonttype": "none"})
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for line, values in curve["lines"].items():
        if line != "memory":
            axes.loglog(curve["points"], values, marker="o", markersize=3, label=line)
    axes.set(xlabel=curve["over"], ylabel=curve["cost"])
    axes.grid(visible=True, which="major", alpha=0.3)
    handles, labels = axes.get_legend_handles_labels()
    if "memory" in curve["lines"]:
        right = axes.twinx()
        right.loglog(curve["points"], curve["lines"]["memory"], "--", color="gray", label="memory")
        right.set(ylabel="memory [MB]")
        handles += right.lines
        labels.append("memory")
    axes.legend(handles, labels, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
