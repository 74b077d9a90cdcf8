"""``mainstem.channel``: a DataFrame onto a channel, batch and streaming, at least once.

    df.write.format("mainstem.channel").option("channel", "aeron:ipc").option("streamId", 1001).mode("append").save()

The guarantee is *at least once*: a task that fails is tried again, and a micro-batch that was not committed is sent again. Each
message carries its key (``mainstem.message_keys``), which is the same at every attempt, so that a reader can drop repeats. Within a
partition messages keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    WriterCommitMessage,
)

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError
from mainstem.spark.option_table import documents
from mainstem.spark.sinks.channels import ChannelOptions, check_schema, parse_options, send
from mainstem.spark.sources.features import StreamWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

# What Spark calls the number of a micro-batch among a task's properties.
BATCH_PROPERTY = "streaming.sql.batchId"


@dataclass
class Sent(WriterCommitMessage):
    """What a task reports: how many messages of its partition went out."""

    partition: int
    rows: int


def _send(options: ChannelOptions, epoch: int, batches: Iterator[Any]) -> Sent:
    context: Any = TaskContext.get()
    partition = context.partitionId()
    messages = [value for batch in batches for value in _values(batch, options.column)]
    if any(value is None for value in messages):
        raise ConfigurationError(
            f"column {options.column!r} holds a null, and a message is never null: filter them out"
        )
    return Sent(partition, send(options, epoch, partition, messages) if messages else 0)


def _values(rows: Any, column: str) -> list[Any]:
    """A column of an Arrow batch, or of one row: stream writers of Spark 4.0 get rows."""
    if hasattr(rows, "to_pylist"):
        values: list[Any] = rows.column(column).to_pylist()
        return values
    value = rows[column]
    return [bytes(value) if isinstance(value, bytearray) else value]


class ChannelWriter(DataSourceArrowWriter):
    """A batch: all its messages are of one epoch, the option ``epoch`` or else the second at which it was planned."""

    def __init__(self, options: ChannelOptions) -> None:
        self._options = options
        now = SYSTEM_CLOCK.epoch_ns() // NS_PER_SECOND
        self._epoch = now if options.epoch is None else options.epoch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return _send(self._options, self._epoch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        pass


class ChannelStreamWriter(StreamWriter):
    """A micro-batch: its number is the epoch, so that the same messages have the same keys after a restart."""

    def __init__(self, options: ChannelOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Sent:
        context: Any = TaskContext.get()
        return _send(self._options, int(context.getLocalProperty(BATCH_PROPERTY)), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass


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
            raise ConfigurationError("a channel cannot be overwritten: use mode('append')")
        return ChannelWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ChannelStreamWriter:  # noqa: ARG002, N802
        options = parse_options(self.options)
        check_schema(schema, options.column)
        return ChannelStreamWriter(options)

    def reader(self, schema: StructType) -> Any:  # noqa: ARG002
        raise ConfigurationError("mainstem.channel only writes; mainstem.live and mainstem.recording read")
