"""Aeron for Java, where this machine has it: its tools, and the programs of ``tests/interop/java``.

``MAINSTEM_AERON_JAR`` is an ``aeron-all`` jar; without it, the one that ``.ci/run`` fetched into ``build/reference``.
``MAINSTEM_AERON_JAVA`` is a Java, 17 or later; without it, the one on ``PATH``.
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
# Agrona reads the module of memory and, for CRC-32C, that of checksums.
OPENED_MODULES = (
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
)


@cache
def why_not() -> str:
    """Why Java's reference cannot run here; empty if it can."""
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
    """Skips the test if Java's reference cannot run here."""
    if reason := why_not():
        pytest.skip(reason)


def jar() -> Path:
    """Where the jar is, whether or not it exists."""
    return Path(os.environ.get("MAINSTEM_AERON_JAR") or FETCHED_JAR)


def java_program() -> str | None:
    """The Java that runs it."""
    return os.environ.get("MAINSTEM_AERON_JAVA") or shutil.which("java")


@cache
def compiled_programs() -> Path:
    """The classes of ``tests/interop/java``, compiled once for each process of the tests."""
    folder = tempfile.TemporaryDirectory(prefix="mainstem-java-")
    _kept.append(folder)
    javac = shutil.which("javac")
    assert javac is not None
    sources = sorted(map(str, PROGRAMS.glob("*.java")))
    command = [javac, "-nowarn", "-proc:none", "-cp", str(jar()), "-d", folder.name, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(folder.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def command(main_class: str, *arguments: object, properties: dict[str, object] | None = None) -> list[str]:
    """The command line of a program of the tests, or of a class of the jar."""
    java = java_program()
    assert java is not None
    # Small heap and one collector thread: several of these run beside each other on two cores.
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
    """Runs a program to its end and returns what it printed; its exit code is the caller's to check.

    ``answers`` is what it reads from standard input.
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
    """Starts a program whose standard input and output are pipes of text; the caller ends it."""
    return subprocess.Popen(
        command(main_class, *arguments, properties=properties),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
