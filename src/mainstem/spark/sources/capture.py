"""``mainstem.capture``: reads packet captures, in batch and streaming. Each row is a frame (``mainstem.capture.schema``).

In a stream, an offset records how much of each file was read, up to the end of a record (``offsets``). Files may grow and new ones
may appear. Incomplete records are never read. If a file was replaced, the query fails, or with ``failOnDataLoss=false`` it reads
the new file from the beginning.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from mainstem.capture.files import StoredPath, capture_errors, captures, status_of
from mainstem.capture.index import build, identity
from mainstem.capture.index_store import index_of
from mainstem.capture.planning import plan, plan_new, unreadable
from mainstem.capture.reading import read
from mainstem.capture.schema import columns
from mainstem.errors import CaptureError
from mainstem.spark.option_table import TriggerDelay, documents
from mainstem.spark.sources.capture_options import CaptureOptions, parse_options
from mainstem.spark.sources.decoding import PAYLOAD, SKIP, PayloadDecoder, decoded_schema, decoder_of
from mainstem.spark.sources.features import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
    stream_reader,
)
from mainstem.spark.sources.offsets import CaptureOffset, Ends, parse_capture_offset
from mainstem.spark.sources.sql_tables import read_options, struct_fields, table_schema, user_options
from mainstem.spark.sources.task_reader import freeze_gc
from mainstem.store import is_url
from mainstem.store.open_store import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from mainstem.capture.chunks import FrameIndex
    from mainstem.capture.planning import CapturePartition, FrameSelection

log = logging.getLogger("mainstem.spark")


@dataclass
class CaptureInputPartition(InputPartition):
    """A part of one file, read by one task."""

    part: CapturePartition


@dataclass(frozen=True)
class CapturedRows:
    """A function that reads and decodes the rows of a task. It is pickled to the workers."""

    selection: FrameSelection
    decoder: PayloadDecoder | None = None

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        # If there are no partitions, Spark still starts one task, with None.
        if not isinstance(partition, CaptureInputPartition):
            return iter(())
        rows = read(partition.part, self.selection)
        return rows if self.decoder is None else self.decoder(map(_with_skips, rows))


# The columns that determine whether a frame holds a whole message.
MESSAGE_COLUMNS = ("protocol", "frame_type", "flags", "frame_length", "length", PAYLOAD)
UNFRAGMENTED = 0xC0
FRAGMENT = "the frame is a fragment of a message"
CUT = "the capture does not have the whole frame"


def _with_skips(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the column ``SKIP`` to frames. Only frames with a whole Aeron or Aqueduct message are decoded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    protocol, kind, flags, frame_length, length, payload = map(batch.column, MESSAGE_COLUMNS)
    is_aqueduct = pc.and_(pc.equal(protocol, "aqueduct"), pc.equal(kind, "MESSAGE"))
    # A heartbeat is a DATA frame of length 0.
    is_data = pc.and_(pc.equal(protocol, "aeron"), pc.and_(pc.equal(kind, "DATA"), pc.greater(frame_length, 0)))
    is_whole = pc.or_kleene(is_aqueduct, pc.equal(pc.bit_wise_and(flags, UNFRAGMENTED), UNFRAGMENTED))
    is_captured = pc.equal(pc.binary_length(pc.fill_null(payload, b"")), length)
    skips = pc.case_when(
        pc.make_struct(
            pc.invert(pc.or_(pc.fill_null(is_aqueduct, False), pc.fill_null(is_data, False))),
            pc.invert(pc.fill_null(is_whole, False)),
            pc.invert(pc.fill_null(is_captured, False)),
        ),
        "",
        FRAGMENT,
        CUT,
        pa.scalar(None, pa.string()),
    )
    return pa.RecordBatch.from_arrays([*batch.columns, skips], names=[*batch.schema.names, SKIP])


class CaptureBatchReader(DataSourceReader):
    """A batch reader for the current contents of the files."""

    def __init__(self, options: CaptureOptions, rows: CapturedRows) -> None:
        self._options, self._rows = options, rows

    def partitions(self) -> Sequence[InputPartition]:
        options, parts = self._options, []
        files = captures(options.path, options=options.store_options)
        share = -(-options.min_partitions // len(files))
        for file in files:
            try:
                index = index_of(file, options.index_directory)
            except CaptureError as error:
                parts.append(unreadable(file, str(error)))
                continue
            parts += plan(file, index, self._rows.selection, part_bytes=options.partition_bytes, min_parts=share)
        return [CaptureInputPartition(part) for part in parts]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


class CaptureStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader for growing and new captures. If a packet needs history, it reads the file from the start each time."""

    def __init__(self, options: CaptureOptions, rows: CapturedRows) -> None:
        self._options, self._rows = options, rows
        self._indexes: dict[str, FrameIndex] = {}
        self._same: dict[str, tuple[int, int, str]] = {}
        # The files of the last listing, and their names by place: a restart may spell the path in another way.
        self._listed: set[str] = set()
        self._names: dict[str, str] = {}
        self._frozen: Ends | None = None
        self._delay = TriggerDelay(options.min_bytes, options.max_trigger_delay_ns)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy without the driver's state.
        return self.__dict__ | {
            "_indexes": {},
            "_same": {},
            "_listed": set(),
            "_names": {},
            "_frozen": None,
            "_delay": None,
        }

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return CaptureOffset().as_json()

    first_offset = initialOffset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._options.max_bytes is None else ReadMaxBytes(self._options.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        targets = self._latest() if self._frozen is None else self._frozen
        before = self._resumed(parse_capture_offset(start))
        begins = before.ends
        waiting = sum(max(target - begins.get(file, 0), 0) for file, target in targets.items())
        if self._frozen is None and self._delay.holds(waiting):
            return start
        left = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        ends, next_file = dict(begins), ""
        # Files are read in the order of their names, because rings of files are numbered. The one at which a limit ended the last
        # micro-batch comes first, or those before it, if they grow, could take its room forever.
        for file, target in sorted(targets.items(), key=lambda each: (each[0] < before.next_file, each[0])):
            begin = ends.get(file, 0)
            if target <= begin:
                continue
            end = target if left is None else self._within(file, begin, target, left)
            if left is not None:
                # Only the first chunk of a micro-batch may exceed the limit.
                if end - begin > left and ends != begins:
                    next_file = file
                    break
                left -= end - begin
            ends[file] = end
            if end < target:
                next_file = file
                break
        if ends == begins and len(ends) == len(start["ends"]):
            # Return the same text, which tells Spark that there is no new data.
            return start
        return self._offset(ends, before, self._options.partition_bytes, next_file)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._offset(self._latest(), CaptureOffset())

    def _offset(self, ends: Ends, before: CaptureOffset, part_bytes: int = 0, next_file: str = "") -> dict[str, Any]:
        """Make an offset from these ends. A file's identity is recomputed when its end has moved."""
        identities = {}
        for file, end in ends.items():
            known = before.identities.get(file) if file in before.ends else None
            try:
                if known is None or before.ends[file] != end:
                    known = identity(file, self._index(file))
            except CaptureError as error:
                log.debug("the identity of a capture is not known: %s", error)
            if known is not None:
                identities[file] = known
        return CaptureOffset(ends, identities, part_bytes, next_file).as_json()

    def _resumed(self, offset: CaptureOffset) -> CaptureOffset:
        """Return the part of an offset from which reading can continue, with the present names of its files.

        If a file was replaced, or ends before the offset, this raises CaptureError, or with ``failOnDataLoss=false`` leaves the
        file out, so that it is read from the beginning. A deleted file keeps its end.
        """
        ends, identities = {}, {}
        for name, end in offset.ends.items():
            file = self._file(name if name in self._listed else self._names.get(place_of(name), name))
            known = offset.identities.get(name)
            if change := self._change(file, end, known):
                if self._options.fail_on_data_loss:
                    raise CaptureError(
                        f"{file} {change}: the file was replaced; set failOnDataLoss to false to read the new one"
                    )
                log.warning("%s %s: the file was replaced, and is read from the beginning", file, change)
                continue
            ends[file] = end
            if known is not None:
                identities[file] = known
        return CaptureOffset(ends, identities, next_file=offset.next_file)

    def _file(self, name: str) -> str:
        """Return a file of an offset with the options of its store."""
        return StoredPath(name, self._options.store_options) if is_url(name) else name

    def _change(self, file: str, end: int, known: str | None) -> str:
        try:
            index = self._index(file, refresh=True)
            if index.end < end:
                return f"ends at byte {index.end}, before byte {end} of the checkpoint"
            if known is None or self._same.get(file) == (index.size, index.mtime_ns, known):
                return ""
            if (now := identity(file, index, known)) != known:
                return (
                    f"begins with other bytes than that of the checkpoint (length and hash were {known} and are {now})"
                )
            self._same[file] = (index.size, index.mtime_ns, known)
        except CaptureError as error:
            log.debug("a capture of the checkpoint cannot be opened: %s", error)
        return ""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._frozen = self._latest()

    def _within(self, file: str, start: int, target: int, room: int) -> int:
        """Return the end of the last chunk within ``room`` bytes, but at least one chunk."""
        end = start
        for chunk in self._index(file).chunks:
            if chunk.end <= start or chunk.offset >= target:
                continue
            if end > start and chunk.end - start > room:
                break
            end = min(chunk.end, target)
        # There may be nothing to read, as in a header.
        return end if end > start else target

    def _latest(self) -> Ends:
        ends = {}
        self._listed = set(captures(self._options.path, must_exist=False, options=self._options.store_options))
        for file in self._listed - set(self._names.values()):
            self._names[place_of(file)] = file
        for file in sorted(self._listed):
            try:
                ends[file] = self._index(file, refresh=True).end
            except CaptureError:
                continue
        return ends

    def _index(self, file: str, *, refresh: bool = False) -> FrameIndex:
        """Return the index of a file, updated if ``refresh`` is set."""
        known = self._indexes.get(file)
        if known is None:
            known = index_of(file, self._options.index_directory)
        elif refresh:
            with capture_errors(file):
                present = status_of(file)
            if present != (known.size, known.mtime_ns):
                known = build(file, known)
        self._indexes[file] = known
        return known

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        parts: list[CapturePartition] = []
        begins, until = self._resumed(parse_capture_offset(start)).ends, parse_capture_offset(end)
        # A micro-batch that is repeated has the tasks of its first attempt.
        part_bytes = until.partition_bytes or self._options.partition_bytes
        for name, stop in sorted(self._resumed(until).ends.items()):
            begin = begins.get(name, 0)
            if stop <= begin:
                continue
            file = self._file(name)
            try:
                index = self._index(file, refresh=True)
            except CaptureError as error:
                parts.append(unreadable(file, str(error)))
                continue
            parts += plan_new(file, index, self._rows.selection, begin, stop, part_bytes=part_bytes)
        return [CaptureInputPartition(part) for part in parts]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)

    def stop(self) -> None:
        self._indexes.clear()


