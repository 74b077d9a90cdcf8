"""The recordings at a location: one reader for each, and all of them as a table."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, overload

from mainstem.errors import RecordingError, RecordingNotFound
from mainstem.recording.open_archives import ReadOptions, open_archives
from mainstem.recording.reader import OpenFiles, RecordingReader
from mainstem.recording.rows.batches import messages
from mainstem.recording.rows.filters import bounds_of_ids, row_filter
from mainstem.recording.rows.scan_range import ranges_within
from mainstem.recording.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from mainstem.codecs import Codec
    from mainstem.recording.archive import Archive


class Recordings:
    """The recordings at a location, as ``open_recordings`` returns them. Use it as a context manager.

    Its items are a reader for each recording. As a table, it has a row for each message, in order within each
    recording, with the columns of the Spark source: recording_id, session_id, stream_id, position (the end of the message in
    bytes), term_id, term_offset, flags, reserved_value, recorded_at (UTC, null if unknown), length and payload. Each
    read covers what is recorded when it begins. Recordings that start later appear in the next ``open_recordings``.

    It has Arrow's stream interface, so DuckDB, Polars and others accept the object itself as a table.

    Args:
        readers: A reader for each recording; they are closed with this object.
        archives: The archives to close with this object, including those without recordings.

    Example:
        >>> with mainstem.open_recordings("tides") as recordings:
        ...     table = recordings.to_arrow(["position", "payload"], stream_id=1001)
        ...     trades = recordings.to_polars(codec="avro", codec_options={"schema": "trade.avsc"}).collect()
    """

    def __init__(self, readers: Iterable[RecordingReader], archives: Iterable[Archive]) -> None:
        self._readers, self._archives = list(readers), list(archives)

    def __repr__(self) -> str:
        return f"<Recordings of {len(self._readers)} recordings>"

    def __enter__(self) -> Recordings:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every reader and archive. Idempotent."""
        with ExitStack() as stack:
            for archive in self._archives:
                stack.callback(archive.close)
            for reader in self._readers:
                stack.callback(reader.close)

    def __len__(self) -> int:
        return len(self._readers)

    def __iter__(self) -> Iterator[RecordingReader]:
        return iter(self._readers)

    @overload
    def __getitem__(self, index: int) -> RecordingReader: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordingReader]: ...
    def __getitem__(self, index: int | slice) -> RecordingReader | list[RecordingReader]:
        return self._readers[index]

    def scan(
        self,
        columns: Iterable[str] | None = None,
        where: Any = None,
        *,
        stream_id: int | None = None,
        session_id: int | None = None,
        recording_id: int | None = None,
        frames: bool = False,
        strict: bool = True,
        codec: Codec | str | None = None,
        codec_options: Mapping[str, str] | None = None,
        schema: pa.Schema | None = None,
    ) -> Scan:
        """Select rows and columns, to read them in batches, or several times.

        Args:
            columns: The names of the columns, in the desired order; None for all.
            where: Filters as in ``pyarrow.parquet.read_table``: a list ``[(column, operator, value), ...]`` whose filters must all
                be true; a list of such lists, one of which must be true; or a ``pyarrow.compute.Expression``. Lists on
                recording_id, stream_id, session_id, position and recorded_at read only what can match; an expression reads
                everything. Times are ``datetime`` or ISO 8601, UTC unless they have an offset.
            stream_id: Only messages of this stream.
            session_id: Only messages of this session.
            recording_id: Only messages of this recording.
            frames: Whether a row is a frame instead of a message. There is an additional column ``type`` then.
            strict: Whether corrupt or missing data raises. Otherwise, it is skipped up to the next message that can be read, and
                the skipped positions are logged.
            codec: The codec that decodes the payloads: a name from ``mainstem.codecs.codec_names()``, or a codec. Rows then have
                recording_id, session_id, stream_id, position, recorded_at, ``problem``, the codec's columns, ``rescued`` and, for
                messages with a problem, ``payload``. ``columns`` can name these and the columns of a message.
            codec_options: The options of a codec that is given by name.
            schema: The codec's columns; None if the codec has its own, or to infer them from messages of all recordings.

        Returns:
            The scan. Nothing is read yet, except messages to infer a schema from.

        Raises:
            ConfigurationError: A column, a filter or a codec is invalid.
            MissingExtraError: pyarrow is not installed.
        """
        return Scan(
            self._readers,
            columns,
            where,
            {"stream_id": stream_id, "session_id": session_id, "recording_id": recording_id},
            frames=frames,
            strict=strict,
            codec=codec,
            codec_options=codec_options,
            schema=schema,
        )

    def to_arrow(self, columns: Iterable[str] | None = None, where: Any = None, **options: Any) -> pa.Table:
        """Read rows into an Arrow table.

        Args:
            columns: As for ``scan``.
            where: As for ``scan``.
            **options: As for ``scan``.

        Returns:
            The table.

        Raises:
            ConfigurationError: A column, a filter or a codec is invalid.
            MissingExtraError: pyarrow is not installed.
            RecordingError: A segment is missing or corrupt.
        """
        return self.scan(columns, where, **options).to_arrow()

    def to_polars(self, columns: Iterable[str] | None = None, where: Any = None, **options: Any) -> pl.LazyFrame:
        """Return rows as a lazy frame of Polars; ``collect()`` reads them. See `Scan.to_polars`.

        Args:
            columns: As for ``scan``.
            where: As for ``scan``.
            **options: As for ``scan``.

        Returns:
            The lazy frame.

        Raises:
            ConfigurationError: A column, a filter or a codec is invalid.
            MissingExtraError: pyarrow or polars is not installed.
        """
        return self.scan(columns, where, **options).to_polars()

    def to_pandas(self, columns: Iterable[str] | None = None, where: Any = None, **options: Any) -> pd.DataFrame:
        """Read rows into a pandas DataFrame.

        Args:
            columns: As for ``scan``.
            where: As for ``scan``.
            **options: As for ``scan``.

        Returns:
            The DataFrame.

        Raises:
            ConfigurationError: A column, a filter or a codec is invalid.
            MissingExtraError: pyarrow or pandas is not installed.
            RecordingError: A segment is missing or corrupt.
        """
        return self.scan(columns, where, **options).to_pandas()

    def messages(
        self, *, stream_id: int | None = None, session_id: int | None = None, recording_id: int | None = None
    ) -> Iterator[bytes]:
        """Iterate over the payloads of messages, recording by recording, and in order within each. Needs no extra.

        Args:
            stream_id: Only messages of this stream.
            session_id: Only messages of this session.
            recording_id: Only messages of this recording.

        Returns:
            An iterator over payloads.

        Raises:
            ConfigurationError: An id is not an integer.
            RecordingError: While iterating: a segment is missing or corrupt. The error names file and position.

        Example:
            >>> for payload in recordings.messages(stream_id=1001):
            ...     print(payload.decode())
        """
        ids = {"stream_id": stream_id, "session_id": session_id, "recording_id": recording_id}
        ranges = ranges_within(self._readers, bounds_of_ids(ids), frames=False)
        return (payload for reader, start, end in ranges for _, payload in messages(reader, start, end))

    def spans(self, where: Any = None, *, frames: bool = False) -> Iterator[tuple[RecordingReader, int, int]]:
        """Yield the range of each recording that has the rows that a filter selects, for ``batches`` and ``replay``.

        A filter on session_id yields the ranges of those sessions, of which an extended recording can have several.

        Args:
            where: As for ``scan``.
            frames: As for ``scan``.

        Yields:
            A reader with its start and end positions, which are between two messages. Recordings without such rows are skipped.
            Bounds of recorded_at are exact to an index entry, so a range can have some rows outside of them.

        Raises:
            ConfigurationError: A filter is invalid.
            RecordingError: A segment is missing.
        """
        return ranges_within(self._readers, row_filter(where, frames=frames).bounds, frames=frames)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        # pandas asks for an array, and would otherwise make a row for each recording.
        raise TypeError("recordings are not an array: call to_pandas(), or pass them to Polars or pyarrow.table()")


