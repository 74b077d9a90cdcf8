"""``mainstem.channel``: sends a DataFrame to a channel, in batch and streaming, at least once.

    df.write.format("mainstem.channel").option("channel", "aeron:ipc").option("streamId", 1001).mode("append").save()

The guarantee is *at least once*, because Spark repeats failed tasks and uncommitted micro-batches. Each message carries a key
(``mainstem.message_keys``) that is the same on every attempt, so readers can drop duplicates. Messages keep their order within a
partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from mainstem._internal.validation import as_message
from mainstem.errors import ConfigurationError
from mainstem.message_keys import KEY_MASK
from mainstem.spark.option_table import documents
from mainstem.spark.sinks.channels import ChannelOptions, check_schema, parse_options, send
from mainstem.spark.sources.features import StreamWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

# The task properties with the id of its query and the number of its micro-batch.
QUERY_PROPERTY, BATCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"


def epoch_of(write_id: str, number: int = 0) -> int:
    """Return the epoch of a write: a hash of its query's id, from which micro-batches are numbered."""
    return int.from_bytes(blake2b(write_id.encode(), digest_size=8).digest()) + number & KEY_MASK


@dataclass
class Sent(WriterCommitMessage):
    """The number of messages that a task sent from its partition."""

    partition: int
    rows: int


def _send(options: ChannelOptions, epoch: int, batches: Iterator[Any]) -> Sent:
    context: Any = TaskContext.get()
    partition = context.partitionId()
    messages = [value for batch in batches for value in _values(batch, options.column)]
    if any(value is None for value in messages):
        raise ConfigurationError(f"column {options.column!r} has nulls, which are not messages; filter them out")
    return Sent(partition, send(options, epoch, partition, messages) if messages else 0)


def _values(rows: Any, column: str) -> list[bytes | None]:
    """Return the messages in a column of an Arrow batch, or of a row, which Spark 4.0 passes to stream writers. Text is UTF-8."""
    if hasattr(rows, "to_pylist"):
        import pyarrow as pa

        values: list[bytes | None] = rows.column(column).cast(pa.large_binary()).to_pylist()
        return values
    value = rows[column]
    return [None if value is None else as_message(value)]


class ChannelWriter(DataSourceArrowWriter):
    """A writer for a batch. All messages have one epoch: the option ``epoch``, or a random one that was drawn for this write."""

    def __init__(self, options: ChannelOptions) -> None:
        self._options = options
        # Tasks and their retries get a copy of this writer.
        self._epoch = epoch_of(uuid4().hex) if options.epoch is None else options.epoch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return _send(self._options, self._epoch, iterator)


class ChannelStreamWriter(StreamWriter):
    """A writer for a micro-batch. The epoch is of the query and the micro-batch, so messages keep their keys after a restart."""

    def __init__(self, options: ChannelOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Sent:
        context: Any = TaskContext.get()
        query_id, number = map(context.getLocalProperty, (QUERY_PROPERTY, BATCH_PROPERTY))
        return _send(self._options, epoch_of(query_id, int(number)), iterator)


@documents(ChannelOptions)
class ChannelSink(DataSource):
    """``mainstem.channel``: ``df.write.format("mainstem.channel").mode("append")``, and ``df.writeStream``."""

    @classmethod
    def name(cls) -> str:
        return "mainstem.channel"

    def schema(self) -> str:
        return "payload binary"

    def writer(self, schema: StructType, overwrite: bool) -> ChannelWriter:
        options = parse_options(self.options)
        check_schema(schema, options.column)
        if overwrite:
            raise ConfigurationError("a channel cannot be overwritten; use mode('append')")
        return ChannelWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ChannelStreamWriter:  # noqa: ARG002, N802
        options = parse_options(self.options)
        check_schema(schema, options.column)
        return ChannelStreamWriter(options)

    def reader(self, schema: StructType) -> Any:  # noqa: ARG002
        raise ConfigurationError("mainstem.channel can only write; read with mainstem.live or mainstem.recording")
