"""What the JVMs of a local session are started with: options that were measured to matter for rows that come as Arrow batches.

They are Spark's *default* Java options, so those that a user gives as ``extraJavaOptions`` come after them and win.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Arrow checks, for each value that is read, whether it lies in its buffer and whether it is null. The buffers come whole from
# Python, and Spark asks for null itself: without both a scan of a recording takes a tenth less. Iceberg's reader does the same.
UNCHECKED_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# For many short-lived rows on few cores: a sixth less time than with G1, for Parquet as well.
COLLECTOR = "-XX:+UseParallelGC"

_NAMED_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
# A JVM reads these by itself.
_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_ROLES = ("driver", "executor")


def java_options(config: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings with these options. A JVM with two collectors does not start: where one is named, ours is left out."""
    named = any(map(_NAMED_COLLECTOR.search, _given(config)))
    options = UNCHECKED_ARROW if named else f"{COLLECTOR} {UNCHECKED_ARROW}"
    return {f"spark.{role}.defaultJavaOptions": options for role in _ROLES}


def _given(config: Mapping[str, str]) -> Iterator[str]:
    """Whatever else a JVM of Spark may be given options by."""
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
