"""The recordings at a location: as readers, one each, and together as one table for Arrow, Polars, pandas and DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any, overload

from mainstem.errors import ConfigurationError, RecordingError, needs_extras
from mainstem.recording.open_archives import ReadOptions, open_archives
from mainstem.recording.open_files import OpenFiles
from mainstem.recording.reader import RecordingReader
from mainstem.recording.rows.decoding import Decoding
from mainstem.recording.rows.filters import RowFilter, row_filter
from mainstem.recording.rows.reading import read_rows
from mainstem.recording.rows.scan_range import ScanRange
from mainstem.recording.rows.schema import NULLABLE, arrow_schema, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from mainstem.codecs import Codec
    from mainstem.recording.archive import Archive
    from mainstem.recording.rows.bounds import PredicateBounds

# Rows of a record batch: enough to make a batch's own cost small, few enough to stay in the cache.
ROWS_PER_BATCH = 20_000


class Recordings(Sequence[RecordingReader]):
    """The recordings at a location, as ``open_recordings`` returns them. Use it as a context manager.

    As a sequence it holds a reader for each recording. As a table it has a row for each message, in order within each recording,
    with the columns of the Spark source: recording_id, session_id, stream_id, position (the end of the message, in bytes), term_id,
    term_offset, flags, reserved_value, recorded_at (UTC, null where it is not known), length and payload. Each read takes
    what is recorded when it begins; recordings that begin later are seen by the next ``open_recordings``.

    It has Arrow's stream interface, so DuckDB, Polars and others take the object itself as a table.

    Args:
        readers: A reader for each recording; they are closed with this object.
        archives: Their archives, which are closed with it too, those without a recording among them. Default: those of the readers.

    Example:
        >>> with mainstem.open_recordings("tides") as recordings:
        ...     table = recordings.to_arrow(columns=["position", "payload"], where=[("stream_id", "=", 1001)])
        ...     trades = recordings.to_arrow(codec="avro", codec_options={"schema": "trade.avsc"})
    """

    def __init__(self, readers: Iterable[RecordingReader], archives: Iterable[Archive] = ()) -> None:
        self._readers = list(readers)
        self._archives = list(archives) or [reader.archive for reader in self._readers]

    def __enter__(self) -> Recordings:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every reader. May be called twice.

        Example:
            ``recordings.close()``, or ``with open_recordings("tides") as recordings:``
        """
        with ExitStack() as stack:
            for archive in {id(archive): archive for archive in self._archives}.values():
                stack.callback(archive.close)
            for reader in self._readers:
                stack.callback(reader.close)

    def __len__(self) -> int:
        return len(self._readers)

    @overload
    def __getitem__(self, index: int) -> RecordingReader: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordingReader]: ...
    def __getitem__(self, index: int | slice) -> RecordingReader | list[RecordingReader]:
        return self._readers[index]

    def to_batches(
        self,
        columns: Iterable[str] | None = None,
        where: Any = None,
        *,
        frames: bool = False,
        rows: int = ROWS_PER_BATCH,
        strict: bool = True,
        codec: Codec | str | None = None,
        codec_options: Mapping[str, str] | None = None,
        schema: pa.Schema | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Reads the recordings as Arrow record batches, one after the other; memory is that of a batch.

        Args:
            columns: The names of the columns, in the order wanted; None for all.
            where: Filters as ``pyarrow.parquet.read_table`` takes them: ``[(column, operator, value), ...]``, of which all must
                be true, a list of such lists, of which one must be, or a ``pyarrow.compute.Expression``. Lists on
                recording_id, stream_id, session_id, position and recorded_at read only what can be true; an expression reads
                everything. Times are ``datetime`` or ISO 8601, UTC unless they have an offset.
            frames: Whether a row is a frame, not a message; there is a column ``type`` then.
            rows: The most rows of a batch.
            strict: Whether a fault raises; otherwise it is passed over, up to the next entry of the index or segment.
            codec: What decodes the payloads: a name of ``mainstem.codecs.codec_names()``, or a codec. Rows then have
                recording_id, session_id, stream_id, position, recorded_at, ``problem``, the codec's columns, ``rescued`` and, of
                messages with a problem, ``payload``; ``columns`` may name these and those of a message.
            codec_options: The options of a codec by name.
            schema: The codec's columns; None where the codec has its own, or to infer them from messages of all recordings.

        Yields:
            Record batches, none of them empty.

        Raises:
            ConfigurationError: A column or a filter is not possible.
            MissingExtraError: pyarrow is not installed.
            RecordingError: A segment is missing or damaged; names file and position.

        Example:
            ``for batch in recordings.to_batches(["payload"], [("recorded_at", ">=", "2026-01-31T12:00:00")]): ...``
        """
        reader = self.to_reader(
            columns,
            where,
            frames=frames,
            rows=rows,
            strict=strict,
            codec=codec,
            codec_options=codec_options,
            schema=schema,
        )
        return iter(reader)

    def _batches(
        self, schema: pa.Schema, chosen: RowFilter, frames: bool, rows: int, strict: bool
    ) -> Iterator[pa.RecordBatch]:
        columns = schema.names
        also = columns_of(frames=frames) if chosen.columns is None else sorted(chosen.columns)
        # Without a column a batch has no rows either: one is read to count them.
        read = list(dict.fromkeys(chain(columns, also))) or ["position"]
        names = {name: name in NULLABLE for name in read}
        for reader, start, end in self._spans(chosen.bounds, frames):
            for batch in read_rows(reader, start, end, names, frames=frames, rows_per_batch=rows, strict=strict):
                selected = batch if chosen.expression is None else batch.filter(chosen.expression)
                if selected.num_rows:
                    yield selected.select(columns)

    def spans(self, where: Any = None, *, frames: bool = False) -> Iterator[tuple[RecordingReader, int, int]]:
        """What must be read of each recording for the rows that a filter selects; for ``batches`` and ``replay_onto``.

        Args:
            where: As ``to_batches``.
            frames: As ``to_batches``.

        Yields:
            A reader with the positions to start and end at, between two messages; none where there is nothing to read.
            Bounds of recorded_at are exact to an entry of the index, so some rows may lie outside of them.

        Raises:
            ConfigurationError: A filter is not possible.
            RecordingError: A segment is missing.

        Example:
            ``for reader, start, end in recordings.spans([("stream_id", "=", 1001)]): ...``
        """
        return self._spans(row_filter(where, frames=frames).bounds, frames)

    def _spans(self, bounds: PredicateBounds, frames: bool) -> Iterator[tuple[RecordingReader, int, int]]:
        """What must be read of each recording for rows within ``bounds``."""
        for reader in self._readers:
            descriptor = reader.descriptor
            ids = (
                (bounds.recording_id, descriptor.recording_id),
                (bounds.stream_id, descriptor.stream_id),
                (bounds.session_id, descriptor.session_id),
            )
            span = scan_range_of(bounds)
            # Where it is not known when a row was recorded, no condition on that time is true.
            if any(chosen is not None and each not in chosen for chosen, each in ids) or (
                span.has_times and not reader.has_times
            ):
                continue
            start, end = span.of_times(reader, reader.start_position, reader.end_position())
            start, end = span.of_positions(reader, start, end, frames=frames)
            if start < end:
                yield reader, start, end

    def to_reader(
        self,
        columns: Iterable[str] | None = None,
        where: Any = None,
        *,
        frames: bool = False,
        rows: int = ROWS_PER_BATCH,
        strict: bool = True,
        codec: Codec | str | None = None,
        codec_options: Mapping[str, str] | None = None,
        schema: pa.Schema | None = None,
    ) -> pa.RecordBatchReader:
        """Reads the recordings as a stream that Arrow's users take: DuckDB queries it as a table, once.

        Args:
            columns: As ``to_batches``.
            where: As ``to_batches``.
            frames: As ``to_batches``.
            rows: As ``to_batches``.
            strict: As ``to_batches``.
            codec: As ``to_batches``.
            codec_options: As ``to_batches``.
            schema: As ``to_batches``.

        Returns:
            A reader of record batches; it is used up by one reading.

        Raises:
            ConfigurationError: A column or a filter is not possible.
            MissingExtraError: pyarrow is not installed.

        Example:
            >>> messages = recordings.to_reader()
            >>> duckdb.sql("select stream_id, count(*) from messages group by all")
        """
        with needs_extras():
            import pyarrow as pa

        if rows <= 0:
            raise ConfigurationError(f"rows: {rows} is not above zero")
        chosen = row_filter(where, frames=frames)
        if codec is None:
            if codec_options or schema is not None:
                raise ConfigurationError("codec_options and schema are for a codec")
            whole = arrow_schema(columns_of(frames=frames) if columns is None else columns, frames=frames)
            return pa.RecordBatchReader.from_batches(whole, self._batches(whole, chosen, frames, rows, strict))
        if frames:
            raise ConfigurationError("a codec decodes messages, not frames")
        decoding = Decoding(self._readers, columns, codec, codec_options, schema)
        batches = self._batches(arrow_schema(decoding.read, frames=False), chosen, False, rows, strict)
        decoded = (batch.select(decoding.schema.names) for batch in decoding.rows(batches))
        return pa.RecordBatchReader.from_batches(decoding.schema, decoded)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(
        self,
        columns: Iterable[str] | None = None,
        where: Any = None,
        *,
        frames: bool = False,
        strict: bool = True,
        codec: Codec | str | None = None,
        codec_options: Mapping[str, str] | None = None,
        schema: pa.Schema | None = None,
    ) -> pa.Table:
        """Reads the recordings into one Arrow table.

        Args:
            columns: As ``to_batches``.
            where: As ``to_batches``.
            frames: As ``to_batches``.
            strict: As ``to_batches``.
            codec: As ``to_batches``.
            codec_options: As ``to_batches``.
            schema: As ``to_batches``.

        Returns:
            The table; it is in memory as a whole.

        Raises:
            ConfigurationError: A column or a filter is not possible.
            MissingExtraError: pyarrow is not installed.
            RecordingError: A segment is missing or damaged.

        Example:
            ``recordings.to_arrow(["position", "payload"], [("stream_id", "in", [1001, 1002])])``
        """
        return self.to_reader(
            columns,
            where,
            frames=frames,
            strict=strict,
            codec=codec,
            codec_options=codec_options,
            schema=schema,
        ).read_all()

    def to_pandas(
        self,
        columns: Iterable[str] | None = None,
        where: Any = None,
        *,
        frames: bool = False,
        strict: bool = True,
        codec: Codec | str | None = None,
        codec_options: Mapping[str, str] | None = None,
        schema: pa.Schema | None = None,
    ) -> pd.DataFrame:
        """Reads the recordings into a pandas DataFrame.

        Args:
            columns: As ``to_batches``.
            where: As ``to_batches``.
            frames: As ``to_batches``.
            strict: As ``to_batches``.
            codec: As ``to_batches``.
            codec_options: As ``to_batches``.
            schema: As ``to_batches``.

        Returns:
            The DataFrame; it is in memory as a whole.

        Raises:
            ConfigurationError: A column or a filter is not possible.
            MissingExtraError: pyarrow or pandas is not installed.
            RecordingError: A segment is missing or damaged.

        Example:
            ``recordings.to_pandas(["recorded_at", "length"]).set_index("recorded_at").resample("1s").sum()``
        """
        with needs_extras():
            import pandas  # noqa: F401 - Arrow imports it, and does not name the extra

        table = self.to_arrow(
            columns,
            where,
            frames=frames,
            strict=strict,
            codec=codec,
            codec_options=codec_options,
            schema=schema,
        )
        return table.to_pandas()

    def to_polars(
        self,
        columns: Iterable[str] | None = None,
        where: Any = None,
        *,
        frames: bool = False,
        strict: bool = True,
        codec: Codec | str | None = None,
        codec_options: Mapping[str, str] | None = None,
        schema: pa.Schema | None = None,
    ) -> pl.DataFrame:
        """Reads the recordings into a Polars DataFrame.

        Args:
            columns: As ``to_batches``.
            where: As ``to_batches``.
            frames: As ``to_batches``.
            strict: As ``to_batches``.
            codec: As ``to_batches``.
            codec_options: As ``to_batches``.
            schema: As ``to_batches``.

        Returns:
            The DataFrame; it is in memory as a whole.

        Raises:
            ConfigurationError: A column or a filter is not possible.
            MissingExtraError: pyarrow or polars is not installed.
            RecordingError: A segment is missing or damaged.

        Example:
            ``recordings.to_polars().group_by("stream_id").len()``
        """
        with needs_extras():
            import polars as pl

        table = self.to_arrow(
            columns,
            where,
            frames=frames,
            strict=strict,
            codec=codec,
            codec_options=codec_options,
            schema=schema,
        )
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame), "a table, and not an array, went in"
        return frame

    def scan_polars(self, *, frames: bool = False, strict: bool = True) -> pl.LazyFrame:
        """Scans the recordings lazily in Polars.

        Polars pushes down the columns that the query needs, a limit (``head``) and filters. Comparisons of recording_id,
        stream_id, session_id, position and recorded_at with plain values, joined by ``&`` and ``|``, read only what can match.
        A filter after a limit reads the rows of the limit. Keep the recordings open until the query is collected.

        Args:
            frames: As ``to_batches``.
            strict: As ``to_batches``.

        Returns:
            The lazy frame; each collecting reads anew.

        Raises:
            MissingExtraError: pyarrow or polars is not installed.

        Example:
            ``recordings.scan_polars().filter(pl.col("stream_id") == 1001).select(pl.col("length").sum()).collect()``
        """
        from mainstem.recording.rows.polars_scan import scan

        return scan(self._read_within, frames=frames, strict=strict)

    def _read_within(
        self, schema: pa.Schema, bounds: PredicateBounds, frames: bool, rows: int, strict: bool
    ) -> Iterator[pa.RecordBatch]:
        return self._batches(schema, RowFilter(bounds=bounds), frames, rows, strict)


def scan_range_of(bounds: PredicateBounds) -> ScanRange:
    """The times and positions within which rows of these bounds lie."""
    times, positions = bounds.recorded_at, bounds.position
    return ScanRange(
        from_time_ns=None if times.low is None else times.low * 1000,
        to_time_ns=None if times.high is None else (times.high + 1) * 1000,
        from_position=None if positions.low is None else max(positions.low, 0),
        to_position=None if positions.high is None else max(positions.high + 1, 0),
    )


def open_recordings(location: Path | str, store_options: Mapping[str, str] | None = None) -> Recordings:
    """Open all recordings at a location.

    Args:
        location: Path or URL of a recordings directory (Mainstem's or Aeron Archive's), of a store that recordings are shipped to,
            or of ``mainstem serve``.
        store_options: Store options for URLs, under their pyarrow or Hadoop names (``fs.s3a.endpoint``). ``tail`` is the URL of
            the same archive where it grows, and ``tail.token_file`` and the like are options of that one's store.

    Returns:
        The recordings, in catalog order, archive by archive; use them as a context manager.

    Raises:
        RecordingError: There is no catalog, or it is damaged.
        StoreError: The store cannot be read.

    Example:
        >>> with open_recordings("s3://bucket/tides") as recordings:
        ...     recordings.to_polars(["stream_id", "length"])
    """
    with ExitStack() as stack:
        archives = open_archives(location, ReadOptions.parse(store_options))
        for archive in archives:
            stack.callback(archive.close)
        open_files = OpenFiles()
        readers = [
            stack.enter_context(RecordingReader(archive, descriptor, open_files=open_files))
            for archive in archives
            for descriptor in archive.recordings()
        ]
        stack.pop_all()
    return Recordings(readers, archives)


def open_recording(
    location: Path | str, recording_id: int, store_options: Mapping[str, str] | None = None
) -> RecordingReader:
    """Open one recording.

    Args:
        location: As ``open_recordings``, or the URL of one archive of a store.
        recording_id: The id in the catalog.
        store_options: As ``open_recordings``.

    Returns:
        Its reader; use it as a context manager.

    Raises:
        RecordingError: There is no such recording, or there are several, of different archives.
        StoreError: The store cannot be read.

    Example:
        ``with open_recording("s3://bucket/tides", 0) as reader: print(reader.end_position())``
    """
    with ExitStack() as stack:
        archives = open_archives(location, ReadOptions.parse(store_options))
        for archive in archives:
            stack.callback(archive.close)
        matches = [
            (archive, descriptor)
            for archive in archives
            for descriptor in archive.recordings()
            if descriptor.recording_id == recording_id
        ]
        if not matches:
            raise RecordingError(f"{location} has no recording {recording_id}")
        if len(matches) > 1:
            urls = ", ".join(archive.url for archive, _ in matches)
            raise RecordingError(f"{location} has several recordings {recording_id}, of these archives: {urls}")
        reader = RecordingReader(*matches[0])
        # The reader's archive shares its store with the others, and ends with the reader.
        stack.pop_all()
    return reader
