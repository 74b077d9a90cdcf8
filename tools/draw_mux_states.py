"""Draw the multiplexers' state tables into docs/protocols: ``python tools/draw_mux_states.py [--check]``."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from mainstem.bymux import state as bymux  # noqa: E402
from mainstem.jmux import state as jmux  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DIRECTORY = ROOT / "docs" / "protocols"


# A state is a box in the top row, which also lists the moves that stay in the state. An arrow is an arc; longer arcs are higher.
BOX, STEP, TOP, LINE = 170, 225, 30, 15
STYLE = """  <style>
    svg { --ink: #17354d; --soft: #5a6b78; --line: #2b6a99; --box: #eef5fb; --page: #ffffff }
    @media (prefers-color-scheme: dark) {
      svg { --ink: #e6eef5; --soft: #a9bac8; --line: #7fb8e0; --box: #1d2b38; --page: #12181f }
    }
    .page { fill: var(--page) }
    .box { fill: var(--box); stroke: var(--line); stroke-width: 1.3 }
    .t { fill: var(--ink); text-anchor: middle }
    .s { fill: var(--soft); text-anchor: middle; font-size: 11px }
    .l { fill: var(--ink); text-anchor: middle; font-size: 11px; stroke: var(--page); stroke-width: 5; paint-order: stroke }
    .a { stroke: var(--line); stroke-width: 1.6; fill: none; marker-end: url(#m) }
    .head { fill: var(--line) }
  </style>
  <defs>
    <marker id="m" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">"""
STYLE += """<path class="head" d="M0 0 8 4 0 8z"/></marker>
  </defs>"""


def moves(table: Mapping[tuple[Any, Any], Any]) -> dict[tuple[str, str], list[str]]:
    """Return the packets that cause a move between each pair of states."""
    sent_between: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (half, sent), following in table.items():
        if isinstance(following, IntEnum):
            sent_between[half.name, following.name].append(sent.name)
    return sent_between


def picture(name: str, table: Mapping[tuple[Any, Any], Any]) -> str:
    """Draw the moves of a table: a box per state, and an arrow per pair of states, labeled with the packets."""
    arrows = moves(table)
    states = sorted({half for half, _ in table})
    at = {state.name: index for index, state in enumerate(states)}
    staying = {half: sent for (half, following), sent in arrows.items() if half == following}
    leaving = {(half, following): sent for (half, following), sent in arrows.items() if half != following}
    span = max(at[following] - at[half] for half, following in leaving)
    row = TOP + span * 42
    height = 34 + LINE * max(len(sent) for sent in [*staying.values(), []])
    width = STEP * (len(states) - 1) + BOX + 20
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {row + height + 10}" font-size="13"'
        f' font-family="system-ui, sans-serif" role="img" aria-label="{name}: states and packets">'
    )
    lines = [
        head,
        STYLE,
        f'  <rect class="page" width="{width}" height="{row + height + 10}"/>',
    ]
    for state, index in at.items():
        left, middle = 10 + index * STEP, 10 + index * STEP + BOX // 2
        lines.append(f'  <rect class="box" x="{left}" y="{row}" width="{BOX}" height="{height}" rx="6"/>')
        lines.append(f'  <text class="t" x="{middle}" y="{row + 20}">{state}</text>')
        for number, sent in enumerate(staying.get(state, [])):
            lines.append(f'  <text class="s" x="{middle}" y="{row + 36 + number * LINE}">{sent}, stays</text>')
    labels = []
    for (half, following), sent in leaving.items():
        start, end = 10 + at[half] * STEP + BOX * 3 // 4, 10 + at[following] * STEP + BOX // 4
        rise = 42 * (at[following] - at[half])
        lines.append(
            f'  <path class="a" d="M{start} {row}C{start} {row - rise - 8} {end} {row - rise - 8} {end} {row - 2}"/>'
        )
        position = f'x="{(start + end) // 2}" y="{row - rise * 3 // 4 - 12}"'
        labels.append(f'  <text class="l" {position}>{", ".join(sent)}</text>')
    lines += labels
    return "\n".join([*lines, "</svg>"]) + "\n"


def by_pair(rows: Mapping[Any, tuple[Any, ...]], halves: Iterable[Any]) -> dict[tuple[Any, Any], Any]:
    """Return a table of rows by pairs of half and packet."""
    return {(half, sent): row[half] for half in halves for sent, row in rows.items()}


TABLES = {
    "bymux-half": by_pair(bymux.ROWS, bymux.HalfState),
    "jmux-client": by_pair(jmux.CLIENT_ROWS, jmux.HalfState),
    "jmux-server": by_pair(jmux.SERVER_ROWS, jmux.HalfState),
}


def pictures() -> dict[Path, str]:
    """Return every drawing, by file."""
    return {DIRECTORY / f"{name}.svg": picture(name, table) for name, table in TABLES.items()}


def grid(table: Mapping[tuple[Any, Any], Any]) -> str:
    """Return a table of every pair: the next state, or the rule that forbids it."""
    halves = sorted({half for half, _ in table})
    inputs = sorted({sent for _, sent in table})
    lines = ["| | " + " | ".join(half.name for half in halves) + " |", "|---" * (len(halves) + 1) + "|"]
    for sent in inputs:
        cells = []
        for half in halves:
            following = table.get((half, sent))
            cells.append(following.name if isinstance(following, IntEnum) else f"*{following}*" if following else "-")
        lines.append(f"| `{sent.name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pairs(allowed: frozenset[tuple[Any, Any]]) -> str:
    """Return the pairs of half-states in which an id may be opened."""
    lines = ["| client | server |", "|---|---|"]
    return "\n".join(lines + [f"| {a.name} | {b.name} |" for a, b in sorted(allowed)])


def shown(name: str) -> str:
    """Return the line of the page that shows a drawing."""
    return f"![{name}: states and packets]({name}.svg)"


def drawings() -> dict[str, str]:
    """Return every drawing, by the name of its marker."""
    return {name: shown(name) + "\n\n" + grid(table) for name, table in TABLES.items()} | {
        "bymux-responses": grid(by_pair(bymux.RESPONSE_ROWS, bymux.HalfState)),
        "jmux-open": pairs(jmux.MAY_OPEN),
    }


def pages() -> dict[Path, str]:
    """Return the pages, with every drawing inserted."""
    texts: dict[Path, str] = {}
    for name, drawing in drawings().items():
        page = DIRECTORY / f"{name.partition('-')[0]}.md"
        pattern = re.compile(rf"(<!-- draw {name} -->\n).*?(\n<!-- end {name} -->)", re.DOTALL)
        text = texts.get(page) or page.read_text()
        texts[page], count = pattern.subn(
            lambda match, drawing=drawing: match[1] + "\n" + drawing + "\n" + match[2], text
        )
        if count != 1:
            raise SystemExit(f"{page.name} has {count} markers for the drawing {name}")
    return texts


def main() -> int:
    files = pages() | pictures()
    if "--check" in sys.argv:
        return any(path.read_text() != text for path, text in files.items())
    for path, text in files.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
