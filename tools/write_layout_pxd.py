"""Writes src/mainstem/_core/layout.pxd from layout.py, so that each number has one home. ``--check`` only compares."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

CORE = Path(__file__).parent.parent / "src/mainstem/_core"


def text() -> str:
    names = runpy.run_path(str(CORE / "layout.py"))
    lines = [f"    {name} = {value}" for name, value in names.items() if name.isupper() and isinstance(value, int)]
    return (
        "# Written from layout.py by tools/write_layout_pxd.py: edit that file, then run the tool.\ncdef enum:\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    target = CORE / "layout.pxd"
    if "--check" in sys.argv:
        sys.exit(0 if target.read_text() == text() else "layout.pxd is stale: run python tools/write_layout_pxd.py")
    target.write_text(text())
