"""A benchmark prints help when it is asked for it, and runs nothing; a word that it does not know is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = sorted(Path(__file__).resolve().parents[2].glob("benchmarks/*.py"))


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=50)


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_help_is_help(path: Path) -> None:
    done = run(path, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Options" in done.stdout
    assert f"python benchmarks/{path.name}" in done.stdout


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_an_unknown_option_is_refused(path: Path) -> None:
    done = run(path, "--quik")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "--quik is no option of the benchmarks; --help lists them\n"
