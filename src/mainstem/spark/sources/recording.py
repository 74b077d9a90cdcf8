"""``mainstem.recording``: reads recordings of Mainstem and Aeron Archive, in batch and streaming.

Each row is a message (or with ``rows=frames``, a frame). An offset is a position for each recording (``offsets``). Positions refer
to a log that can be read again, so a query that restarts from its checkpoint reads exactly the same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from mainstem.spark.option_table import TriggerDelay, documents
from mainstem.spark.sources.decoding import PayloadDecoder, decoded_schema, decoder_of
from mainstem.spark.sources.features import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    stream_reader,
)
from mainstem.spark.sources.offsets import parse_offset
from mainstem.spark.sources.options import Names, RecordingOptions, columns_of, fields, names_of, parse_options
from mainstem.spark.sources.planning import Planner, Positions, ReadPositions
from mainstem.spark.sources.sql_tables import read_options, struct_fields, table_schema, user_options
from mainstem.spark.sources.task_reader import RecordingGroup, RecordingRange, TaskReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition


def whole_schema(options: RecordingOptions) -> StructType:
    """Return every column that the source has with these options."""
    columns = struct_fields(fields(options))
    return decoded_schema(columns, options) if options.codec else StructType(columns)


def columns_read(schema: StructType, options: RecordingOptions) -> tuple[Names, PayloadDecoder | None]:
    """Return the columns that tasks read for a query's schema, and the decoder. Raises ConfigurationError."""
    read, decoder = decoder_of(schema, options, columns_of(options))
    return names_of(read, options), decoder


class RecordingRows:
    """What readers of batches and of streams share. Readers are pickled to the tasks, with the options."""

    def __init__(self, options: RecordingOptions, names: Names, decoder: PayloadDecoder | None = None) -> None:
        self._options, self._names, self._decoder = options, names, decoder

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # If there are no partitions, Spark still starts one task, with None.
        if not isinstance(partition, RecordingRange | RecordingGroup):
            return iter(())
        rows = TaskReader(self._options, self._names).rows(partition)
        return rows if self._decoder is None else self._decoder(rows)


class RecordingBatchReader(RecordingRows, DataSourceReader):
    """A batch reader for the current contents of the recordings.

    It does not support Spark's filter pushdown. Spark keeps one plan per DataFrame, and per table in a statement, with the filters
    that were pushed last, so the next query, or the other half of a union, would miss rows. Instead, options (streamId, sessionId,
    fromTime, ...) prune, and ``mainstem.spark.recordings`` derives them from a condition.
    """

    def partitions(self) -> Sequence[InputPartition]:
        planner = Planner(self._options, self._names)
        try:
            planner.refresh()
            planner.check_named()
            return planner.ranges(ReadPositions(planner.starting()), ReadPositions(planner.ending()))
        finally:
            planner.close()


class RecordingStreamReader(RecordingRows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader for growing and new recordings."""

    def __init__(self, options: RecordingOptions, names: Names, decoder: PayloadDecoder | None = None) -> None:
        super().__init__(options, names, decoder)
        self._planner: Planner | None = None
        self._frozen: Positions | None = None
        self._delay = TriggerDelay(options.min_bytes, options.max_trigger_delay_ns)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy without the driver's state.
        return self.__dict__ | {"_planner": None, "_frozen": None, "_delay": None}

    def _planned(self) -> Planner:
        """Return the driver's planner after refreshing it."""
        if self._planner is None:
            self._planner = Planner(self._options, self._names)
        self._planner.refresh()
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        planner = self._planned()
        return planner.offset(ReadPositions(planner.starting())).as_json()

    def first_offset(self) -> dict[str, Any]:
        return self._planned().first().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        planner, before = self._planned(), parse_offset(start)
        resumed = planner.continued(before)
        targets = planner.targets(resumed) if self._frozen is None else self._frozen
        # Trigger.AvailableNow never waits for more data.
        if (
            self._frozen is None
            and self._options.min_bytes is not None
            and self._delay.holds(planner.waiting(resumed, targets))
        ):
            return start
        end = planner.advance(resumed, targets, limited=not isinstance(limit, ReadAllAvailable))
        if planner.is_at(before, resumed, end):
            return start  # the same text tells Spark that there is no new data
        return replace(planner.offset(end, before), plan=planner.task_plan()).as_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._planned().latest().as_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._frozen = self._planned().targets()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planner = self._planned()
        until = parse_offset(end)
        # A micro-batch that is repeated has the tasks of its first attempt.
        return planner.ranges(planner.resumed(parse_offset(start)), planner.resumed(until), until.plan)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()


@documents(RecordingOptions)
class RecordingSource(DataSource):
    """``mainstem.recording``: ``spark.read.format("mainstem.recording").load(location)``, or ``readStream``.

    It also accepts the options of the store (``endpoint_override``, ``fs.s3a.endpoint``, ...); ``tail``, the location where the
    archive grows, and the options of its store as ``tail.*``; and the codec's options as ``codec.*``.
    """

    # The session sets this when it registers the source, because the source runs in a process that cannot ask the session.
    parallelism: ClassVar[int | None] = None

    @classmethod
    def name(cls) -> str:
        return "mainstem.recording"

    def _options(self, schema: StructType) -> RecordingOptions:
        options = parse_options(read_options(self.name(), self.options, schema))
        return replace(options, parallelism=options.parallelism or self.parallelism)

    def schema(self) -> StructType:
        texts, is_table = user_options(self.name(), self.options)
        whole = whole_schema(parse_options(texts))
        return table_schema(whole.fields, texts) if is_table else whole

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options(schema)
        return RecordingBatchReader(options, *columns_read(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = self._options(schema)
        reader = RecordingStreamReader(options, *columns_read(schema, options))
        return stream_reader(reader, read_options(self.name(), self.options, schema), RecordingOptions)
