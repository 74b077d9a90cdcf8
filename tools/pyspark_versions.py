"""Runs the tests of Spark under each version of PySpark that is supported: ``python tools/pyspark_versions.py [VERSION ...]``.

A virtual environment for each version, below ``.pyspark``, holds PySpark, Py4J and what Spark Connect needs; all else comes from
the environment that runs this. PySpark is built from its source on the first run: some 450 MB are loaded for each version. A
version takes five to fifteen minutes; neither its installation nor its tests may take longer than ``--minutes``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import venv
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The newest of each minor version. The range of the extra `spark` in pyproject.toml is of the same.
VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
CONNECT = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71", "zstandard>=0.25")
TESTS = (
    "tests/unit/spark/test_sql_options.py",
    "tests/spark/test_sql.py",
    "tests/spark/test_recording_source.py",
    "tests/spark/test_capture_source.py",
    "tests/spark/test_channels.py",
    "tests/spark/test_filtered_read.py",
    "tests/spark/test_connect.py",
)


def environment(folder: Path, version: str, seconds: float) -> Path:
    """The Python of an environment with that version, made where it is not there.

    Args:
        folder: Where the environments are.
        version: Of PySpark.
        seconds: How long a step of the installation may take.

    Returns:
        The path of the interpreter.

    Raises:
        subprocess.SubprocessError: The installation failed, or took longer.

    Example:
        >>> environment(Path(".pyspark"), "4.3.0", 1800)
    """
    python = folder / version / "bin" / "python"
    ready = folder / version / "ready"
    if ready.exists():
        return python
    venv.create(folder / version, with_pip=True, clear=True)
    site = folder / version / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "zz_outer.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    install = [str(python), "-m", "pip", "install", "--quiet"]
    spark = [f"pyspark=={version}", "py4j>=0.10.9.9,<0.10.10"]
    for packages in (
        ["--ignore-installed", "setuptools", "wheel", "packaging"],
        ["--ignore-installed", "--no-deps", "--no-build-isolation", *spark],
        CONNECT,
    ):
        subprocess.run([*install, *packages], check=True, timeout=seconds)
    ready.touch()
    return python


def outcome(report: Path) -> str:
    """The counts of a report in JUnit's format.

    Args:
        report: The file that pytest wrote.

    Returns:
        How many tests passed, failed and were skipped.

    Example:
        >>> outcome(Path(".pyspark/4.3.0/tests.xml"))
        '65 passed, 0 failed, 1 skipped'
    """
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        counts = {name: count + int(suite.get(name, 0)) for name, count in counts.items()}
    failed = counts["failures"] + counts["errors"]
    return f"{counts['tests'] - failed - counts['skipped']} passed, {failed} failed, {counts['skipped']} skipped"


def run(folder: Path, version: str, tests: list[str], seconds: float) -> tuple[bool, str]:
    """Runs the tests under one version.

    Args:
        folder: Where the environments are.
        version: Of PySpark.
        tests: What pytest is to run.
        seconds: How long the installation and the tests may take, each.

    Returns:
        Whether all is well, and what to print of it.

    Example:
        >>> run(Path(".pyspark"), "4.3.0", ["tests/spark/test_sql.py"], 1800)
    """
    report = folder / version / "tests.xml"
    try:
        python = environment(folder, version, seconds)
        report.unlink(missing_ok=True)
        path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
        sources = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        unset = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYSPARK_PYTHON")}
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
        done = subprocess.run(
            command, cwd=ROOT, env=unset | {"PATH": path, "PYTHONPATH": sources}, timeout=seconds, check=False
        )
    except subprocess.SubprocessError as error:
        return False, str(error)
    return done.returncode == 0, outcome(report) if report.exists() else f"pytest ended with {done.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--folder", type=Path, default=ROOT / ".pyspark")
    parser.add_argument("--tests", nargs="+", default=list(TESTS))
    parser.add_argument("--minutes", type=float, default=30)
    chosen = parser.parse_args()
    outcomes = {}
    for version in chosen.versions:
        print(f"== PySpark {version}", flush=True)
        outcomes[version] = run(chosen.folder.resolve(), version, chosen.tests, 60 * chosen.minutes)
    for version, (is_well, text) in outcomes.items():
        print(f"{version}: {'' if is_well else 'FAILED: '}{text}")
    return 0 if all(is_well for is_well, _ in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
