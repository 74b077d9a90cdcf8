"""JSON lines."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import compress
from operator import methodcaller, not_
from typing import TYPE_CHECKING, Any

from mainstem.codecs.base import Decoded, RowCodec
from mainstem.codecs.exact import exact_array, exact_leaf, shown
from mainstem.codecs.json_prefilter import Prefilter
from mainstem.codecs.json_read import read_exactly
from mainstem.codecs.limits import as_nullable, within_limits
from mainstem.codecs.numerals import as_text, integer_of, number_of, text_array
from mainstem.codecs.rescued import rescue
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

# Where Arrow refuses some messages they are cut into pieces until so few are left, which are read one by one.
FEWEST_AT_ONCE = 128
PIECES = 32
# To compile the screen takes as long as to read some hundred messages one by one.
FEWEST_SCREENED = 1024
# Beyond this part of the messages most of the time goes into reading one by one, whatever the others cost.
MOST_KEPT_BACK = 0.5


class JsonLines(RowCodec):
    """A message is a JSON object, or several, each on a line of its own.

    Arrow's parser reads many messages at once. It is strict about types but not about digits, so messages with a number that it
    may have rounded are read again, singly. If it refuses any line, the lines are screened: suspicious ones are read singly,
    the others at once. If it still refuses, the messages are split into pieces. The rows do not depend on the way.
    """

    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        return [_object(line) for line in payload.splitlines() if line.strip()]

    def encode(self, row: dict[str, Any]) -> bytes:
        """Encode the row as one line. Times and decimals become text, as ``column`` reads them; bytes must be UTF-8."""
        text = _ENCODER.encode(_of_json(row, ""))
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"half a surrogate pair has no UTF-8: {error.reason}") from None

    def decode_batch(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        parts = list(self._parts(payloads, 0, as_nullable(schema)))
        return within_limits(parts[0][1] if len(parts) == 1 else _joined(parts, schema), schema)

    def _parts(self, payloads: Sequence[bytes], first: int, schema: pa.Schema) -> Iterator[tuple[int, Decoded]]:
        count = len(payloads)
        if count > FEWEST_AT_ONCE:
            lines, origins = _lines(payloads)
            part = self._at_once(payloads, lines, origins, schema)
            if part is None and count >= FEWEST_SCREENED:
                part = self._screened(payloads, lines, origins, schema)
            if part is not None:
                yield first, part
                return
            size = max(-(-count // PIECES), FEWEST_AT_ONCE)
            for start in range(0, count, size):
                yield from self._parts(payloads[start : start + size], first + start, schema)
        else:
            yield first, super().decode_batch(payloads, schema)

    def _screened(
        self, payloads: Sequence[bytes], lines: list[bytes], origins: list[int], schema: pa.Schema
    ) -> Decoded | None:
        """The messages that the screen passes at once, the others singly; None if that is not possible."""
        passes = Prefilter(schema).accepts(lines)
        slow = set(compress(origins, map(not_, passes)))
        if not slow or len(slow) > len(payloads) * MOST_KEPT_BACK:
            return None
        return self._at_once(payloads, lines, origins, schema, slow)

    def _at_once(
        self,
        payloads: Sequence[bytes],
        lines: list[bytes],
        origins: list[int],
        schema: pa.Schema,
        slow: Collection[int] = (),
    ) -> Decoded | None:
        """All messages by Arrow's parser, except those in ``slow`` and those that it may have read inexactly.

        None if it refuses a line, or would read one differently from ``decode``. With ``slow`` the lines are screened.
        """
        import pyarrow as pa

        if slow:
            # All lines of a message, or none.
            passes = [origin not in slow for origin in origins]
            lines, origins = list(compress(lines, passes)), list(compress(origins, passes))
        data = b"\n".join(lines)
        # With these ends, as many rows as lines means one object a line.
        if data[:1] != b"{" or data[-1:] != b"}" or data.count(b"}\n{") != len(lines) - 1:
            return None
        try:
            if not slow:
                # Arrow takes lines that are not UTF-8. The screen does not.
                data.decode()
            table, doubtful = read_exactly(lines, data, schema)
        except (ValueError, pa.ArrowException):
            return None
        texts, unread = _rescued(lines, table, schema)
        slow = {*slow, *(origins[row] for row in (*doubtful, *unread))}
        kept = [row for row, origin in enumerate(origins) if origin not in slow]
        columns = [table.column(i).combine_chunks() for i in range(len(schema))]
        if len(kept) < len(lines):
            columns = [column.take(pa.array(kept, pa.int64())) for column in columns]
        places = dict(zip(kept, range(len(kept)), strict=True)) if texts else {}
        rescued = {places[row]: text for row, text in texts.items() if row in places}
        fast = Decoded(columns, [origins[row] for row in kept], {}, rescued)
        if not slow:
            return fast
        one_by_one = sorted(slow)
        return _merged(fast, super().decode_batch([payloads[i] for i in one_by_one], schema), one_by_one)

    def column(self, values: list[Any], kind: Any) -> Any:
        return exact_array(values, kind, _leaf)


def _leaf(values: list[Any], kind: Any) -> Any:
    import pyarrow.types as is_

    types = set(map(type, values)) - {type(None)}
    if is_.is_temporal(kind) and types <= {str}:
        return text_array(values, kind)
    if is_.is_integer(kind) and types & {str, float}:
        values = [_as_integer(each, kind) for each in values]
    if (is_.is_decimal(kind) and types <= {str, int, float, Decimal}) or (
        is_.is_floating(kind) and types <= {str, int, float, Decimal} and (types != {float} or kind.bit_width < 64)
    ):
        return text_array([None if value is None else str(value) for value in values], kind)
    return exact_leaf(values, kind)


def _as_integer(value: Any, kind: Any) -> Any:
    """A value for an integer column. Many applications write 64-bit numbers as text, since JavaScript rounds them."""
    if isinstance(value, str):
        return text_array([value], kind)[0].as_py()
    # What was sent is what a float prints. From 2**53 on its own value may be another integer.
    return Decimal(repr(value)) if isinstance(value, float) else value


# JSON has four characters of white space; Python strips more.
_STRIP = methodcaller("strip", b" \t\r\n")


def _lines(payloads: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
    lines = list(map(_STRIP, payloads))
    whole = b"".join(lines)
    if b"\n" not in whole and b"\r" not in whole and all(lines):
        return lines, list(range(len(lines)))
    pairs = [(text, i) for i, each in enumerate(lines) for line in each.splitlines() if (text := _STRIP(line))]
    return [text for text, _ in pairs], [i for _, i in pairs]


def _rescued(lines: list[bytes], table: pa.Table, schema: pa.Schema) -> tuple[dict[int, str], list[int]]:
    """The fields that the schema lacks, by row, and the rows in which they cannot be read."""
    # Arrow has inferred types for them; the text is what is kept.
    extra = [table.column(i).is_valid().to_numpy() for i in range(len(schema), table.num_columns)]
    rows: list[dict[str, Any]] = []
    indices: list[int] = []
    unread: list[int] = []
    for index in sorted({index for each in extra for index in each.nonzero()[0].tolist()}):
        try:
            rows.append(_object(lines[index]))
            indices.append(index)
        except (ValueError, RecursionError):
            unread.append(index)
    texts, reasons = rescue(rows, schema)
    return {indices[row]: text for row, text in texts.items()}, unread + [indices[row] for row in reasons]


def _joined(parts: Sequence[tuple[int, Decoded]], schema: pa.Schema) -> Decoded:
    """Concatenate parts, each with the index of its first message."""
    import pyarrow as pa

    whole = Decoded([], [])
    for first, part in parts:
        whole.rescued |= {len(whole.origins) + row: text for row, text in part.rescued.items()}
        whole.problems |= {first + message: text for message, text in part.problems.items()}
        whole.origins += [first + message for message in part.origins]
    for i in range(len(schema)):
        whole.columns.append(pa.chunked_array([part.columns[i] for _, part in parts]).combine_chunks())
    return whole


def _merged(first: Decoded, second: Decoded, seconds: list[int]) -> Decoded:
    """Merge the rows of two parts in the order of the messages; those of ``second`` are at ``seconds``."""
    import numpy as np
    import pyarrow as pa

    origins = np.concatenate(
        [np.asarray(first.origins, np.int64), np.asarray(seconds, np.int64)[np.asarray(second.origins, np.int64)]]
    )
    order = np.argsort(origins, kind="stable")
    indices = pa.array(order)
    columns = [pa.concat_arrays(pair).take(indices) for pair in zip(first.columns, second.columns, strict=True)]
    rescued: dict[int, str] = {}
    if first.rescued or second.rescued:
        place = {row: k for k, row in enumerate(order.tolist())}
        rescued = {place[row]: text for row, text in first.rescued.items()}
        rescued |= {place[len(first.origins) + row]: text for row, text in second.rescued.items()}
    return Decoded(columns, origins[order].tolist(), {seconds[i]: text for i, text in second.problems.items()}, rescued)


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = _DECODER.decode(line.decode())
    except json.JSONDecodeError as error:
        raise ValueError(f"the message is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("the message has too many values inside each other") from None
    if not isinstance(value, dict):
        raise ValueError(f"a line must be a JSON object (got {shown(value)})")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return fields


def _integer(text: str) -> int | float:
    # Only a float has a negative zero.
    return -0.0 if text == "-0" else integer_of(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_float=number_of, parse_int=_integer)


# NaN and infinities are no JSON: ``column`` would not read them as the same value.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _of_json(value: Any, name: str) -> Any:
    """A value as JSON. Raises ConfigurationError if it would not be read back as the same value."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise ConfigurationError(f"{name}: a name in JSON is text, not {wrong[0]!r:.60}")
        return {key: _of_json(each, f"{name}.{key}" if name else key) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_of_json(each, f"{name}[]") for each in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ConfigurationError(
                f"{name}: JSON has no bytes, and these are no UTF-8: encode them as text"
            ) from None
    return as_text(value, name, "JSON")
