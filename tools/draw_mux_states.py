"""Draws the multiplexers' tables into docs/mux.md, between its markers: ``python tools/draw_mux_states.py [--check]``."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from mainstem.mux.bymux import state as bymux  # noqa: E402
from mainstem.mux.jmux import state as jmux  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = ROOT / "docs" / "mux.md"


def diagram(table: Mapping[tuple[Any, Any], Any], start: IntEnum) -> str:
    """The moves of a table as a state diagram: one arrow for each pair of states, labelled with the packets sent."""
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (half, sent), following in table.items():
        if isinstance(following, IntEnum):
            arrows[half.name, following.name].append(sent.name)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start.name}"]
    lines += [f"    {half} --> {following}: {', '.join(sent)}" for (half, following), sent in arrows.items()]
    return "\n".join([*lines, "```"])


def grid(table: Mapping[tuple[Any, Any], Any]) -> str:
    """Every pair of a table: the next state, or the rule that forbids it."""
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
    """The pairs of halves in which an id may be opened."""
    lines = ["| client | server |", "|---|---|"]
    return "\n".join(lines + [f"| {a.name} | {b.name} |" for a, b in sorted(allowed)])


def drawings() -> dict[str, str]:
    """Every drawing by the name of its marker."""
    return {
        "bymux-half": diagram(bymux.SENDS, bymux.Half.OPEN) + "\n\n" + grid(bymux.SENDS),
        "bymux-responses": grid(bymux.RESPONSES),
        "jmux-client": diagram(jmux.CLIENT_SENDS, jmux.Half.NONE) + "\n\n" + grid(jmux.CLIENT_SENDS),
        "jmux-server": diagram(jmux.SERVER_SENDS, jmux.Half.NONE) + "\n\n" + grid(jmux.SERVER_SENDS),
        "jmux-open": pairs(jmux.MAY_OPEN),
    }


def drawn(text: str) -> str:
    """The page with every drawing in its place."""
    for name, drawing in drawings().items():
        pattern = re.compile(rf"(<!-- draw {name} -->\n).*?(\n<!-- end {name} -->)", re.DOTALL)
        text, count = pattern.subn(lambda match, drawing=drawing: match[1] + "\n" + drawing + "\n" + match[2], text)
        if count != 1:
            raise SystemExit(f"{PAGE.name} has {count} places for the drawing {name}")
    return text


def main() -> int:
    before = PAGE.read_text()
    after = drawn(before)
    if "--check" in sys.argv:
        return before != after
    PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
