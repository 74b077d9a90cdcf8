"""JSON lines, CSV and MessagePack."""

from __future__ import annotations

import csv
import io
import json
from datetime import date, datetime, time
from decimal import Decimal
from itertools import compress
from operator import methodcaller, not_
from typing import TYPE_CHECKING, Any

from mainstem.codecs.base import Decoded, RowCodec
from mainstem.codecs.json_screen import Screen
from mainstem.codecs.types import rescue
from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

# Where Arrow refuses some messages they are cut into pieces until so few are left, which are read one by one.
FEWEST_AT_ONCE = 128
PIECES = 32
# To compile the screen takes as long as to read some hundred messages one by one.
FEWEST_SCREENED = 1024
# Beyond this part of the messages most of the time goes into reading one by one, whatever the others cost.
MOST_KEPT_BACK = 0.5
# Whole numbers up to here are exact as floating point.
EXACT_FLOAT = 2.0**53


class JsonLines(RowCodec):
    """A message is a JSON object, or several, each on a line of its own.

    Many messages are read at once by Arrow's parser, which is strict about types. Where it refuses any, the lines are screened:
    those that it will not take are read one by one, and all others at once. Where it still refuses, the messages are cut into
    pieces. The rows do not depend on which way they were read.
    """

    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        """A row for each line that is not empty."""
        return [_object(line) for line in payload.splitlines() if line.strip()]

    def encode(self, row: dict[str, Any]) -> bytes:
        """The row as one line. Times and decimals become text, as ``column`` reads them; bytes must be UTF-8."""
        return _ENCODER.encode({name: _of_json(value, name) for name, value in row.items()}).encode()

    def decode_batch(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        """As ``RowCodec``, many messages at once."""
        import pyarrow as pa

        parts = list(self._parts(payloads, 0, schema))
        if len(parts) == 1:
            return parts[0][1]
        whole = Decoded([], [])
        for first, part in parts:
            whole.rescued |= {len(whole.origins) + row: text for row, text in part.rescued.items()}
            whole.problems |= {first + message: text for message, text in part.problems.items()}
            whole.origins += [first + message for message in part.origins]
        for i, item in enumerate(schema):
            chunks = pa.chunked_array([part.columns[i] for _, part in parts], item.type)
            whole.columns.append(chunks.combine_chunks())
        return whole

    def _parts(self, payloads: Sequence[bytes], first: int, schema: pa.Schema) -> Iterator[tuple[int, Decoded]]:
        count = len(payloads)
        if count > FEWEST_AT_ONCE:
            lines, origins = _lines(payloads)
            part = self._at_once(lines, origins, schema)
            if part is None and count >= FEWEST_SCREENED:
                part = self._screened(payloads, lines, origins, schema)
            if part is not None:
                yield first, part
                return
            size = max(-(-count // PIECES), FEWEST_AT_ONCE)
            for begin in range(0, count, size):
                yield from self._parts(payloads[begin : begin + size], first + begin, schema)
        else:
            yield first, super().decode_batch(payloads, schema)

    def _screened(
        self, payloads: Sequence[bytes], lines: list[bytes], origins: list[int], schema: pa.Schema
    ) -> Decoded | None:
        """The messages that the screen lets through at once, the others one by one; None where that cannot be had."""
        passes = Screen(schema).passes(lines)
        slow = sorted(set(compress(origins, map(not_, passes))))
        if not slow or len(slow) > len(payloads) * MOST_KEPT_BACK:
            return None
        if len(lines) > len(payloads):
            # All lines of a message, or none.
            kept_back = set(slow)
            passes = [origin not in kept_back for origin in origins]
        chosen = list(compress(lines, passes)), list(compress(origins, passes))
        at_once = self._at_once(*chosen, schema, check_text=False)
        if at_once is None:
            return None
        return _merged(at_once, super().decode_batch([payloads[i] for i in slow], schema), slow)

    def _at_once(
        self, lines: list[bytes], origins: list[int], schema: pa.Schema, *, check_text: bool = True
    ) -> Decoded | None:
        """All the lines by Arrow's parser; None where it refuses one, or would read it in another way than ``decode``.

        ``check_text`` is for lines that may not be UTF-8, which Arrow takes.
        """
        import pyarrow as pa

        data = b"\n".join(lines)
        # With these ends, as many rows as lines means one object a line.
        if data[:1] != b"{" or data[-1:] != b"}" or data.count(b"}\n{") != len(lines) - 1:
            return None
        try:
            if check_text:
                data.decode()
            table = self._read(data, schema)
            if table.num_rows != len(lines):
                return None
            columns = [self._converted(table.column(item.name).combine_chunks(), item.type) for item in schema]
        except (ValueError, pa.ArrowException):
            return None
        extra = table.column_names[len(schema) :]
        rescued: dict[int, str] = {}
        if extra:
            # Arrow has inferred types for them; the text is what is kept.
            holds = [set(table.column(name).is_valid().to_numpy().nonzero()[0].tolist()) for name in extra]
            indices = sorted(set().union(*holds))
            texts = rescue([json.loads(lines[index]) for index in indices], schema)
            rescued = {indices[row]: text for row, text in texts.items()}
        return Decoded(columns, origins, {}, rescued)

    def _read(self, data: bytes, schema: pa.Schema) -> pa.Table:
        import pyarrow as pa
        from pyarrow import json as arrow_json

        as_text = [pa.field(item.name, pa.string()) if _is_text(item.type) else item for item in schema]
        reading = arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1)

        def read(unexpected: str) -> pa.Table:
            parsing = arrow_json.ParseOptions(explicit_schema=pa.schema(as_text), unexpected_field_behavior=unexpected)
            return arrow_json.read_json(io.BytesIO(data), reading, parsing)

        try:
            return read("error")
        except pa.ArrowInvalid as error:
            if "unexpected field" not in str(error):
                raise
        return read("infer")

    def _converted(self, column: Any, kind: Any) -> Any:
        import pyarrow as pa

        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        if _is_text(kind):
            return column.cast(kind)
        # Fields of a struct that the schema lacks change its type; numbers that may have been rounded are read again.
        if column.type != kind or _may_be_rounded(column):
            raise ValueError("read one by one")
        return column

    def column(self, values: list[Any], kind: Any) -> Any:
        """JSON has no times: they are texts, and become the type of the schema."""
        import pyarrow as pa

        if _is_text(kind):
            return pa.array([None if v is None else str(v) for v in values], pa.string()).cast(kind)
        return super().column(values, kind)


# JSON has four characters of white space; Python strips more.
_STRIP = methodcaller("strip", b" \t\r\n")


def _lines(payloads: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
    """The lines of all messages that are not empty, and the index of the message of each."""
    lines = list(map(_STRIP, payloads))
    whole = b"".join(lines)
    if b"\n" not in whole and b"\r" not in whole and all(lines):
        return lines, list(range(len(lines)))
    pairs = [(text, i) for i, each in enumerate(lines) for line in each.splitlines() if (text := _STRIP(line))]
    return [text for text, _ in pairs], [i for _, i in pairs]


def _merged(first: Decoded, second: Decoded, seconds: list[int]) -> Decoded:
    """The rows of two parts of some messages in the order of the messages; those of ``second`` are at ``seconds``."""
    import numpy as np
    import pyarrow as pa

    origins = np.concatenate([np.asarray(first.origins), np.take(seconds, second.origins)]).astype(np.int64)
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
    value = _DECODER.decode(line.decode())
    if not isinstance(value, dict):
        raise ValueError(f"a line is a JSON object, not {type(value).__name__}")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates)


# What ``column`` would not read as the value that it was: NaN and infinities are no JSON.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _of_json(value: Any, name: str) -> Any:
    """A value as JSON has it. Raises ConfigurationError where it would not be read as the same value again."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): _of_json(each, f"{name}.{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_of_json(each, f"{name}[]") for each in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ConfigurationError(
                f"{name}: JSON has no bytes, and these are no UTF-8: encode them as text"
            ) from None
    return _as_text(value, name, "JSON")


def _of_csv(value: Any, name: str) -> str:
    if value is None:
        return ""
    if value == "":
        raise ConfigurationError(f"{name}: an empty text is null in CSV")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float | str) else _as_text(value, name, "CSV")


def _as_text(value: Any, name: str, where: str) -> str:
    """Times in ISO 8601 and decimals in digits. Raises ConfigurationError for what has no such text."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    raise ConfigurationError(f"{name}: {where} has no {type(value).__name__}")


def _check_message_pack(value: Any, name: str) -> None:
    """Raises ConfigurationError for a value that would be read as another one."""
    if isinstance(value, dict):
        for key, each in value.items():
            _check_message_pack(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for each in value:
            _check_message_pack(each, f"{name}[]")
    elif isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigurationError(f"{name}: MessagePack has no time without an offset from UTC")
    elif value is not None and not isinstance(value, bool | int | float | str | bytes):
        raise ConfigurationError(f"{name}: MessagePack has no {type(value).__name__}")


def _is_text(kind: Any) -> bool:
    """Whether values of a type are texts in JSON."""
    import pyarrow as pa

    return bool(pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


def _may_be_rounded(column: Any) -> bool:
    """Whether there is floating point among the values that another number may have been read as."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.any(pc.greater_equal(pc.abs(column), pa.scalar(EXACT_FLOAT, kind))).as_py())
    if pa.types.is_struct(kind):
        return any(_may_be_rounded(column.field(i)) for i in range(kind.num_fields))
    return pa.types.is_list(kind) and _may_be_rounded(column.values)


class Csv(RowCodec):
    """A message is a line of comma-separated values, or several. Options: ``delimiter``, and ``columns``, the names in order.

    Without ``columns`` they are those of the schema.
    """

    def __init__(self, *, delimiter: str = ",", columns: str = "", **options: str) -> None:
        super().__init__(**options)
        self._delimiter = delimiter
        self._names = [name.strip() for name in columns.split(",") if name.strip()]

    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        """A row for each line; a quoted value may hold line breaks. An empty value is null."""
        rows = []
        for values in csv.reader(io.StringIO(payload.decode(), newline=""), delimiter=self._delimiter, strict=True):
            if len(values) != len(self._names):
                raise ValueError(f"a line has {len(values)} values, not {len(self._names)}")
            rows.append(dict(zip(self._names, (value or None for value in values), strict=True)))
        return rows

    def encode(self, row: dict[str, Any]) -> bytes:
        """The row as one line without its end: the fields of ``columns``, else those of the row in its order."""
        names = self._names or list(row)
        if surplus := sorted(set(row) - set(names)):
            raise ConfigurationError(f"{surplus[0]}: the option columns does not name it")
        line = io.StringIO()
        csv.writer(line, delimiter=self._delimiter).writerow([_of_csv(row.get(name), name) for name in names])
        return line.getvalue().removesuffix("\r\n").encode()

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """What Arrow's own reader of CSV finds in the sample."""
        from pyarrow import csv as arrow_csv

        if not self._names or not sample:
            raise ValueError("CSV needs a schema, or the option columns and a message to take the types from")
        text = b"\n".join(sample)
        reading = arrow_csv.ReadOptions(column_names=self._names)
        parsing = arrow_csv.ParseOptions(delimiter=self._delimiter)
        return arrow_csv.read_csv(io.BytesIO(text), reading, parsing).schema

    def decode_batch(self, payloads: Sequence[bytes], schema: pa.Schema) -> Any:
        """As ``RowCodec``; without names of its own the columns are the schema's."""
        self._names = self._names or list(schema.names)
        return super().decode_batch(payloads, schema)

    def column(self, values: list[Any], kind: Any) -> Any:
        """Every value is a text first."""
        import pyarrow as pa

        return pa.array(values, pa.string()).cast(kind)


class MessagePack(RowCodec):
    """A message is a MessagePack map. Needs ``mainstem[serialisation]``."""

    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        """The map's row."""
        with needs_extras():
            import msgspec

        value = msgspec.msgpack.decode(payload)
        if not isinstance(value, dict):
            raise ValueError(f"a message is a map, not {type(value).__name__}")
        return [value]

    def encode(self, row: dict[str, Any]) -> bytes:
        """The row as a map. Times have an offset from UTC; decimals and dates have no place in the format."""
        with needs_extras():
            import msgspec

        _check_message_pack(row, "")
        return msgspec.msgpack.encode(row)
