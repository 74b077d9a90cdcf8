"""Writes the slowest tests of the last runs into CONTRIBUTING.md: ``slowest_tests.py build/tests/test.xml [...]``.

The files are those that ``make test`` and ``make check`` leave. A test that is parametrized is one line, of its slowest case. With
``--json`` the table is printed and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COUNT = 20
BEGIN, END = "<!-- slowest: begin -->\n", "<!-- slowest: end -->\n"


def slowest(reports: list[Path]) -> list[tuple[str, str, float]]:
    """The report, the test and the seconds of the slowest, slowest first."""
    longest: dict[tuple[str, str], float] = {}
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            name = re.sub(r"\[.*", "", case.get("name", ""), flags=re.DOTALL).partition("@")[0]
            key = report.stem, f"{case.get('classname', '').replace('.', '/')}.py::{name}"
            longest[key] = max(longest.get(key, 0.0), float(case.get("time", "0")))
    rows = [(report, test, seconds) for (report, test), seconds in longest.items()]
    return sorted(rows, key=lambda row: (-row[2], row[1]))[:COUNT]


def table(rows: list[tuple[str, str, float]]) -> str:
    """The rows in Markdown."""
    lines = ["| seconds | in | test |", "| ---: | --- | --- |"]
    lines += [f"| {seconds:.1f} | `make {report}` | `{test}` |" for report, test, seconds in rows]
    return "\n".join(lines) + "\n"


def written(text: str, rows: list[tuple[str, str, float]]) -> str:
    """The text with the table between its two marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"there is no place for the table: {BEGIN.strip()} and {END.strip()}")
    return head + begin + table(rows) + end + tail


def main() -> None:
    parser = argparse.ArgumentParser(description="write the slowest tests into CONTRIBUTING.md")
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    reports = [report for report in arguments.reports if report.exists()]
    if not reports:
        sys.exit("no report is there: run make test, and make check, first")
    rows = slowest(reports)
    if arguments.json:
        print(
            json.dumps(
                [{"report": report, "test": test, "seconds": seconds} for report, test, seconds in rows], indent=1
            )
        )
        return
    path = ROOT / "CONTRIBUTING.md"
    path.write_text(written(path.read_text(), rows))


if __name__ == "__main__":
    main()
