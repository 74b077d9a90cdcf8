"""A benchmark prints its help on request without running anything, and refuses unknown arguments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.case_selection import long_after
from tests.support.waiting import STALL_S

BENCHMARKS = sorted(Path(__file__).resolve().parents[2].glob("benchmarks/*.py"))


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=STALL_S)


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_the_help_of_a_benchmark_names_its_options(path: Path) -> None:
    done = run(path, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--pairs" in done.stdout
    assert f"python benchmarks/{path.name}" in done.stdout


@pytest.mark.parametrize("path", long_after(3, BENCHMARKS), ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("words", "sentence"),
    [(["--quik"], "unrecognized arguments: --quik"), (["--pairs", "0"], "'0' is not a number of pairs")],
)
def test_a_word_that_is_not_known_is_refused(path: Path, words: list[str], sentence: str) -> None:
    done = run(path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_part_is_rejected_with_the_known_ones() -> None:
    done = run(BENCHMARKS[0].parent / "remote_recordings.py", "--only", "serve,sheep")
    assert done.returncode == 2
    assert "no part has 'sheep' in its name; there are serve; s3; shipping; planning; live" in done.stderr


def test_a_name_that_has_a_comma_is_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS[0].parent))
    monkeypatch.setattr(sys, "argv", ["ipc.py", "--only", "32 B, batches"])
    from harness.options import parse_options

    try:
        assert parse_options("", ["32 B, a call a message", "32 B, batches"]).parts == ("32 B, batches",)
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "harness"]:
            del sys.modules[name]
