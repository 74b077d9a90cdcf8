"""The table of branch coverage: what counts, what is listed, and what fails."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    name = "mainstem_coverage_table"
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "coverage_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def entry(
    statements: int, missing: list[int], branches: int = 0, jumps: tuple[tuple[int, int], ...] = ()
) -> dict[str, Any]:
    return {
        "summary": {
            "num_statements": statements,
            "missing_lines": len(missing),
            "num_branches": branches,
            "missing_branches": len(jumps),
        },
        "missing_lines": missing,
        "missing_branches": [list(jump) for jump in jumps],
    }


def report(tool: ModuleType, **special: dict[str, Any]) -> dict[str, Any]:
    files = {f"/tree/src/mainstem/{name}/a.py": entry(100, []) for name in tool.PACKAGES}
    return {"files": files | {f"src/mainstem/{name}": value for name, value in special.items()}}


def test_statements_and_branches_of_a_package_count_together(tool: ModuleType) -> None:
    files = tool.read(report(tool, **{"mux/b.py": entry(60, [3, 4, 5, 9], 40, ((7, 8), (12, -1), (3, 4)))}))
    (mux,) = [row for row in tool.packages(files) if row.name == "mux"]
    assert (mux.statements, mux.missed_statements, mux.branches, mux.missed_branches) == (160, 4, 40, 3)
    assert mux.share == pytest.approx(100 * 193 / 200)
    text = tool.table([mux], files)
    assert "| `mux` | 160 | 4 | 40 | 3 | 96.5 % |" in text
    # A jump from a line that was never reached says nothing new.
    assert "93.0 %  mux/b.py: 3-5, 9, 7->8, 12->exit" in text
    assert "mux/a.py" not in text


def test_other_packages_and_what_cannot_be_measured_do_not_count(tool: ModuleType) -> None:
    files = tool.read(
        report(tool, **{"_core/driver/udp.py": entry(100, list(range(1, 101))), "cli/a.py": entry(9, [1])})
    )
    assert {file.name for file in files} == {f"{name}/a.py" for name in tool.PACKAGES}
    assert "_core/driver/udp.py: sockets" in tool.table([], files)


def test_a_package_of_which_nothing_was_measured_is_refused(tool: ModuleType) -> None:
    with pytest.raises(SystemExit, match="nothing was measured of mux"):
        tool.packages([file for file in tool.read(report(tool)) if not file.name.startswith("mux/")])


@pytest.mark.parametrize(("missed", "code"), [(5, 0), (6, 1)])
def test_a_package_below_its_bound_fails_the_run(
    tool: ModuleType,
    missed: int,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured = report(tool)
    measured["files"]["/tree/src/mainstem/aeron/a.py"] = entry(100, list(range(1, missed + 1)))
    (tmp_path / "report.json").write_text(json.dumps(measured))
    monkeypatch.setattr(tool, "HOME", tmp_path)
    monkeypatch.setattr(sys, "argv", ["coverage_table.py", "--report"])
    assert tool.main() == code
    assert ("below 95 %: aeron (94.0 %)" in capsys.readouterr().out) == bool(code)


def test_without_a_run_there_is_no_report(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "HOME", tmp_path)
    monkeypatch.setattr(sys, "argv", ["coverage_table.py", "--report"])
    with pytest.raises(SystemExit, match="no run to report"):
        tool.main()


def test_the_tests_that_are_run_exist(tool: ModuleType) -> None:
    paths = tool.tests()
    assert "tests/unit/_core" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    for pattern in tool.SYSTEM:
        assert list((ROOT / "tests" / "system").glob(pattern)), pattern
    assert [path for path in tool.UNCOMPILED if not path.startswith("--") and not (ROOT / path).exists()] == []


def test_each_module_that_is_not_measured_is_there_and_has_a_reason(tool: ModuleType) -> None:
    for name, reason in tool.UNMEASURED.items():
        assert (ROOT / "src" / "mainstem" / name).is_file()
        assert reason
