"""What ``make coverage`` runs: the tests of the protocol packages under coverage.py, with branches, and one table of the result.

``python tools/coverage_table.py [--report] [--workers 2] [--uncompiled-seconds 900]``

Programs that tests start count too (``patch = subprocess``), but for one that is killed by SIGKILL: it leaves nothing. A test that
fails fails the run, whatever is covered.

Of ``_core`` the uncompiled form is measured: the same source as plain Python. Its unit tests run it beside the compiled form
(tests/unit/_core/uncompiled.py), and a copy of the tree without compiled modules, below ``build/coverage``, runs more tests of
it; a test that meets a refusal there, of sockets or of shared memory, is left out (tests/support/uncompiled_run.py). A test that
fails in the copy is printed and fails nothing: what it tests is the compiled form's, where it must pass. What stands below ``if
cython.compiled:`` is no part of that form, nor is what ``UNMEASURED`` lists; the same tests run it compiled, under the sanitizers
too. Blocks below ``if TYPE_CHECKING:`` and ``raise NotImplementedError`` do nothing and count nowhere.

A share is coverage.py's own: statements and branches that were taken, of all statements and branches. ``--report`` prints the table
of the last run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "coverage"
BOUND = 95.0  # percent, of each package; a file below it is listed with what it misses
PACKAGES = ("_core", "aeron", "mux", "aqueduct", "duologue")
# Modules of which nothing runs uncompiled, and why.
UNMEASURED = {
    "_core/driver/udp.py": "sockets have no uncompiled form, and its import fails there; tests/unit/_core/test_udp.py runs it",
}
SYSTEM = (
    "test_addressing_modes.py",
    "test_bymux*.py",
    "test_channel_outcomes.py",
    "test_driver_*.py",
    "test_duologue*.py",
    "test_event_log.py",
    "test_fork.py",
    "test_hostile_datagrams.py",
    "test_incomplete_group.py",
    "test_ipc_two_publishers.py",
    "test_jmux.py",
    "test_mux_*.py",
    "test_namespaces.py",
    "test_padding_past_limit.py",
    "test_requests_over_loss.py",
    "test_timestamps.py",
    "test_tunnel.py",
    "test_unclosed.py",
)
# With capture, because it reads what _core/capture decodes.
UNIT = ("_core", "aeron", "aqueduct", "capture", "duologue", "mux", "sim")
COPIED = ("src", "tests", "docs", "tools", "pyproject.toml")
# What runs uncompiled too: the decoders, and drivers and clients whose files and network are in memory.
UNCOMPILED = (
    "tests/unit/_core",
    "tests/unit/capture",
    "tests/unit/aeron/driver",
    "tests/unit/duologue/test_two_ends.py",
    "--ignore=tests/unit/_core/test_udp.py",
)
# sigterm: a program that is ended writes what it measured first.
SETTINGS = """\
[run]
branch = True
source = {source}
omit = {omitted}
data_file = {data}
parallel = True
sigterm = True
patch = subprocess
disable_warnings = no-data-collected

[paths]
source =
    {source}
    {copy}

[report]
exclude_also =
    ^\\s*if TYPE_CHECKING:
    ^\\s*if cython\\.compiled:
    ^\\s*raise NotImplementedError
    ^\\s*\\.\\.\\.$
partial_also =
    ^\\s*if not cython\\.compiled:
"""


@dataclass
class Measured:
    """Statements and branches of a file or a package, and how many of them were missed."""

    name: str
    statements: int = 0
    missed_statements: int = 0
    branches: int = 0
    missed_branches: int = 0
    missing: str = ""

    @property
    def share(self) -> float:
        """Percent of statements and branches together that were taken; 100 where there are none."""
        total = self.statements + self.branches
        return 100.0 * (total - self.missed_statements - self.missed_branches) / total if total else 100.0

    def add(self, other: Measured) -> None:
        self.statements += other.statements
        self.missed_statements += other.missed_statements
        self.branches += other.branches
        self.missed_branches += other.missed_branches


def tests() -> list[str]:
    """The files and folders of tests that belong to the packages."""
    system = sorted(path for name in SYSTEM for path in (ROOT / "tests" / "system").glob(name))
    paths = [ROOT / "tests" / "system" / "aqueduct", *system, ROOT / "tests" / "simulation"]
    return [str(path.relative_to(ROOT)) for path in paths] + [f"tests/unit/{name}" for name in UNIT]


def ranges(numbers: list[int]) -> list[str]:
    """Sorted line numbers as ranges: ``3-5``, ``9``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]


def read(report: dict[str, Any]) -> list[Measured]:
    """The files of the packages in a JSON report of coverage.py, named from ``src/mainstem`` on."""
    files = []
    for path, entry in report["files"].items():
        name = path.rpartition("src/mainstem/")[2]
        if name.partition("/")[0] not in PACKAGES or name in UNMEASURED:
            continue
        summary = entry["summary"]
        lines = set(entry["missing_lines"])
        jumps = [
            f"{origin}->{target if target > 0 else 'exit'}"
            for origin, target in entry["missing_branches"]
            if origin not in lines and target not in lines
        ]
        files.append(
            Measured(
                name,
                summary["num_statements"],
                summary["missing_lines"],
                summary["num_branches"],
                summary["missing_branches"],
                ", ".join(ranges(entry["missing_lines"]) + jumps),
            )
        )
    return files


