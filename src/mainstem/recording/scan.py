"""A scan: a lazy selection of rows and columns of recordings, which can be read in several forms."""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError, needs_extras
from mainstem.recording.rows.arrow import read_rows
from mainstem.recording.rows.decoding import Decoding
from mainstem.recording.rows.filters import EVERYTHING, PredicateBounds, bounds_of, row_filter
from mainstem.recording.rows.scan_range import ranges_within
from mainstem.recording.rows.schema import NULLABLE, arrow_schema, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from mainstem.codecs import Codec
    from mainstem.recording.reader import RecordingReader
    from mainstem.recording.rows.batches import SkippedRange

log = logging.getLogger("mainstem.recording")

# Rows per record batch: enough that the cost per batch is small, few enough to stay in the cache.
ROWS_PER_BATCH = 20_000
# Used if a query of Polars does not pass a batch size.
POLARS_ROWS_PER_BATCH = 50_000


def _log_skip(reader: RecordingReader, skipped: SkippedRange) -> None:
    log.warning(
        "recording %d: %d bytes are skipped, positions %d to %d: %s",
        reader.descriptor.recording_id,
        skipped.end - skipped.start,
        skipped.start,
        skipped.end,
        skipped.reason,
    )


class Scan:
    """Rows of recordings, selected by ``Recordings.scan``. Each method reads what is recorded when it is called.

    A scan has Arrow's stream interface, so DuckDB, Polars and others accept it as a table. Keep the recordings open while it is
    read.

    Example:
        >>> trades = recordings.scan(codec="avro", codec_options={"schema": "trade.avsc"})
        >>> trades.to_polars().filter(pl.col("price") > 100).collect()
    """

    def __init__(
        self,
        readers: Sequence[RecordingReader],
        columns: Iterable[str] | None,
        where: Any,
        ids: Mapping[str, int | None],
        *,
        frames: bool,
        strict: bool,
        codec: Codec | str | None,
        codec_options: Mapping[str, str] | None,
        schema: pa.Schema | None,
    ) -> None:
        self._readers, self._frames, self._strict = readers, frames, strict
        self._filter = row_filter(where, ids, frames=frames)
        self._decoding: Decoding | None = None
        if codec is not None:
            if frames:
                raise ConfigurationError("a codec decodes messages, not frames")
            self._decoding = Decoding(readers, columns, codec, codec_options, schema)
        elif codec_options or schema is not None:
            raise ConfigurationError("codec_options and schema need a codec")
        names = columns_of(frames=frames) if columns is None else columns
        #: The columns of the rows.
        self.schema: pa.Schema = arrow_schema(names, frames=frames) if self._decoding is None else self._decoding.schema

    def to_reader(self, *, rows: int = ROWS_PER_BATCH) -> pa.RecordBatchReader:
        """Read the rows as a stream of record batches, using the memory of one batch.

        Args:
            rows: The maximum number of rows per batch.

        Returns:
            A reader of nonempty record batches. It can be read once.

        Raises:
            ConfigurationError: ``rows`` is less than 1.
            RecordingError: While reading: a segment is missing or corrupt. The error names file and position.
        """
        import pyarrow as pa

        if rows <= 0:
            raise ConfigurationError(f"rows must be above 0 (got {rows})")
        return pa.RecordBatchReader.from_batches(self.schema, self._batches(self.schema.names, EVERYTHING, rows))

    def to_batches(self, *, rows: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
        """Like ``to_reader``, as an iterator.

        Args:
            rows: The maximum number of rows per batch.

        Returns:
            An iterator over record batches.

        Raises:
            ConfigurationError: ``rows`` is less than 1.
            RecordingError: While reading: a segment is missing or corrupt.
        """
        return iter(self.to_reader(rows=rows))

    def to_arrow(self) -> pa.Table:
        """Read all rows into an Arrow table.

        Returns:
            The table.

        Raises:
            RecordingError: A segment is missing or corrupt.
        """
        return self.to_reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Read all rows into a pandas DataFrame.

        Returns:
            The DataFrame.

        Raises:
            MissingExtraError: pandas is not installed.
            RecordingError: A segment is missing or corrupt.
        """
        with needs_extras():
            import pandas  # noqa: F401 - Arrow imports it, and does not name the extra

        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.LazyFrame:
        """Return the rows as a lazy frame of Polars; ``collect()`` reads them.

        Polars pushes down the columns that the query needs, a limit (``head``) and filters. Comparisons of recording_id,
        stream_id, session_id, position and recorded_at with constants, joined by ``&`` and ``|``, read only what can match.
        If a filter follows a limit, all rows up to the limit are read.

        Returns:
            The lazy frame; each ``collect()`` reads again.

        Raises:
            MissingExtraError: polars is not installed.
        """
        with needs_extras():
            import polars as pl
            from polars.io.plugins import register_io_source

        empty = pl.from_arrow(self.schema.empty_table())
        assert isinstance(empty, pl.DataFrame), "a table, and not an array, went in"
        return register_io_source(self._polars_frames, schema=empty.schema)

    def _polars_frames(
        self, columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        """Yield what a query of Polars needs.

        Polars passes a limit together with a predicate only if the limit comes first: `head(n).filter(p)` takes n rows, then
        filters them.
        """
        import polars as pl
        import pyarrow as pa

        chosen = self.schema.names if columns is None else columns
        # The predicate is applied here, so its columns are read too.
        also = [] if predicate is None else sorted(set(predicate.meta.root_names()).difference(chosen))
        # Rows that the predicate excludes count toward the limit, so they have to be read too.
        bounds = EVERYTHING if predicate is None or n_rows is not None else bounds_of(predicate)
        left = n_rows
        for batch in self._batches([*chosen, *also], bounds, batch_size or POLARS_ROWS_PER_BATCH):
            # Unlike a batch, a table without columns keeps its number of rows in Polars.
            frame = pl.from_arrow(pa.Table.from_batches([batch]))
            assert isinstance(frame, pl.DataFrame), "a table, and not an array, went in"
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.drop(also)
            if left == 0:
                return

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _batches(self, names: Sequence[str], bounds: PredicateBounds, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of up to ``rows`` messages within the filter and the bounds, with the given columns."""
        if self._decoding is None:
            yield from self._messages(names, bounds, rows)
            return
        read, decode = self._decoding.of(names)
        for batch in decode(self._messages(read, bounds, rows)):
            yield batch.select(names)

    def _messages(self, names: Sequence[str], bounds: PredicateBounds, rows: int) -> Iterator[pa.RecordBatch]:
        expression, frames = self._filter.expression, self._frames
        filtered = columns_of(frames=frames) if self._filter.columns is None else sorted(self._filter.columns)
        # A batch without columns has no rows either, so one column is read to count them.
        read = list(dict.fromkeys(chain(names, filtered))) or ["position"]
        nullable = {name: name in NULLABLE for name in read}
        for reader, start, end in ranges_within(self._readers, self._filter.bounds & bounds, frames=frames):
            for batch in read_rows(
                reader,
                start,
                end,
                nullable,
                frames=frames,
                rows_per_batch=rows,
                strict=self._strict,
                on_skip=partial(_log_skip, reader),
            ):
                selected = batch if expression is None else batch.filter(expression)
                if selected.num_rows:
                    yield selected.select(names)
