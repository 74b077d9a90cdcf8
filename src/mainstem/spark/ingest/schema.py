"""The codec's columns: those of the table, of the option, or inferred from a sample of the messages."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mainstem.codecs.rows import RESCUE_COLUMNS, ROW
from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording import RecordingReader
from mainstem.recording.rows.decoding import sampled
from mainstem.spark.codec_columns import check_distinct, inferred_columns, with_required
from mainstem.spark.formats.columns import difference, united
from mainstem.spark.formats.names import split_by_name
from mainstem.spark.ingest.options import META
from mainstem.spark.sources.archives import recordings_at
from mainstem.spark.sources.decoding import QUALIFIER

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from mainstem.codecs import Codec
    from mainstem.spark.ingest.options import IngestOptions
    from mainstem.spark.ingest.target import Target

# No column inferred from messages may have one of these names; such fields are rescued.
TAKEN = (*META, *RESCUE_COLUMNS, ROW, *(QUALIFIER + name for name in (*META, "timestamp")))


def codec_columns(options: IngestOptions, codec: Codec, target: Target) -> StructType:
    """The codec's columns, with those that must not be null: those of the table, else of the option, else inferred from messages.

    With ``options.evolve`` they are those of the table, and then what the option or the messages have beyond them.

    Args:
        options: Where from and where to.
        codec: What finds the columns.
        target: The table.

    Raises:
        ConfigurationError: The option differs from the table, or there is nothing to infer from.
    """
    from pyspark.sql.types import StructType

    before = target.columns()
    if options.schema:
        kind = StructType.fromDDL(options.schema)
    elif before is not None and not options.evolve:
        kind = before
    else:
        kind, _ = split_by_name(_inferred(options, codec, before), target.rules.name_key, before)
    check_distinct(kind.names, (*META, *RESCUE_COLUMNS))
    kind = target.rules.stored(kind)
    if before is not None:
        if options.evolve:
            kind = united(before, kind, target.rules.widens, strict=bool(options.schema))
        elif change := difference(before, kind):
            raise ConfigurationError(
                f"--schema: {options.out} was begun with another one: {change}; --evolve adds columns, or name another --out"
            )
    if options.schema:
        # The table's columns are nullable, as problem rows are in it too.
        kind = with_required(kind, StructType.fromDDL(options.schema))
    return kind


def _inferred(options: IngestOptions, codec: Codec, before: StructType | None) -> StructType:
    try:
        return inferred_columns(codec, sample(options), TAKEN)
    except ValueError as error:
        if before is not None:
            return before
        raise ConfigurationError(f"codec {options.codec!r}: {error}; --schema says what the columns are") from None


def sample(options: IngestOptions) -> list[bytes]:
    """Messages of every recording that is read, from several places of each; none where there are none."""
    payloads: list[bytes] = []
    if not options.recordings:
        return payloads
    with recordings_at(options.reading) as recordings:
        chosen = [each for each in recordings if not options.streams or each[1].stream_id in options.streams]
        for archive, descriptor in chosen:
            # A fault is met again when the messages are read.
            with suppress(RecordingError), RecordingReader(archive, descriptor) as reader:
                payloads += sampled(reader, len(chosen))
    return payloads
