"""The progress output of `make build`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mainstem_setup", ROOT / "tools" / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "Downloading pyarrow-26.0.1-cp311-cp311-manylinux_2_28_x86_64.whl (47.5 MB)",
            "fetching pyarrow 26.0.1 (47.5 MB)",
        ),
        ("Downloading pyspark-4.3.0.tar.gz (455.2 MB)", "fetching pyspark 4.3.0 (455.2 MB)"),
        ("Downloading https://host/simple/my_pkg-1.0rc1-py3-none-any.whl (3 kB)", "fetching my_pkg 1.0rc1 (3 kB)"),
        ("Using cached ruff-0.14.2-py3-none-manylinux_2_17_x86_64.whl (13 MB)", "taking ruff 0.14.2 from the cache"),
        ("Downloading pyarrow-26.0.1-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (3.2 kB)", ""),
        ("Building wheel for pyspark (pyproject.toml): started", "building pyspark"),
        ("Building wheel for pyspark (pyproject.toml): finished with status 'done'", ""),
        ("Installing collected packages: py4j, ruff, pyarrow", "installing 3 packages"),
        ("Collecting pyarrow>=18 (from mainstem==0.9.0)", ""),
        ("", ""),
    ],
)
def test_each_package_is_named_as_it_is_fetched(setup: ModuleType, line: str, text: str) -> None:
    assert setup.progress(line) == text


def test_all_that_pip_printed_is_shown_where_it_fails(
    setup: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(setup.subprocess.CalledProcessError):
        setup.pip(Path(sys.executable), "--no-index", str(tmp_path / "no-such-directory"))
    assert "no-such-directory" in capsys.readouterr().err


def build(project: Path) -> list[str]:
    """Return the progress output of a build that starts processes as Python 3.14 does."""
    start = project / "start"
    start.mkdir(exist_ok=True)
    (start / "sitecustomize.py").write_text("import multiprocessing\nmultiprocessing.set_start_method('forkserver')\n")
    environment = {name: value for name, value in os.environ.items() if name != "MAINSTEM_COMPILE"}
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=project,
        env=environment | {"PYTHONPATH": str(start)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("mainstem: ")]


@pytest.mark.long
def test_a_build_names_each_module_and_builds_only_what_changed(tmp_path: Path) -> None:
    core = tmp_path / "src" / "mainstem" / "_core"
    core.mkdir(parents=True)
    shutil.copy(ROOT / "setup.py", tmp_path)
    shutil.copytree(ROOT / "tools" / "backend", tmp_path / "tools" / "backend")
    (tmp_path / "README.md").write_text("# A project\n")
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'mainstem'\nversion = '1'\ndynamic = ['readme']\n"
        "[tool.setuptools.packages.find]\nwhere = ['src']\n"
    )
    for module in (core.parent / "__init__.py", core / "__init__.py"):
        module.write_text("")
    tides = "import cython\n\n\ndef high() -> cython.{}:\n    return 7\n"
    (core / "tides.py").write_text(tides.format("int"))
    (core / "ebb.py").write_text(
        "from cython.cimports.mainstem._core.tides import high\n\n\ndef low() -> int:\n    return high() - 4\n"
    )
    (core / "moon.py").write_text("PHASES = 4\n")
    lines = build(tmp_path)
    assert [line.rpartition(":")[0] for line in lines] == [f"mainstem: compiling {n} of 3" for n in (1, 2, 3)]
    assert {line.rpartition(" ")[2] for line in lines} == {
        f"mainstem._core.{name}" for name in ("tides", "ebb", "moon")
    }
    assert len(list(core.glob("*.so"))) == 3
    assert build(tmp_path) == []
    (core / "tides.pxd").unlink()
    (core / "tides.pyi").unlink()
    assert build(tmp_path) == []
    (core / "tides.py").write_text(tides.format("longlong"))
    assert sorted(line.rpartition(" ")[2] for line in build(tmp_path)) == ["mainstem._core.ebb", "mainstem._core.tides"]
