"""The tables of measurements match the benchmarks' stored results; no figure is edited by hand."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_pages_have_the_kept_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from harness import results

    try:
        pages = results.pages()
        assert {"README.md", "performance.md", "growth.md"} <= {path.name for path in pages}
        for path, text in pages.items():
            assert path.read_text() == text, f"{path.name} differs: python benchmarks/ipc.py --write writes it"
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "harness"]:
            del sys.modules[name]
