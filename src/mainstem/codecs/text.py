"""The codecs for CSV and MessagePack."""

from __future__ import annotations

import csv
import io
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mainstem.codecs.base import NoColumnsError, RowCodec, decodes
from mainstem.codecs.exact import shown
from mainstem.codecs.numerals import as_text, text_array
from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class Csv(RowCodec):
    """The codec for messages with one or more lines of comma-separated values.

    Options: ``delimiter``, and ``columns``, the names in order. By default, they are the names in the schema.
    """

    def __init__(self, *, delimiter: str = ",", columns: str = "", **options: str) -> None:
        super().__init__(**options)
        self._delimiter = delimiter
        self._given_names = [name.strip() for name in columns.split(",") if name.strip()]
        self._names = self._given_names

    @decodes
    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        rows = []
        try:
            for values in csv.reader(io.StringIO(payload.decode(), newline=""), delimiter=self._delimiter, strict=True):
                if len(values) != len(self._names):
                    raise ValueError(f"a line has {len(values)} values, not {len(self._names)}")
                rows.append(dict(zip(self._names, (value or None for value in values), strict=True)))
        except csv.Error as error:
            raise ValueError(f"the message is not CSV: {error}") from None
        return rows

    def encode(self, row: dict[str, Any]) -> bytes:
        names = self._given_names or list(row)
        if surplus := sorted(set(row) - set(names)):
            raise ConfigurationError(f"{surplus[0]}: the option columns does not name it")
        line = io.StringIO()
        csv.writer(line, delimiter=self._delimiter).writerow([_of_csv(row.get(name), name) for name in names])
        return line.getvalue().removesuffix("\r\n").encode()

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """Return, for each column, the first type that holds all values in the sample. String holds any value."""
        import pyarrow as pa

        if not self._given_names or not sample:
            raise NoColumnsError("CSV needs a schema, or the option columns and a message to take the types from")
        rows: list[dict[str, Any]] = []
        for payload in sample:
            with suppress(Exception):
                rows += self.decode(payload)
        return pa.schema([(name, _type_of([row[name] for row in rows])) for name in self._given_names])

    def decode_batch(self, payloads: Sequence[bytes], schema: pa.Schema) -> Any:
        """Decode many messages. Without the option ``columns``, the names come from the schema."""
        self._names = self._given_names or list(schema.names)
        return super().decode_batch(payloads, schema)

    def column(self, values: list[Any], kind: Any) -> Any:
        return text_array(values, kind)


class MessagePack(RowCodec):
    """The codec for messages that are MessagePack maps. Needs ``mainstem[codecs]``."""

    @decodes
    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        with needs_extras():
            import msgspec

        try:
            value = msgspec.msgpack.decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"the message is not MessagePack: {error}") from None
        if not isinstance(value, dict):
            raise ValueError(f"a message must be a map (got {shown(value)})")
        if wrong := [name for name in value if not isinstance(name, str)]:
            raise ValueError(f"the name of a field is text, not {wrong[0]!r:.60}")
        if msgspec.msgpack.encode(value) != payload:
            # The message is not in its shortest form, or msgspec lost something.
            _check_packed(payload, 0)
        return [value]

    def encode(self, row: dict[str, Any]) -> bytes:
        """Encode the row as a map. Times must have a UTC offset. The format has no decimals or dates."""
        with needs_extras():
            import msgspec

        _check_message_pack(row, "")
        try:
            return msgspec.msgpack.encode(row)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(f"MessagePack: {error}") from None


def _type_of(texts: list[str | None]) -> Any:
    """Return the first type that holds all values, or string if there are none."""
    import pyarrow as pa

    kinds = pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")
    for kind in kinds if any(text is not None for text in texts) else ():
        with suppress(ValueError, pa.ArrowException):
            text_array(texts, kind)
            return kind
    return pa.string()


def _of_csv(value: Any, name: str) -> str:
    if value is None:
        return ""
    if value == "":
        raise ConfigurationError(f"{name}: an empty text is null in CSV")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float | str) else as_text(value, name, "CSV")


def _check_message_pack(value: Any, name: str) -> None:
    """Raise ConfigurationError for a value that would be read back as a different value."""
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str | int | bytes) or (isinstance(key, bytes | int) and not name):
                raise ConfigurationError(f"{name}: MessagePack has no {type(key).__name__} as a name")
            _check_message_pack(each, f"{name}.{key!s:.60}" if name else str(key))
    elif isinstance(value, list | tuple):
        for each in value:
            _check_message_pack(each, f"{name}[]")
    elif isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigurationError(f"{name}: MessagePack has no time without an offset from UTC")
    elif value is not None and not isinstance(value, bool | int | float | str | bytes):
        raise ConfigurationError(f"{name}: MessagePack has no {type(value).__name__}")


# By the first byte of a value: the size in bytes of its length or item count. Longer forms come after shorter ones.
_TEXT_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_EXTENSION_LENGTHS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_NUMBER_SIZES = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_ITEM_COUNTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_TIMESTAMP = 0xFF


def _check_packed(data: bytes, at: int) -> int:
    """Return where a value ends. Raises ValueError for data that msgspec would lose: duplicate names and nanoseconds."""

    def number(size: int) -> int:
        return int.from_bytes(data[at + 1 : at + 1 + size], "big")

    first = data[at]
    if 0x80 <= first <= 0x9F:
        return _check_items(data, at + 1, first & 0x0F, is_map=first < 0x90)
    if first in _ITEM_COUNTS:
        size, parts = _ITEM_COUNTS[first]
        return _check_items(data, at + 1 + size, number(size), is_map=parts == 2)
    if 0xA0 <= first <= 0xBF:
        return at + 1 + (first & 0x1F)
    if first in _TEXT_LENGTHS:
        return at + 1 + _TEXT_LENGTHS[first] + number(_TEXT_LENGTHS[first])
    if first in _EXTENSION_LENGTHS or first in _FIXED_EXTENSIONS:
        size = _EXTENSION_LENGTHS.get(first, 0)
        length = number(size) if size else _FIXED_EXTENSIONS[first]
        start = at + 2 + size
        if data[start - 1] == _TIMESTAMP:
            _check_time(data[start : start + length])
        return start + length
    return at + 1 + _NUMBER_SIZES.get(first, 0)


def _check_items(data: bytes, at: int, count: int, *, is_map: bool) -> int:
    import msgspec

    names = set()
    for _ in range(count):
        if is_map:
            start, at = at, _check_packed(data, at)
            names.add(msgspec.msgpack.decode(data[start:at]))
        at = _check_packed(data, at)
    if is_map and len(names) < count:
        raise ValueError("a map has a name twice")
    return at


def _check_time(data: bytes) -> None:
    nanos = int.from_bytes(data[:4], "big") if len(data) == 12 else int.from_bytes(data, "big") >> 34
    if len(data) > 4 and nanos % 1000:
        raise ValueError(f"a time with {nanos} ns is not in whole microseconds")
