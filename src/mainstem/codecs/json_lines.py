"""The codec for JSON lines."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import compress
from operator import methodcaller, not_
from typing import TYPE_CHECKING, Any

from mainstem._internal.error_texts import json_problem
from mainstem.codecs.base import RowCodec, decodes, rescue
from mainstem.codecs.decoded import Decoded
from mainstem.codecs.exact import exact_array, exact_leaf, shown
from mainstem.codecs.json_read import Lines, Prefilter, read_exactly, whole
from mainstem.codecs.limits import as_nullable, within_limits
from mainstem.codecs.numerals import as_text, integer_of, number_of, text_array
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

# If Arrow refuses some messages, they are split into pieces until this many are left, which are read one by one.
FEWEST_AT_ONCE = 128
PIECES = 32
# Compiling the prefilter takes as long as reading several hundred messages one by one.
FEWEST_SCREENED = 1024
# If the prefilter rejects a larger fraction of the messages, most time is spent on reading one by one anyway.
MOST_KEPT_BACK = 0.5


class JsonLines(RowCodec):
    """The codec for messages that contain one or more JSON objects, each on its own line.

    Arrow's parser reads many messages at once. It is strict about types but not about digits, so messages with a number that it may
    have rounded are read again, one by one. If Arrow refuses any line, a prefilter selects suspicious lines; those are read one by
    one, and the others at once. If Arrow still refuses, the messages are split into pieces. The rows are the same in every case.
    """

    @decodes
    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        return [_object(line) for line in payload.splitlines() if line.strip()]

    def encode(self, row: dict[str, Any]) -> bytes:
        """Encode the row as one line. Times and decimals become text that ``column`` can read. Bytes must be UTF-8."""
        text = _ENCODER.encode(_of_json(row, ""))
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"half a surrogate pair has no UTF-8: {error.reason}") from None

    def decode_batch(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        return self._decoded(self._parts(payloads, as_nullable(schema)), schema)

    def decode_array(self, payloads: pa.Array, schema: pa.Schema) -> Decoded:
        """Like ``decode_batch``, for an array of bytes, whose nulls have no rows.

        If each message is one line, no Python objects are created for messages.
        """
        nullable, lines = as_nullable(schema), _lines_of_array(payloads)
        part = None if lines is None else self._at_once(lines, lines, nullable)
        if part is not None:
            return within_limits(part, schema)
        values = [b"" if value is None else value for value in payloads.to_pylist()]
        return self._decoded(self._parts(values, nullable, refused=lines), schema)

    def _decoded(self, parts: Iterable[tuple[int, Decoded]], schema: pa.Schema) -> Decoded:
        several = list(parts)
        return within_limits(several[0][1] if len(several) == 1 else _joined(several, schema), schema)

    def _parts(
        self, payloads: Sequence[bytes], schema: pa.Schema, first: int = 0, refused: Lines | None = None
    ) -> Iterator[tuple[int, Decoded]]:
        """Decode the messages in as few parts as possible. ``refused`` are their lines if Arrow has already refused them."""
        count = len(payloads)
        if count > FEWEST_AT_ONCE:
            lines = refused or _lines(payloads)
            part = None if refused else self._at_once(payloads, lines, schema)
            if part is None and count >= FEWEST_SCREENED:
                part = self._screened(payloads, lines, schema)
            if part is not None:
                yield first, part
                return
            size = max(-(-count // PIECES), FEWEST_AT_ONCE)
            for start in range(0, count, size):
                yield from self._parts(payloads[start : start + size], schema, first + start)
        else:
            yield first, self._one_by_one(payloads, schema)

    def _screened(self, payloads: Sequence[bytes], lines: Lines, schema: pa.Schema) -> Decoded | None:
        """Decode the messages that pass the prefilter at once, and the others one by one. Returns None if that is not possible."""
        passes = Prefilter(schema).accepts(list(lines))
        slow = set(compress(lines.origins, map(not_, passes)))
        if not slow or len(slow) > len(payloads) * MOST_KEPT_BACK:
            return None
        return self._at_once(payloads, lines, schema, slow)

    def _at_once(
        self, payloads: Sequence[bytes] | Lines, lines: Lines, schema: pa.Schema, slow: Collection[int] = ()
    ) -> Decoded | None:
        """Decode all messages with Arrow's parser, except those in ``slow`` and those that it may have read inexactly.

        Returns None if Arrow refuses a line or would read one differently from ``decode``. With ``slow``, the lines have passed the
        prefilter.
        """
        import pyarrow as pa

        if slow:
            # Keep or drop all lines of a message together.
            passes = [origin not in slow for origin in lines.origins]
            lines = Lines.of(list(compress(lines, passes)), list(compress(lines.origins, passes)))
        if not lines.are_objects():
            return None
        try:
            if not slow:
                # Arrow accepts lines that are not valid UTF-8, but the prefilter does not.
                str(lines.data, "utf-8")
            table, doubtful = read_exactly(lines, schema, rescues=self.rescues)
        except (ValueError, pa.ArrowException):
            return None
        origins = lines.origins
        texts, unread = _rescued(lines, table, schema)
        slow = {*slow, *(origins[row] for row in (*doubtful, *unread))}
        if not slow:
            return Decoded([whole(table.column(i)) for i in range(len(schema))], origins, {}, texts)
        kept = [row for row, origin in enumerate(origins) if origin not in slow]
        taken = pa.array(kept, pa.int64())
        columns = [whole(table.column(i)).take(taken) for i in range(len(schema))]
        places = dict(zip(kept, range(len(kept)), strict=True)) if texts else {}
        rescued = {places[row]: text for row, text in texts.items() if row in places}
        fast = Decoded(columns, [origins[row] for row in kept], {}, rescued)
        one_by_one = sorted(slow)
        return _merged(fast, self._one_by_one([payloads[i] for i in one_by_one], schema), one_by_one)

    def _one_by_one(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        codec = self if self.rescues else _KnownFields(schema)
        return RowCodec.decode_batch(codec, payloads, schema)

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
    """Convert a value for an integer column. Many applications write 64-bit numbers as text, because JavaScript rounds them."""
    if isinstance(value, str):
        return text_array([value], kind)[0].as_py()
    # Use the text that was sent, which is what the float prints. From 2**53 on, the float may be a different integer.
    return Decimal(repr(value)) if isinstance(value, float) else value


# JSON has four white-space characters. By default, Python strips more.
_STRIP = methodcaller("strip", b" \t\r\n")


def _lines(payloads: Sequence[bytes]) -> Lines:
    """Return the nonempty lines of all messages."""
    lines = list(map(_STRIP, payloads))
    whole = b"".join(lines)
    if b"\n" not in whole and b"\r" not in whole and all(lines):
        return Lines.of(lines, list(range(len(lines))))
    pairs = [(text, i) for i, each in enumerate(lines) for line in each.splitlines() if (text := _STRIP(line))]
    return Lines.of([text for text, _ in pairs], [i for _, i in pairs])


def _lines_of_array(payloads: pa.Array) -> Lines | None:
    """Return each message as a line, or None if a message may not be a single line or there are few messages."""
    import pyarrow as pa

    if payloads.type != pa.binary() or payloads.null_count or len(payloads) <= FEWEST_AT_ONCE:
        return None
    lines = Lines.of_array(payloads)
    return lines if lines.are_objects() and not lines.has_control_characters() else None


def _rescued(lines: Lines, table: pa.Table, schema: pa.Schema) -> tuple[dict[int, str], list[int]]:
    """Return the fields that the schema lacks, by row, and the rows in which such fields cannot be read."""
    # Arrow inferred types for these fields, so parse the original text again.
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
    """Concatenate parts. Each comes with the index of its first message."""
    import pyarrow as pa

    origins: list[int] = []
    rescued: dict[int, str] = {}
    problems: dict[int, str] = {}
    for first, part in parts:
        rescued |= {len(origins) + row: text for row, text in part.rescued.items()}
        problems |= {first + message: text for message, text in part.problems.items()}
        origins += [first + message for message in part.origins]
    columns = [pa.chunked_array([part.columns[i] for _, part in parts]).combine_chunks() for i in range(len(schema))]
    return Decoded(columns, origins, problems, rescued)


def _merged(first: Decoded, second: Decoded, seconds: list[int]) -> Decoded:
    """Merge the rows of two parts in the order of the messages. ``seconds`` are the indexes of the messages in ``second``."""
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


def _object(line: bytes, decoder: json.JSONDecoder | None = None) -> dict[str, Any]:
    try:
        value = (decoder or _DECODER).decode(line.decode())
    except json.JSONDecodeError as error:
        raise ValueError(f"the message is not JSON: {json_problem(error)}") from None
    except RecursionError:
        raise ValueError("the message is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"a line must be a JSON object (got {shown(value)})")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise _duplicate(next(name for name in names if names.count(name) > 1))
    return fields


def _duplicate(name: str) -> ValueError:
    return ValueError(f"the field {name!r} occurs twice")


def _integer(text: str) -> int | float:
    # Only floats have a negative zero.
    return -0.0 if text == "-0" else integer_of(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_float=number_of, parse_int=_integer)


class _KnownFields(JsonLines):
    """A codec that reads only the fields of a schema, one message at a time. Like Arrow, it ignores problems in other fields."""

    rescues = False

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__()
        self._schema = schema

    @decodes
    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        lines = (_object(line, _LENIENT) for line in payload.splitlines() if line.strip())
        return [_known(line, self._schema) for line in lines]


class _Unread:
    """A number that no Python type can hold, or another value that cannot be read."""

    def __init__(self, error: ValueError) -> None:
        self.error = error


def _with_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    names = [name for name, _ in pairs]
    return {name: _Unread(_duplicate(name)) if names.count(name) > 1 else fields[name] for name in fields}


def _lenient(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            return _Unread(error)

    return read


_LENIENT = json.JSONDecoder(
    object_pairs_hook=_with_duplicates, parse_float=_lenient(number_of), parse_int=_lenient(_integer)
)


def _known(value: Any, kind: Any) -> Any:
    """Return a value without the fields that its type lacks. Raises ValueError for a part that cannot be read."""
    import pyarrow as pa

    if isinstance(value, _Unread):
        raise value.error
    if isinstance(value, dict):
        if isinstance(kind, pa.Schema | pa.StructType):
            return {item.name: _known(value[item.name], item.type) for item in kind if item.name in value}
        return {name: _known(each, None) for name, each in value.items()}
    if isinstance(value, list):
        item = kind.value_type if isinstance(kind, pa.ListType | pa.LargeListType) else None
        return [_known(each, item) for each in value]
    return value


# JSON has no NaN or infinity, and ``column`` would not read them back as the same value.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _of_json(value: Any, name: str) -> Any:
    """Convert a value for JSON. Raises ConfigurationError if it would not be read back as the same value."""
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
                f"{name}: JSON has no bytes, and these are not valid UTF-8: encode them as text"
            ) from None
    return as_text(value, name, "JSON")
