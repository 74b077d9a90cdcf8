"""Aeron for Java, if this machine has it: its tools, and the programs of ``tests/interop/java``.

``MAINSTEM_AERON_JAR`` is an ``aeron-all`` jar; by default, the one that ``.ci/run`` downloaded to ``build/reference``.
``MAINSTEM_AERON_JAVA`` is a Java, 17 or later; by default, the one on ``PATH``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import IO, Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "interop" / "java"
FETCHED_JAR = ROOT / "build" / "reference" / "aeron-all-1.51.0.jar"
ARCHIVE_TOOL = "io.aeron.archive.ArchiveTool"
# Agrona accesses a module of memory and, for CRC-32C, one of checksums.
OPENED_MODULES = (
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
)


@cache
def why_not() -> str:
    """Return why the Java reference cannot run here, or an empty string if it can."""
    java, javac, aeron_jar = java_program(), shutil.which("javac"), jar()
    if not aeron_jar.exists():
        return f"no aeron-all jar in MAINSTEM_AERON_JAR or {FETCHED_JAR}"
    if java is None or javac is None:
        return "needs a JDK: no java or javac on PATH"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)', version)
    if match is None or int(match[1]) < 17:
        return f"needs Java 17 or later, {java} is {match[1] if match else 'unknown'}"
    return ""


def require_java() -> None:
    """Skip the test if the Java reference cannot run here."""
    if reason := why_not():
        pytest.skip(reason)


def jar() -> Path:
    """Return the path of the jar, whether or not it exists."""
    return Path(os.environ.get("MAINSTEM_AERON_JAR") or FETCHED_JAR)


def java_program() -> str | None:
    """Return the Java program that runs it."""
    return os.environ.get("MAINSTEM_AERON_JAVA") or shutil.which("java")


@cache
def compiled_programs() -> Path:
    """Return the classes of ``tests/interop/java``, compiled once per test process."""
    directory = tempfile.TemporaryDirectory(prefix="mainstem-java-")
    _kept.append(directory)
    javac = shutil.which("javac")
    assert javac is not None
    sources = sorted(map(str, PROGRAMS.glob("*.java")))
    command = [javac, "-nowarn", "-proc:none", "-cp", str(jar()), "-d", directory.name, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(directory.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def command(main_class: str, *arguments: object, properties: dict[str, object] | None = None) -> list[str]:
    """Return the command line of a test program, or of a class in the jar."""
    java = java_program()
    assert java is not None
    # A small heap and one collector thread, because several of these run at once on two cores.
    line = [java, *OPENED_MODULES, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    line += [f"-D{name}={value}" for name, value in (properties or {}).items()]
    return [*line, "-cp", f"{jar()}:{compiled_programs()}", main_class, *map(str, arguments)]


def run(
    main_class: str,
    *arguments: object,
    properties: dict[str, object] | None = None,
    timeout: float = 120,
    answers: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return its output; the caller checks its exit code.

    ``answers`` is its standard input.
    """
    return subprocess.run(
        command(main_class, *arguments, properties=properties),
        capture_output=True,
        text=True,
        timeout=timeout,
        input=answers,
        check=False,
    )


def start(
    main_class: str,
    *arguments: object,
    properties: dict[str, object] | None = None,
    stderr: int | IO[Any] | None = subprocess.STDOUT,
) -> subprocess.Popen[str]:
    """Start a program whose standard input and output are text pipes; the caller ends it."""
    return subprocess.Popen(
        command(main_class, *arguments, properties=properties),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
