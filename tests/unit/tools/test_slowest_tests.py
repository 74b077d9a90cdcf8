"""The table of the slowest tests in CONTRIBUTING.md."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mainstem_slowest_tests", ROOT / "tools" / "slowest_tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(path: Path, *cases: tuple[str, str, float]) -> Path:
    lines = [f'<testcase classname="{module}" name="{name}" time="{seconds}"/>' for module, name, seconds in cases]
    path.write_text(f"<testsuites><testsuite>{''.join(lines)}</testsuite></testsuites>")
    return path


def test_a_test_is_one_line_of_its_slowest_case(tool: ModuleType, tmp_path: Path) -> None:
    quick = report(
        tmp_path / "test.xml",
        ("tests.unit.test_tides", "test_ebb[a]", 1.0),
        ("tests.unit.test_tides", "test_ebb[b@c::d]", 2.5),
        ("tests.unit.test_tides", "test_flow@tests/unit/test_tides.py", 1.5),
    )
    long = report(tmp_path / "check.xml", ("tests.system.test_moon", "test_phases@spark", 9.0))
    rows = tool.slowest([quick, long])
    assert rows == [
        ("check", "tests/system/test_moon.py::test_phases", 9.0),
        ("test", "tests/unit/test_tides.py::test_ebb", 2.5),
        ("test", "tests/unit/test_tides.py::test_flow", 1.5),
    ]
    assert tool.table(rows).splitlines()[2] == "| 9.0 | `make check` | `tests/system/test_moon.py::test_phases` |"


def test_only_twenty_are_listed(tool: ModuleType, tmp_path: Path) -> None:
    cases = [("tests.unit.test_tides", f"test_{n}", float(n)) for n in range(30)]
    rows = tool.slowest([report(tmp_path / "test.xml", *cases)])
    assert [row[2] for row in rows] == [float(n) for n in range(29, 9, -1)]


def test_the_table_replaces_the_one_before_and_nothing_else(tool: ModuleType) -> None:
    text = f"before\n{tool.BEGIN}old\n{tool.END}after\n"
    once = tool.written(text, [("test", "tests/a.py::test_b", 1.0)])
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert "old" not in once
    assert tool.written(once, [("test", "tests/a.py::test_b", 1.0)]) == once
    with pytest.raises(SystemExit, match="no place"):
        tool.written("before\n", [])
