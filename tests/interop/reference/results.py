"""Results of the reference's test classes: ``results.toml``, and the table of it in the documentation.

``python -m tests.interop.reference.results`` writes the table.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "conformance.md"
HEADING = "## The reference's own tests\n"
TABLE = "| class | archive | tests | passed | the others |\n| --- | --- | --- | --- | --- |\n"


@dataclass(frozen=True)
class ClassResult:
    """The recorded result of a class: ``others`` has a reason for each method with tests that do not pass."""

    name: str
    tests: int
    passed: int
    archive: str
    others: dict[str, str]

    @property
    def row(self) -> str:
        short = self.name.removeprefix("io.aeron.").replace("$", ".")
        reasons: dict[str, list[str]] = {}
        for method, reason in self.others.items():
            reasons.setdefault(reason, []).append(f"`{method}`")
        others = "; ".join(f"{', '.join(methods)}: {reason}" for reason, methods in reasons.items())
        return f"| `{short}` | {self.archive} | {self.tests} | {self.passed} | {others} |\n"


def results() -> list[ClassResult]:
    """Return the results in the order of the file."""
    stored = tomllib.loads((Path(__file__).parent / "results.toml").read_text())["class"]
    return [
        ClassResult(each["name"], each["tests"], each["passed"], each.get("archive", ""), each.get("others", {}))
        for each in stored
    ]


def page(text: str) -> str:
    """Return the page with the table replaced."""
    before, heading, section = text.partition(HEADING)
    assert heading, f"{PAGE.name} has no heading {HEADING.strip()!r}"
    prose, table, rest = section.partition(TABLE)
    assert table, f"{PAGE.name} has no table below {HEADING.strip()!r}"
    lines = rest.splitlines(keepends=True)
    while lines and lines[0].startswith("|"):
        del lines[0]
    return "".join([before, heading, prose, table, *(each.row for each in results()), *lines])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
