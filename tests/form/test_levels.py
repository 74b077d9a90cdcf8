"""The structure of packages has no large import cycle, and the tool that measures it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.form

ROOT = Path(__file__).resolve().parents[2]


def levels(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "tools/import_levels.py", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("package", "limit"),
    [
        ("mainstem", 3),
        ("mainstem.aeron", 1),
        ("mainstem.aqueduct", 1),
        ("mainstem.archive", 1),
        ("mainstem.codecs", 1),
        ("mainstem.mux", 1),
        ("mainstem.recording", 1),
        ("mainstem.sim", 1),
        ("mainstem.spark", 1),
    ],
)
def test_no_more_modules_of_a_package_than_these_import_each_other(package: str, limit: int) -> None:
    result = levels(package, "--limit-cycle", str(limit))
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_cycle_counts_where_only_type_checkers_see_it(tmp_path: Path) -> None:
    package = tmp_path / "mainstem"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        text = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from mainstem.{other} import x\n"
        (package / f"{name}.py").write_text(text)
    (package / "top.py").write_text("from . import a\n")
    result = levels("mainstem", "--src", str(tmp_path), "--limit-cycle", "2")
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "mainstem: 4 modules on 2 levels with 4 imports (4 lines) and cycles of 3 files",
        "  cycle of 3: a, b, c",
    ]
    assert levels("mainstem", "--src", str(tmp_path), "--limit-cycle", "2", "--run-time").returncode == 0