@documents(CaptureOptions)
class CaptureSource(DataSource):
    """``mainstem.capture``: ``spark.read.format("mainstem.capture").load(path)``, or ``readStream``.

    It also accepts the options of a URL's store, and the codec's options as ``codec.*``.
    """

    @classmethod
    def name(cls) -> str:
        return "mainstem.capture"

    def schema(self) -> StructType:
        texts, is_table = user_options(self.name(), self.options)
        options = parse_options(texts)
        known = struct_fields((column.name, column.type, True) for column in columns(payload=options.payload))
        whole = decoded_schema(known, options) if options.codec else StructType(known)
        return table_schema(whole.fields, texts) if is_table else whole

    def _rows(self, schema: StructType, options: CaptureOptions) -> CapturedRows:
        """Return what tasks need to read the rows of a query. Raises ConfigurationError."""
        own = [column.name for column in columns(payload=True)]
        read, decoder = decoder_of(schema, options, own, skips=True)
        selection = options.wanted(read)
        if decoder is not None:
            selection = replace(selection, names=tuple(dict.fromkeys((*selection.names, *MESSAGE_COLUMNS))))
        return CapturedRows(selection, decoder)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(read_options(self.name(), self.options, schema))
        return CaptureBatchReader(options, self._rows(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        texts = read_options(self.name(), self.options, schema)
        options = parse_options(texts)
        return stream_reader(CaptureStreamReader(options, self._rows(schema, options)), texts, CaptureOptions)
