"""Detects features of the installed PySpark, and substitutes for missing ones. Only this module checks the version.

| since | feature | in earlier versions |
| --- | --- | --- |
| 4.1 | stream writers get Arrow batches | they get rows (``sinks/channel.py``) |
| 4.1 | the rows of a group come in batches | they come as one table (``in_groups``) |
| 4.2 | ``to_arrow_schema`` gets the time zone of timestamps | they get ``"UTC"`` (``arrow_schema``) |
| 4.2 | ``latestOffset`` gets the start and the limit of a micro-batch | ``WithoutLimits``; options for limits are refused |
| 4.2 | a source supports ``Trigger.AvailableNow`` itself | Spark's wrapper, which ``session.settings`` turns on |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.pandas.types import to_arrow_schema

from mainstem.errors import ConfigurationError
from mainstem.spark.option_table import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

VERSION = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
HAS_GROUPS_IN_BATCHES = VERSION >= (4, 1)
HAS_READ_LIMITS = VERSION >= (4, 2)
HAS_TIME_ZONES = VERSION >= (4, 2)
# Spark 4.1 moved this class.
CHECKPOINT_FILE_MANAGER = "org.apache.spark.sql.execution.streaming." + (
    "checkpointing.FileSystemBasedCheckpointFileManager"
    if VERSION >= (4, 1)
    else "FileSystemBasedCheckpointFileManager"
)

# The base class of stream writers. They get Arrow batches if Spark supports that.
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
        """A placeholder: this Spark version has no limits."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """A placeholder for reading without a limit."""

    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """The same as in Spark 4.2. Earlier versions pass none."""

        def __init__(self, max_bytes: int) -> None:
            self.max_bytes = max_bytes

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """The same as in Spark 4.2. Earlier versions pass none."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A placeholder that is never used."""


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
    "arrow_schema",
    "in_groups",
    "stream_reader",
]


def arrow_schema(schema: StructType, timezone: str = "UTC") -> pa.Schema:
    """Return the Arrow schema of Spark's rows, whose timestamps have this time zone if this Spark version lets one choose."""
    if HAS_TIME_ZONES:
        return to_arrow_schema(schema, timezone=timezone)
    return to_arrow_schema(schema)


def in_groups(
    rows: DataFrame,
    keys: Sequence[str],
    function: Callable[[tuple[Any, ...], Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    ddl: str,
    schema: pa.Schema,
) -> DataFrame:
    """Return what ``function`` makes of the batches of each group. ``ddl`` and ``schema`` both describe that."""
    grouped = rows.groupBy(*keys)
    if HAS_GROUPS_IN_BATCHES:
        return grouped.applyInArrow(function, ddl)

    def of_table(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        return pa.Table.from_batches(function(key, iter(table.to_batches())), schema)

    return grouped.applyInArrow(of_table, ddl)


class WithoutLimits(DataSourceStreamReader):
    """A reader for Spark versions that do not pass the start of a micro-batch. Each one starts where the last one ended.

    After a restart, the end of the last committed micro-batch is unknown, so the first offset covers everything available. Spark
    then calls ``partitions`` with the start from its checkpoint, so nothing is read twice.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._reached: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._reached = self._inner.initialOffset()
        return self._reached

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        start = self._inner.first_offset() if self._reached is None else self._reached
        self._reached = self._inner.latestOffset(start, ReadAllAvailable())
        return self._reached

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        self._reached = end
        return self._inner.partitions(start, end)

    def read(self, partition: InputPartition | None) -> Any:
        return self._inner.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._inner.commit(end)

    def stop(self) -> None:
        self._inner.stop()


def stream_reader(inner: Any, options: Mapping[str, str], kind: type) -> Any:
    """Return the reader for this Spark version. Raises ConfigurationError if an option of ``kind`` needs a later version."""
    if HAS_READ_LIMITS:
        return inner
    lowered = {key.lower() for key in options}
    for each in table_of(kind).values():
        if each.is_limit and each.name.lower() in lowered:
            raise ConfigurationError(
                f"{each.name}: Spark {pyspark.__version__} has no limits for Python sources; remove the option, or use Spark 4.2"
            )
    return WithoutLimits(inner)
