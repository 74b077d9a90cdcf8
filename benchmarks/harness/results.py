"""The latest benchmark results, kept in ``benchmarks/results``, and the tables of the documentation that are generated from them.

``--write`` keeps the ratios of a run next to those of the other parts, and writes the tables again. A table lies between ``<!--
benchmarks: NAME -->`` and ``<!-- end -->``. Do not edit it by hand: ``tests/form`` compares the pages with the results.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
MARK = "<!-- benchmarks: "
PICTURES = ROOT / "docs" / "images" / "growth"
# Rows of the README's table: the question, the benchmark, and the ratio that answers it. A ratio without a kept result has no
# row.
HEADLINES = (
    ("Aeron over IPC, 32 B, round trip", "ipc", "round trip, 32 B / pyzmq"),
    ("Aeron over IPC, 32 B, a call a message", "ipc", "32 B, a call a message / pyzmq"),
    ("Aeron over UDP, 1 KiB, a call a message", "udp", "1 KiB, a call a message / pyaeron"),
    ("Aeron over UDP, 32 B, round trip, INVOKER", "udp", "round trip, 32 B, INVOKER / pyaeron"),
    ("Aeron over IPC, 32 B, batches", "ipc", "32 B, batches / pyaeron"),
)


def keep(benchmark: str, facts: dict[str, Any]) -> None:
    """Keep the ratios of a run, each with its machine. Ratios that the run did not measure stay."""
    kept = results(benchmark)
    for name, ratio in facts["ratios"].items():
        kept[name] = {**ratio, "machine": facts["machine"]}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{benchmark}.json").write_text(json.dumps(kept, indent=1) + "\n")


def results(benchmark: str) -> dict[str, Any]:
    """Return the kept ratios of a benchmark, by name."""
    path = RESULTS / f"{benchmark}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_tables() -> None:
    for path, text in pages().items():
        path.write_text(text)


def pages() -> dict[Path, str]:
    """Return the intended text of each page that has a table of results."""
    texts = {path: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
    return {path: with_tables(text) for path, text in texts.items() if MARK in text}


def with_tables(page: str) -> str:
    """Return a page with its tables regenerated."""

    def written(match: re.Match[str]) -> str:
        name = match[1]
        lines = {"headlines": headlines, "growth": all_curves}.get(name, lambda: all_ratios(name))()
        return "\n".join((f"{MARK}{name} -->", *lines, "<!-- end -->"))

    return re.sub(rf"{MARK}(\w+) -->\n.*?<!-- end -->", written, page, flags=re.DOTALL)


def headlines() -> list[str]:
    kept = ((label, results(benchmark).get(name)) for label, benchmark, name in HEADLINES)
    rows = [(label, ratio) for label, ratio in kept if ratio is not None]
    table = [f"| {label} | {ratio['peer']} | {ratio['median']:.2f} |" for label, ratio in rows]
    return ["| question | peer | median |", "| --- | --- | --- |", *table]


def all_ratios(benchmark: str) -> list[str]:
    """Return every ratio of a benchmark, and the machines that the ratios were measured on."""
    kept = results(benchmark)
    table = [
        f"| {name.rpartition(' / ')[0] or name} | {ratio['peer']} | {ratio['median']:.2f} | {ratio['min']:.2f} - {ratio['max']:.2f}"
        f" ({ratio['pairs']} pairs) | {goal_of(ratio)} |"
        for name, ratio in kept.items()
    ]
    return [
        "| question | peer | median | lowest - highest | goal |",
        "| --- | --- | --- | --- | --- |",
        *table,
        "",
        *dict.fromkeys(where(ratio["machine"]) for ratio in kept.values()),
    ]


def goal_of(ratio: dict[str, Any]) -> str:
    """Describe the goal of a kept ratio; empty if it has none."""
    goals = ratio["goal"], ratio.get("lowest_goal")
    words = [f"{prefix}{goal:g}" for prefix, goal in zip(("", "each pair "), goals, strict=True) if goal is not None]
    return ", ".join(words)


def where(machine: dict[str, Any]) -> str:
    """Describe the machine that the results come from, in one line."""
    limits = f"rmem_max {machine['rmem_max']:,}, wmem_max {machine['wmem_max']:,}"
    kernel = machine["kernel"].partition("-")[0]
    return f"{machine['cores']} cores of {machine['cpu']}, Linux {kernel}, {limits}, Python {machine['python']}."


# -- curves ------------------------------------------------------------------------------------------------------------


def keep_curve(name: str, facts: dict[str, Any]) -> None:
    """Keep the measurements of a curve."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "growth.json").write_text(json.dumps({**results("growth"), name: facts}, indent=1) + "\n")


def write_curves() -> None:
    """Draw the picture of each kept curve, and write the pages."""
    from harness.curve import draw

    for name, curve in results("growth").items():
        draw(curve, PICTURES / picture(name))
    write_tables()


def picture(name: str) -> str:
    """Return the file name of a curve's picture."""
    return re.sub(r"\W+", "-", name) + ".svg"


def all_curves() -> list[str]:
    """Return the page content for the curves: for each, its picture, its explanation, and its numbers."""
    lines = []
    for name, curve in results("growth").items():
        heads = [curve["over"], *(f"{line} [MB]" if line == "memory" else line for line in curve["lines"])]
        columns = [curve["points"], *curve["lines"].values()]
        title = name[0].upper() + name[1:]
        lines += [
            "",
            f"## {title}",
            "",
            f"![{title}: {curve['cost']}](images/growth/{picture(name)})",
            "",
            curve["why"],
            "",
        ]
        lines += ["| " + " | ".join(heads) + " |", "|" + " ---: |" * len(heads)]
        lines += ["| " + " | ".join(_figure(value) for value in row) + " |" for row in zip(*columns, strict=True)]
    machines = {where(curve["machine"]) for curve in results("growth").values()}
    return [*lines, "", *sorted(machines)]


def _figure(value: float) -> str:
    """Format a value with three significant digits, or as a whole number."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