def packages(files: list[Measured]) -> list[Measured]:
    """The sum of each package's files; a package without any is refused, because nothing was measured then."""
    sums = {name: Measured(name) for name in PACKAGES}
    for file in files:
        sums[file.name.partition("/")[0]].add(file)
    if empty := [name for name, total in sums.items() if not total.statements]:
        raise SystemExit(f"coverage: nothing was measured of {', '.join(empty)}")
    return list(sums.values())


def table(sums: list[Measured], files: list[Measured]) -> str:
    """The table, and below it the files under the bound, the least covered first."""
    lines = [
        "| package | statements | missed | branches | missed | covered |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| `{row.name}` | {row.statements:,} | {row.missed_statements:,} | {row.branches:,} "
        f"| {row.missed_branches:,} | {row.share:.1f} % |"
        for row in sums
    ]
    below = sorted((file for file in files if file.share < BOUND), key=lambda file: file.share)
    if below:
        lines += ["", f"files below {BOUND:.0f} %, and the lines and jumps that no test takes:"]
        lines += [f"  {file.share:5.1f} %  {file.name}: {file.missing}" for file in below]
    lines += ["", "not measured:"]
    lines += [f"  {name}: {reason}" for name, reason in UNMEASURED.items()]
    return "\n".join(lines)


def copied() -> Path:
    """A fresh copy of the tree without compiled modules."""
    tree = HOME / "uncompiled"
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__", "vectors"))
        else:
            shutil.copy2(source, tree / name)
    if (ROOT / "tests" / "vectors").exists():
        (tree / "tests" / "vectors").symlink_to(ROOT / "tests" / "vectors")
    return tree


def measure(tree: Path, arguments: list[str], *, source: Path, seconds: float | None = None) -> int:
    """Runs pytest in a tree under coverage.py; returns its exit code, -1 where it was ended because its time was over."""
    settings = HOME / f"{tree.name}.ini"
    omitted = "".join(f"\n    {source / name}" for name in UNMEASURED)
    text = SETTINGS.format(
        source=ROOT / "src" / "mainstem",
        copy=HOME / "uncompiled" / "src" / "mainstem",
        omitted=omitted,
        data=HOME / "data",
    )
    settings.write_text(text.replace(f"source = {ROOT / 'src' / 'mainstem'}", f"source = {source}"))
    environment = os.environ | {
        "COVERAGE_RCFILE": str(settings),
        "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}",
    }
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", *arguments]
    process = subprocess.Popen([sys.executable, "-m", "coverage", "run", *pytest], cwd=tree, env=environment)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
        return -1


def run(workers: int, uncompiled_seconds: float) -> int:
    """Runs the tests under coverage.py and writes one JSON report; returns the exit code of the run of the compiled tree."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    spread = ["-n", str(workers), "--dist", "loadscope", "--no-loadscope-reorder"] if workers > 1 else []
    print("== the packages, with their compiled part", flush=True)
    code = measure(ROOT, [*spread, *tests()], source=ROOT / "src" / "mainstem")
    print("== the compiled part as plain Python", flush=True)
    tree = copied()
    plugin = ["-p", "tests.support.uncompiled_run"]
    second = measure(
        tree, [*plugin, *spread, *UNCOMPILED], source=tree / "src" / "mainstem", seconds=uncompiled_seconds
    )
    if second:
        print(f"coverage: the uncompiled tree: {'its time was over' if second == -1 else f'exit code {second}'}")
    environment = os.environ | {"COVERAGE_RCFILE": str(HOME / f"{ROOT.name}.ini")}
    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "combine", "--quiet"], cwd=ROOT, env=environment, check=True)
    report = [*coverage, "json", "--quiet", "-o", str(HOME / "report.json")]
    subprocess.run(report, cwd=ROOT, env=environment, check=True)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description="branch coverage of the protocol packages")
    parser.add_argument("--report", action="store_true", help="the table of the last run, without a new one")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--uncompiled-seconds", type=float, default=900.0, help="how long the uncompiled tree may take")
    arguments = parser.parse_args()
    path = HOME / "report.json"
    code = 0 if arguments.report else run(arguments.workers, arguments.uncompiled_seconds)
    if not path.exists():
        raise SystemExit("coverage: there is no run to report; leave --report out")
    files = read(json.loads(path.read_text()))
    sums = packages(files)
    print(table(sums, files))
    if code:
        print(f"coverage: tests failed: exit code {code}")
    if low := [row for row in sums if row.share < BOUND]:
        print(f"coverage: below {BOUND:.0f} %: {', '.join(f'{row.name} ({row.share:.1f} %)' for row in low)}")
    return 1 if code or low else 0


if __name__ == "__main__":
    sys.exit(main())