def open_recordings(location: Path | str, store_options: Mapping[str, str] | None = None) -> Recordings:
    """Open all recordings at a location.

    Args:
        location: Path or URL of a recordings directory (Mainstem's or Aeron Archive's), of a store that recordings are shipped to,
            of ``mainstem serve``, or of a running archive (``aeron-archive://host:port``).
        store_options: Store options for URLs, under their pyarrow or Hadoop names (``fs.s3a.endpoint``). ``tail`` is the URL where
            the same archive grows, and options such as ``tail.token_file`` apply to the store of the tail.

    Returns:
        The recordings, in catalog order, archive by archive; use them as a context manager.

    Raises:
        RecordingError: There is no catalog, or it is corrupt.
        StoreError: The store cannot be read.

    Example:
        >>> with open_recordings("s3://bucket/tides") as recordings:
        ...     recordings.to_arrow(["stream_id", "length"])
    """
    with _opened(location, store_options) as archives:
        open_files = OpenFiles()
        readers = [
            RecordingReader(archive, descriptor, open_files=open_files)
            for archive in archives
            for descriptor in archive.recordings()
        ]
    return Recordings(readers, archives)


def open_recording(
    location: Path | str, recording_id: int, store_options: Mapping[str, str] | None = None
) -> RecordingReader:
    """Open one recording.

    Args:
        location: As for ``open_recordings``, or the URL of one archive in a store.
        recording_id: The id of the recording in the catalog.
        store_options: As for ``open_recordings``.

    Returns:
        The reader of the recording; use it as a context manager.

    Raises:
        RecordingError: There is no such recording, or several archives have one.
        StoreError: The store cannot be read.

    Example:
        ``with open_recording("s3://bucket/tides", 0) as reader: print(reader.end_position())``
    """
    with _opened(location, store_options) as archives:
        matches = [
            (archive, descriptor)
            for archive in archives
            for descriptor in archive.recordings()
            if descriptor.recording_id == recording_id
        ]
        if not matches:
            raise RecordingNotFound(f"{location} has no recording {recording_id}")
        if len(matches) > 1:
            urls = ", ".join(archive.url for archive, _ in matches)
            raise RecordingError(f"{location} has several recordings {recording_id}, of these archives: {urls}")
    # The reader's archive shares its store with the other archives, and is closed with the reader.
    return RecordingReader(*matches[0], owns_archive=True)


@contextmanager
def _opened(location: Path | str, store_options: Mapping[str, str] | None) -> Iterator[list[Archive]]:
    """Yield the archives at a location, and close them if the block fails."""
    with ExitStack() as stack:
        archives = open_archives(location, ReadOptions.parse(store_options))
        for archive in archives:
            stack.callback(archive.close)
        yield archives
        stack.pop_all()
