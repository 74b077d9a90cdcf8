"""Plant a bug in a copy of the source and let its finder search for it.

The copy is in a temporary directory and contains what the finders need; the repository is only read. If the bug is in a compiled
module, that module is recompiled in the copy; all other compiled modules are copied.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.mutants.bug import ROOT, Bug, Simulator, Suite

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

COPIED = ("src", "tests", "docs", "tools", "fuzz", "setup.py", "pyproject.toml", "README.md", "LICENSE")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".pytest_cache", "*.egg-info", ".hypothesis")
FINDER_SECONDS = 600  # only catches hangs: the slowest finder takes 100 s on an idle machine
FAILED = 1  # pytest's exit code if a test failed; others mean that it could not run the tests


@dataclass(frozen=True)
class Found:
    """The outcome for one bug. ``by`` is the test or seed that found it, or empty if none did; ``why`` then gives the reason."""

    bug: Bug
    by: str
    why: str
    seconds: float


class CannotRun(Exception):
    """The source could not be copied, built or run without bugs, so there is no result for any bug."""


class Tree:
    """A copy of the source in its own directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._originals: dict[Path, bytes] = {}
        directory.mkdir(parents=True)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, directory / name, ignore=LEFT_OUT)
            else:
                shutil.copy2(source, directory / name)

    def plant(self, bug: Bug) -> None:
        """Write the bug into its file, and compile the file if it is a compiled one."""
        path = self.directory / bug.path
        modules = path.parent.glob(f"{path.stem}.*.so") if bug.is_compiled else ()
        self._originals = {each: each.read_bytes() for each in (path, *modules)}
        path.write_text(bug.planted(path.read_text()))
        if bug.is_compiled:
            result = self.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], seconds=600)
            if result.returncode:
                raise CannotRun(f"{bug.name} does not compile:\n{_tail(result)}")

    def restore(self) -> None:
        """Remove the bug: restore its file first and then the compiled module, so that the module is the newer of the two."""
        for path, content in self._originals.items():
            path.unlink(missing_ok=True)
            path.write_bytes(content)
        self._originals = {}

    def run(self, command: Sequence[str], *, seconds: float = FINDER_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy, with its packages first. A command that exceeds the time limit exits with 124."""
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.directory / 'src'}{os.pathsep}{self.directory}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with subprocess.Popen(
            command,
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                # Kill its children too: drivers of system tests are separate processes.
                os.killpg(process.pid, 9)
                output, _ = process.communicate()
                return subprocess.CompletedProcess(command, 124, f"{output}\nended after {seconds} s")
        return subprocess.CompletedProcess(command, process.returncode, output)

    def check(self) -> None:
        """Raise CannotRun unless programs in the copy import the copy."""
        result = self.run([sys.executable, "-c", "import mainstem; print(mainstem.__file__)"])
        if not result.stdout.strip().startswith(str(self.directory)):
            raise CannotRun(f"programs in {self.directory} import {result.stdout.strip()}")

    def find(self, bug: Bug) -> Found:
        """Plant a bug, run its finder, and remove the bug."""
        begun = time.monotonic()
        try:
            self.plant(bug)
            by, why = self._search(bug.finder)
        except CannotRun as error:
            by, why = "", str(error)
        finally:
            self.restore()
        return Found(bug, by, why, time.monotonic() - begun)

    def _search(self, finder: Simulator | Suite) -> tuple[str, str]:
        """Return what found the bug, and the reason if nothing did."""
        if isinstance(finder, Suite):
            result = self.run(pytest_command(finder.selection, "-x"))
            failed = [line.split(" ")[1] for line in result.stdout.splitlines() if line.startswith("FAILED ")]
            if result.returncode == FAILED and failed:
                return failed[0], ""
            if result.returncode < 0:
                return f"{finder}: ended by signal {-result.returncode}", ""
            return "", _tail(result)
        seeds = [sys.executable, "-m", "tests.mutants.seeds", "--seeds", str(finder.seeds)]
        result = self.run([*seeds, *finder.scenarios])
        if result.returncode == 1 and (lines := result.stdout.split()) and ":" in lines[-1]:
            return lines[-1], result.stdout.strip().splitlines()[-2]
        if result.returncode < 0:
            return f"{finder}: ended by signal {-result.returncode}", ""
        return "", f"{finder.seeds} seeds kept every promise" if result.returncode == 0 else _tail(result)

    def passes(self, bugs: Iterable[Bug]) -> None:
        """Raise CannotRun unless the tests that find these bugs pass without any bug."""
        selections = {each for bug in bugs if isinstance(bug.finder, Suite) for each in bug.finder.selection}
        if selections:
            result = self.run(pytest_command(sorted(selections)), seconds=600)
            if result.returncode:
                raise CannotRun(f"without any bug, tests fail:\n{_tail(result)}")

    def keeps(self, seeds: Iterable[str]) -> None:
        """Raise CannotRun unless these seeds, ``scenario:seed``, pass without a bug."""
        words = sorted({word for word in seeds if word.partition(":")[2].isdecimal()})
        if words:
            result = self.run([sys.executable, "-m", "tests.mutants.seeds", *words], seconds=600)
            if result.returncode:
                raise CannotRun(f"without any bug, a seed fails:\n{_tail(result)}")


def pytest_command(selection: Sequence[str], *options: str) -> list[str]:
    """Return the command that runs tests one after the other, with nothing written to the source tree."""
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *options, *selection]


def _tail(result: subprocess.CompletedProcess[str]) -> str:
    return f"exit code {result.returncode}\n" + "\n".join(result.stdout.splitlines()[-15:])
