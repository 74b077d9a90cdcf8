"""Writes src/mainstem/_core/layout.pxd from layout.py (and so for each of NAMES), so that each number has one home.
``--check`` only compares."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

CORE = Path(__file__).parent.parent / "src/mainstem/_core"
NAMES = ("layout", "capture/layout")


def text(name: str) -> str:
    names = runpy.run_path(str(CORE / f"{name}.py"))
    lines = [f"    {name} = {value}" for name, value in names.items() if name.isupper() and isinstance(value, int)]
    return (
        "# Written from layout.py by tools/write_layout_pxd.py: edit that file, then run the tool.\ncdef enum:\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    for name in NAMES:
        target = CORE / f"{name}.pxd"
        if "--check" not in sys.argv:
            target.write_text(text(name))
        elif target.read_text() != text(name):
            sys.exit(f"{name}.pxd is stale: run python tools/write_layout_pxd.py")
