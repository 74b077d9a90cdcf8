"""Determines how many tasks Spark runs at once, from a session or from how Spark was launched.

Spark runs a source's planner in a separate process, without any settings or context. But the command line of the driver's JVM
contains the settings it was launched with: those of ``spark-submit``, or all settings of a session that a Python program built. If
the command line does not determine how many tasks run at once, ``spark-defaults.conf`` may. Otherwise the planner uses Spark's
default for a cluster of unknown size, never the CPU count of the driver's host.

Limits: a second session in the same JVM sees the settings of the first, and dynamic allocation has no fixed number. The option
``parallelism`` and ``mainstem.spark.register`` take precedence over all of this.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

# Spark's default for a cluster of unknown size: the number of shuffle partitions (spark.sql.shuffle.partitions).
UNKNOWN_PARALLELISM = 200
# The worker, its daemon, the JVM, and any processes between them.
MAX_ANCESTORS = 8
MAX_DEFAULTS_LENGTH = 1 << 20
SUBMIT = "org.apache.spark."
OPTIONS = {
    "--master": "spark.master",
    "--num-executors": "spark.executor.instances",
    "--executor-cores": "spark.executor.cores",
    "--total-executor-cores": "spark.cores.max",
}
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_ASSIGNMENT = re.compile(r"\s*([^\s=:#!]+)\s*[\s=:]\s*(.*?)\s*")


def parallelism_of(spark: SparkSession) -> int | None:
    """Return the number of executor cores, including executors that have not started yet, or None if unknown.

    ``spark.default.parallelism`` overrides it.
    """
    try:
        context = spark.sparkContext
    except Exception:
        # Spark Connect has no context, and raises a different error in each version.
        text = spark.conf.get("spark.default.parallelism", None)
        return int(text) if text else None
    settings = context.getConf()
    now: int = context.defaultParallelism
    if settings.contains("spark.default.parallelism") or context.master.startswith("local"):
        return now
    instances, cores = (int(settings.get(f"spark.executor.{name}", "0") or 0) for name in ("instances", "cores"))
    most = int(settings.get("spark.cores.max", "0") or 0)
    return max(now, instances * cores, most)


@cache
def launched_parallelism() -> int:
    """Return how many tasks this process's Spark runs at once. The result is cached."""
    for pid in _ancestors():
        arguments = _texts(pid, "cmdline")
        if any(each.startswith(SUBMIT) for each in arguments) and "java" in os.path.basename(arguments[0]):
            environment = dict(text.split("=", 1) for text in _texts(pid, "environ") if "=" in text)
            settings = launch_settings(arguments, environment or os.environ)
            return parallelism_from(settings, _processors(pid)) or UNKNOWN_PARALLELISM
    return UNKNOWN_PARALLELISM


def launch_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings from a JVM's command line and the defaults file that it or the environment names."""
    settings: dict[str, str] = {}
    home = environment.get("SPARK_HOME", "")
    directory = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    file = f"{directory}/spark-defaults.conf" if directory else ""
    waiting = ""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if waiting == "--properties-file":
            file = argument
        elif waiting in ("--conf", "-c"):
            settings[name] = value
        elif waiting:
            settings[OPTIONS[waiting]] = argument
        elif argument.startswith("-Dspark.") and equals:
            settings[name.removeprefix("-D")] = value
        is_option = not waiting and argument in (*OPTIONS, "--conf", "-c", "--properties-file")
        waiting = argument if is_option else ""
    return _defaults(file) | settings


def parallelism_from(settings: Mapping[str, str], processors: int) -> int | None:
    """Return the parallelism of Spark's scheduler, including executors that have not started, or None if the settings lack it."""
    if "spark.default.parallelism" in settings:
        return _number(settings, "spark.default.parallelism") or None
    # The default of spark-submit.
    local = _LOCAL.fullmatch(settings.get("spark.master", "local[*]"))
    if local is not None:
        threads = local[1] or "1"
        return processors if threads == "*" else max(int(threads), 1)
    executors = _number(settings, "spark.executor.instances") * _number(settings, "spark.executor.cores", 1)
    return max(executors, _number(settings, "spark.cores.max")) or None


def _number(settings: Mapping[str, str], name: str, default: int = 0) -> int:
    text = settings.get(name, "")
    return int(text) if text.isdecimal() else default


def _defaults(file: str) -> dict[str, str]:
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")[:MAX_DEFAULTS_LENGTH] if file else ""
    except OSError:
        return {}
    pairs = (_ASSIGNMENT.fullmatch(line) for line in text.splitlines())
    return {pair[1]: pair[2] for pair in pairs if pair is not None and pair[1].startswith("spark.")}


def _ancestors() -> Iterator[int]:
    pid = os.getppid()
    for _ in range(MAX_ANCESTORS):
        if pid <= 1:
            # In a container, the driver may be process 1.
            if pid == 1:
                yield pid
            return
        yield pid
        try:
            # The state and the parent follow the process name, which may contain any characters.
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return


def _texts(pid: int, name: str) -> list[str]:
    """Return a process's arguments (``cmdline``) or its environment (``environ``), or nothing if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _processors(pid: int) -> int:
    """Return the JVM's number of processors: its allowed CPUs, within its container's quota."""
    count = os.cpu_count() or 1
    try:
        if hasattr(os, "sched_getaffinity"):
            count = len(os.sched_getaffinity(pid))
        quota, _, period = Path("/sys/fs/cgroup/cpu.max").read_text().partition(" ")
        if quota.isdecimal():
            count = min(count, -(-int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return max(count, 1)
