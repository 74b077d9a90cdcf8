"""What this Spark can do for sources in Python, and what stands in where it cannot: the one place that asks for its version.

| since | what | before it |
| --- | --- | --- |
| 4.1 | stream writers that get Arrow batches | they get rows (``sinks/channel.py``) |
| 4.2 | ``latestOffset`` gets where a micro-batch starts, and its limit | ``WithoutLimits``; the options of limits are refused |
| 4.2 | a source learns that a query ends with what there is | Spark's wrapper, which ``session.settings`` turns on |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter

from mainstem.errors import ConfigurationError
from mainstem.spark.option_table import table_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.datasource import InputPartition

VERSION = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
HAS_READ_LIMITS = VERSION >= (4, 2)
# Spark moved it in 4.1.
CHECKPOINT_FILE_MANAGER = "org.apache.spark.sql.execution.streaming." + (
    "checkpointing.FileSystemBasedCheckpointFileManager"
    if VERSION >= (4, 1)
    else "FileSystemBasedCheckpointFileManager"
)

# The base of stream writers: with Arrow batches where Spark has it.
StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)

if HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:  # type: ignore[no-redef]
        """A limit that this Spark does not have."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """The only one that it knows."""

    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """Never asked for."""

        def __init__(self, max_bytes: int) -> None:
            self.max_bytes = max_bytes

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """Never asked for."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark never asks for it."""


__all__ = [
    "CHECKPOINT_FILE_MANAGER",
    "HAS_READ_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "StreamWriter",
    "SupportsTriggerAvailableNow",
    "WithoutLimits",
    "stream_reader",
]


class Limited(Protocol):
    """A reader of a stream as Spark 4.2 has it, with the offset where nothing has been read."""

    def first_offset(self) -> dict[str, Any]: ...
    def initialOffset(self) -> dict[str, Any]: ...  # noqa: N802
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]: ...  # noqa: N802
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]: ...
    def read(self, partition: InputPartition | None) -> Iterator[Any]: ...
    def commit(self, end: dict[str, Any]) -> None: ...
    def stop(self) -> None: ...


class WithoutLimits(DataSourceStreamReader):
    """A reader for a Spark that does not say where a micro-batch starts: it starts where the last one ended.

    After a restart that is not known where the last micro-batch was committed. What there is then is offered from its first
    position on; Spark asks for ``partitions`` with the start of its checkpoint, so that nothing is read twice.
    """

    def __init__(self, inner: Limited) -> None:
        self._inner = inner
        self._reached: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._reached = self._inner.initialOffset()
        return self._reached

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        start = self._inner.first_offset() if self._reached is None else self._reached
        self._reached = self._inner.latestOffset(start, ReadAllAvailable())
        return self._reached

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._reached = end
        return self._inner.partitions(start, end)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        return self._inner.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._inner.commit(end)

    def stop(self) -> None:
        self._inner.stop()


def stream_reader(inner: Limited, options: Mapping[str, str], kind: type) -> Any:
    """The reader for this Spark. Raises ConfigurationError where an option of ``kind`` needs a later one."""
    if HAS_READ_LIMITS:
        return inner
    lowered = {key.lower() for key in options}
    for each in table_of(kind).values():
        if each.is_limit and each.name.lower() in lowered:
            raise ConfigurationError(
                f"{each.name}: Spark {pyspark.__version__} has no limits for sources in Python;"
                " leave the option out, or use Spark 4.2"
            )
    return WithoutLimits(inner)
