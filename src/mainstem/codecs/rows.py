"""Combines messages with their metadata and decoded columns into rows, for ingest, exports and DataFrames.

The columns are those of the message, ``problem``, those of the codec, ``rescued`` and ``payload``. If the codec cannot read a
message, if a value has another type than its column, or if the message has no rows, it becomes a row with the reason in
``problem``, its bytes in ``payload``, and nulls in the codec's columns. So the codec's columns are nullable even if the schema
requires a value; a message that lacks a required value becomes such a row. Fields that the schema lacks go to ``rescued``, as
JSON.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from mainstem.codecs.base import RowCodec
from mainstem.codecs.decoded import Decoded
from mainstem.codecs.limits import as_nullable, within_limits
from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import pyarrow as pa

    from mainstem.codecs.base import Codec

PROBLEM = "problem"
# The columns after the codec's: fields that the schema lacks, as JSON, and the payload if there is a problem.
RESCUE_COLUMNS = ("rescued", "payload")
# The index of a row within its message, from 0.
ROW = "mainstem.message_row"
EMPTY, NO_ROWS = "the message is empty", "the message has no rows"
NULL_MESSAGE = "there is no message"
# In characters. The row also contains the whole message.
MAX_REASON = 1000


class DecodedRows:
    """A converter from batches of messages to batches of rows. It is pickled to Spark's workers, so it holds only plain values.

    ``schema`` has the codec's columns, ``known`` the message's columns to keep, and ``payload`` names the column with the messages.
    ``columns`` are the columns to return, which may include ``ROW``; None returns all except ``ROW``. ``skips`` names a column with
    the reason why a message should not be decoded, or null to decode it. The reason becomes the row's problem; an empty reason
    means no problem. Raises ConfigurationError if a name is used twice.
    """

    def __init__(
        self,
        codec: Codec,
        schema: pa.Schema,
        known: Sequence[str],
        payload: str = "payload",
        columns: Collection[str] | None = None,
        skips: str = "",
    ) -> None:
        check_names(schema.names, known)
        if columns is not None and RESCUE_COLUMNS[0] not in columns and isinstance(codec, RowCodec):
            codec = copy(codec)
            codec.rescues = False
        self._codec, self._schema, self._known, self._payload, self._skips = codec, schema, tuple(known), payload, skips
        self._columns = None if columns is None else frozenset(columns)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield self._decoded(batch)

    def schema(self, messages: pa.Schema) -> pa.Schema:
        with needs_extras():
            import pyarrow as pa

        columns = [messages.field(name) for name in self._known]
        rest = [pa.field(RESCUE_COLUMNS[0], pa.string()), pa.field(RESCUE_COLUMNS[1], pa.binary())]
        whole = [*columns, pa.field(PROBLEM, pa.string()), *as_nullable(self._schema), *rest]
        if self._columns is None:
            return pa.schema(whole)
        whole.append(pa.field(ROW, pa.int32(), nullable=False))
        return pa.schema([item for item in whole if item.name in self._columns])

    def _decode(self, messages: pa.Array) -> Decoded:
        decode_array = _array_decoder(self._codec)
        if decode_array is not None:
            return decode_array(messages, self._schema)
        # A null is not a message, but still becomes a row.
        payloads: Any = [b"" if value is None else value for value in messages.to_pylist()]
        return self._codec.decode_batch(payloads, self._schema)

    def _decode_all_but(self, skipped: Collection[int], messages: pa.Array) -> Decoded:
        import pyarrow as pa

        if not skipped:
            return within_limits(self._decode(messages), self._schema)
        chosen = [i for i in range(len(messages)) if i not in skipped]
        if not chosen:
            return Decoded([pa.nulls(0, item.type) for item in self._schema], [])
        decoded = within_limits(self._decode(messages.take(pa.array(chosen))), self._schema)
        problems = {chosen[i]: text for i, text in decoded.problems.items()}
        return Decoded(decoded.columns, [chosen[i] for i in decoded.origins], problems, decoded.rescued)

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import numpy as np
        import pyarrow as pa

        messages, total = batch.column(self._payload), batch.num_rows
        skipped: dict[int, str] = {}
        if self._skips:
            texts = batch.column(self._skips)
            skipped = {i: text for i, text in enumerate(texts.to_pylist()) if text is not None}
        decoded = self._decode_all_but(skipped, messages)
        count, rescued = len(decoded.origins), decoded.rescued
        values = [] if decoded.origins == range(total) else messages.to_pylist()
        reasons = _reasons_for_no_rows(values, decoded) | skipped
        failed = sorted(reasons)  # each gets a row at the end, without values
        made: dict[str, Any] = {
            PROBLEM: _after_nulls(count, [_valid(reasons[i]) or None for i in failed], pa.string()),
            RESCUE_COLUMNS[1]: _after_nulls(count, [values[i] if reasons[i] else None for i in failed], pa.binary()),
            RESCUE_COLUMNS[0]: pa.array(map(rescued.get, range(count + len(failed))), pa.string())
            if rescued
            else pa.nulls(count + len(failed), pa.string()),
        }
        for column, item in zip(decoded.columns, as_nullable(self._schema), strict=True):
            whole = column if column.type == item.type else column.cast(item.type)
            if failed:
                whole = pa.chunked_array([whole, pa.nulls(len(failed), item.type)], item.type)
            made[item.name] = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
        origins = np.concatenate([np.asarray(each, np.int64) for each in (decoded.origins, failed)])
        schema = self.schema(batch.schema)
        if failed and count:
            # Restore the order of the messages.
            order = np.argsort(origins, kind="stable")
            origins, indices = origins[order], pa.array(order)
            made = {name: column.take(indices) for name, column in made.items() if name in schema.names}
        is_one_each = len(origins) == total and (np.diff(origins) == 1).all()
        for name in self._known:
            made[name] = batch.column(name) if is_one_each else batch.column(name).take(pa.array(origins))
        if ROW in schema.names:
            starts = np.flatnonzero(np.diff(origins, prepend=-1))
            firsts = np.repeat(starts, np.diff(starts, append=len(origins)))
            made[ROW] = pa.array(np.arange(len(origins)) - firsts, pa.int32())
        return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def _array_decoder(codec: Codec) -> Callable[[pa.Array, pa.Schema], Decoded] | None:
    """Return the codec's faster method for arrays, or None if it has none or a subclass overrides ``decode_batch``."""
    kind = next(each for each in type(codec).__mro__ if "decode_batch" in vars(each))
    return getattr(codec, "decode_array", None) if "decode_array" in vars(kind) else None


def _reasons_for_no_rows(values: list[Any], decoded: Decoded) -> dict[int, str]:
    """Return, by message, why it has no rows."""
    reasons = {}
    for i in set(range(len(values))).difference(decoded.origins):
        if values[i] is None:
            reasons[i] = NULL_MESSAGE
        elif not values[i]:
            reasons[i] = EMPTY
        else:
            reasons[i] = decoded.problems.get(i, NO_ROWS)
    return reasons


def _after_nulls(count: int, values: list[Any], kind: Any) -> Any:
    """Make a column of ``count`` nulls followed by these values."""
    import pyarrow as pa

    if not values:
        return pa.nulls(count, kind)
    return pa.concat_arrays([pa.nulls(count, kind), pa.array(values, kind)])


def _valid(reason: str) -> str:
    """Make a reason valid text. It may quote a lone surrogate or a whole message."""
    return reason[:MAX_REASON].encode("utf-8", "backslashreplace").decode()


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    own = (*known, PROBLEM, *RESCUE_COLUMNS)
    if reserved := sorted(set(names) & set(own)):
        raise ConfigurationError(f"the codec's column {reserved[0]!r} has a reserved name: {', '.join(own)}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise ConfigurationError(f"the codec has two columns {twice!r}")
