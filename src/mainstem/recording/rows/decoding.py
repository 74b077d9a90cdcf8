"""The columns of a decoded recording: those of the message, and those of the codec."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from mainstem.codecs import find_codec
from mainstem.codecs.inference import distinct
from mainstem.codecs.rows import PROBLEM, RESCUE_COLUMNS, DecodedRows
from mainstem.errors import ConfigurationError, RecordingError, needs_extras
from mainstem.recording.rows.batches import messages
from mainstem.recording.rows.schema import arrow_schema, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from mainstem.codecs import Codec
    from mainstem.recording.reader import RecordingReader

# The default columns of a message, as in the table of ``mainstem ingest``.
KNOWN = ("recording_id", "session_id", "stream_id", "position", "recorded_at")
# How many messages to infer a schema from, if none is given. They are taken from all recordings, at ``SAMPLE_POINTS`` points of
# each, and at least ``LEAST_SAMPLE`` from each.
SAMPLE = 4000
SAMPLE_POINTS = 4
LEAST_SAMPLE = 64


class Decoding:
    def __init__(
        self,
        readers: Sequence[RecordingReader],
        columns: Iterable[str] | None,
        codec: Codec | str,
        options: Mapping[str, str] | None,
        schema: pa.Schema | None,
    ) -> None:
        if not isinstance(codec, str) and options:
            raise ConfigurationError("codec_options need the name of a codec; this codec has its own")
        self._codec = find_codec(codec, options) if isinstance(codec, str) else codec
        names = None if columns is None else list(columns)
        known = KNOWN if names is None else [name for name in names if name in columns_of(frames=False)]
        self.known = [name for name in known if name != "payload"]
        if schema is None:
            try:
                schema = distinct(self._codec.schema(sample(readers)), (*self.known, PROBLEM, *RESCUE_COLUMNS))
            except ConfigurationError:
                raise
            except ValueError as error:
                name = codec if isinstance(codec, str) else type(codec).__name__
                raise ConfigurationError(f"codec {name!r}: {error}; pass the columns as schema=") from None
        with needs_extras():
            import pyarrow as pa

        self._schema: Any = schema
        read, rows = self.of(self.known)
        whole = rows.schema(arrow_schema(read, frames=False))
        if names is not None and (unknown := [name for name in names if name not in whole.names]):
            also = [name for name in columns_of(frames=False) if name not in whole.names]
            raise ConfigurationError(f"there is no column {unknown[0]!r}; there are {', '.join([*whole.names, *also])}")
        #: The columns of the rows.
        self.schema: Any = whole if names is None else pa.schema([whole.field(name) for name in names])

    def of(self, names: Sequence[str]) -> tuple[list[str], DecodedRows]:
        """Return the message columns to read for ``names``, and the decoder that makes rows with them."""
        known = [name for name in self.known if name in names]
        return [*known, "payload"], DecodedRows(self._codec, self._schema, known)


def sample(readers: Sequence[RecordingReader]) -> list[bytes]:
    """Return messages from several points of every recording."""
    return [payload for reader in readers for payload in sampled(reader, len(readers))]


def sampled(reader: RecordingReader, recordings: int) -> list[bytes]:
    count = max(SAMPLE // max(recordings, 1), LEAST_SAMPLE) // SAMPLE_POINTS
    payloads: list[bytes] = []
    # Ignore a problem here. It is found again when the messages are read.
    with suppress(RecordingError):
        start, end = reader.start_position, reader.end_position()
        starts = [reader.advance(start, start + (end - start) * i // SAMPLE_POINTS) for i in range(SAMPLE_POINTS)]
        for first, last in pairwise([*starts, end]):
            payloads += (payload for _, payload in islice(messages(reader, first, last), count))
    return payloads
