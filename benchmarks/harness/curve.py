"""Curves: how a cost grows with a number, and how points are measured, kept and drawn.

Each point is measured in its own process, so that its memory is its own and no curve depends on earlier ones. Costs are CPU time
(of every process that took part) or simulated time. Unlike wall-clock time, neither depends on what else the host does.
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
    """A picture of how a cost grows.

    Args:
        name: The curve's name, in words.
        over: The quantity that grows.
        cost: The quantity that the lines show, with its unit.
        points: The values of the growing quantity.
        quick: The points of a quick run.
        measure: Returns the cost of a point by line name. The key "memory" is optional and has megabytes.
        why: A sentence that explains the shape.
    """

    name: str
    over: str
    cost: str
    points: tuple[int, ...]
    quick: tuple[int, ...]
    measure: Callable[[int], dict[str, float]]
    why: str


def processor_s_of(pid: int) -> float:
    """Return the CPU time of another process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int | str = "self") -> float:
    """Return the memory of a process in megabytes: its private part, and its proportional share of what it shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / MB


def measured(curve: Curve, count: int, repeats: int) -> dict[str, float]:
    """Measure one point. Return the medians over ``repeats`` processes."""
    runs = [_in_process(curve.name, count) for _ in range(repeats)]
    return {line: round(statistics.median(run[line] for run in runs), 6) for line in runs[0]}


def _in_process(name: str, count: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, sys.argv[0], "--point", f"{name}={count}"],
        stdout=subprocess.PIPE, text=True, timeout=POINT_TIMEOUT_S, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def print_point(curves: dict[str, Curve], text: str) -> None:
    """Measure and print one point, in the process for that point."""
    name, _, count = text.partition("=")
    print(json.dumps(curves[name].measure(int(count))))


def draw(curve: dict[str, Any], path: Path) -> None:
    """Draw the kept results of a curve. Both axes are logarithmic, so proportional growth is a straight line."""
    try:
        import matplotlib as mpl
    except ImportError:
        sys.exit("--write draws pictures with matplotlib, which is not installed: pip install --group bench")
    mpl.use("svg")
    # Make the same results produce the same picture, byte for byte, and keep text as text.
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
