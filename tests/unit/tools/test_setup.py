"""`make build`: its progress output, and packages that have no wheel for this Python."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
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


def test_all_that_pip_printed_is_shown_where_it_fails(setup: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(setup.PipError) as caught:
        setup.pip(Path(sys.executable), "--no-index", str(tmp_path / "no-such-directory"))
    output, _, step = setup.explain(caught.value).rpartition("\n")
    assert "no-such-directory" in output
    assert step.startswith("mainstem: this step failed: ")


def add_wheel(index: Path, name: str, *requires: str, tag: str = "py3-none-any") -> None:
    """Write a wheel of a package without files."""
    info = f"{name}-1.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: 1", *(f"Requires-Dist: {each}" for each in requires)]
    files = {
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    with zipfile.ZipFile(index / f"{name}-1-{tag}.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD")))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only place where pip looks for packages, which it installs beside it."""
    directory = tmp_path / "index"
    directory.mkdir()
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(directory), "TARGET": str(tmp_path / "installed")}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return directory


OF_ANOTHER_PYTHON = "cp27-cp27m-manylinux1_x86_64"


@pytest.mark.long
def test_what_has_no_wheel_is_left_out_with_a_sentence(
    setup: ModuleType, index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_wheel(index, "ebb", "moon")
    add_wheel(index, "moon", tag=OF_ANOTHER_PYTHON)
    add_wheel(index, "tides")
    add_wheel(index, "waves", tag=OF_ANOTHER_PYTHON)
    wanted = {"tides": "", "waves[foam]>=0.5": "no foam", "ebb; python_version > '3'": "it stays"}
    left_out = setup.install_wheels(Path(sys.executable), wanted)
    why = f"there is no wheel of it, or of what it requires, for Python 3.{sys.version_info.minor} on this machine"
    assert left_out == [
        f"left out waves[foam]>=0.5: {why}; no foam",
        f"left out ebb; python_version > '3': {why}; it stays",
    ]
    assert [path.name for path in (index.parent / "installed").iterdir()] == ["tides-1.dist-info"]
    assert "trying them one at a time" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=rf"waves cannot be installed: {why}; use another Python"):
        setup.install_wheels(Path(sys.executable), {"tides": "no tides", "waves": ""})


UNMET = "ERROR: No matching distribution found for waves>=0.5\n"


@pytest.mark.parametrize(
    ("output", "lacks", "named"),
    [
        (UNMET, True, ["waves>=0.5"]),
        ("ERROR: No matching distribution found for Waves[foam]<3,>=2\n", True, ["waves>=0.5"]),
        ("ERROR: No matching distribution found for moon==1 (from ebb)\n", True, []),
        ("ERROR: ResolutionImpossible: for help visit https://host/\n", True, []),
        ("WARNING: Retrying (Retry(total=0, ...)) after connection broken by ...\n" + UNMET, False, []),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", False, []),
        ("error: command 'gcc' failed\n", False, []),
    ],
)
def test_only_an_index_that_was_read_shows_that_there_is_no_wheel(
    setup: ModuleType, output: str, lacks: bool, named: list[str]
) -> None:
    import dependencies

    assert dependencies.lacks_wheel(output) == lacks
    assert dependencies.unmet(output, ["tides", "waves>=0.5", "ebb"]) == named


def test_a_sentence_says_what_is_missing_without_each_package_and_what_nothing_runs_without(setup: ModuleType) -> None:
    import dependencies

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = dependencies.requirements(project)
    needed = {dependencies.name_of(each) for each, missing in found.items() if not missing}
    assert needed == {
        "cython", "hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "setuptools",
    }  # fmt: skip
    assert {dependencies.name_of(each) for each in found} >= dependencies.MISSING.keys()
    [pyarrow] = [missing for each, missing in found.items() if dependencies.name_of(each) == "pyarrow"]
    assert pyarrow == "the extra tables (Arrow, Polars and DuckDB) does not work"


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
    tides = (
        "import cython\nfrom cython.cimports.libc.stdint import int64_t\n\n\ndef high() -> cython.{}:\n    return 7\n"
    )
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
    # Neither Cython's own files nor another Python, whose modules are missing, make what is translated outdated.
    translated, modules = list((tmp_path / "build").rglob("*.c")), list(tmp_path.rglob("*.so"))
    for time, paths in ((1e9, [*core.glob("*.p*")]), (1.1e9, [*translated, *modules])):
        for path in paths:
            os.utime(path, (time, time))
    assert build(tmp_path) == []
    for path in modules:
        path.unlink()
    assert len(build(tmp_path)) == 3
    assert {path.stat().st_mtime for path in translated} == {1.1e9}
    text = translated[0].read_text()
    translated[0].write_text(text.replace("Generated by Cython ", "Generated by Cython 0.", 1))
    assert [line.rpartition(".")[2] for line in build(tmp_path)] == [translated[0].stem]
    (core / "tides.pxd").unlink()
    (core / "tides.pyi").unlink()
    assert build(tmp_path) == []
    (core / "tides.py").write_text(tides.format("longlong"))
    assert sorted(line.rpartition(" ")[2] for line in build(tmp_path)) == ["mainstem._core.ebb", "mainstem._core.tides"]
