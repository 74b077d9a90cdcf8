"""The base of codecs, which also converts Python rows to Arrow columns. A bad message never stops the others.

A value goes into a column unchanged, or its message becomes a problem: nothing is rounded, truncated or converted. Fields that the
schema lacks are *rescued*, as JSON beside the row.
"""

from __future__ import annotations

import base64
import functools
import math
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID

from mainstem.codecs.decoded import Decoded
from mainstem.codecs.exact import exact_array
from mainstem.codecs.inference import fields_of
from mainstem.codecs.limits import as_nullable, within_limits
from mainstem.codecs.numerals import float_name
from mainstem.errors import ConfigurationError, DecodeError, MainstemError, MissingExtraError, StoreError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

C = TypeVar("C")


# -- fields that the schema lacks --------------------------------------------------------------------------------------


def rescue(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> tuple[dict[int, str], dict[int, str]]:
    """Collect the fields of each row that the schema lacks, except null ones.

    Returns two dictionaries by row index: the fields as a JSON object, and the reasons why JSON cannot hold them.
    """
    import pyarrow as pa

    known = set(schema.names)
    nested = {item.name: item.type for item in schema if pa.types.is_nested(item.type)}
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    for index, row in enumerate(rows):
        if not nested and known.issuperset(row):
            continue
        try:
            fields = {name: row[name] for name in row if name not in known and row[name] is not None}
            for name, kind in nested.items():
                if (part := _surplus(row.get(name), kind)) is not None:
                    fields[name] = part
            if fields:
                texts[index] = as_json(fields)
        except ValueError as error:
            reasons[index] = f"a field that the schema lacks: {error}"
        except RecursionError:
            reasons[index] = "a field that the schema lacks is nested too deeply"
    return texts, reasons


def as_json(value: Any) -> str:
    """Format a value as JSON: bytes in base64, times in ISO 8601, all digits of numbers. Raises ValueError for other types."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else f'"{value}"'
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else f'"{float_name(value)}"'
    if isinstance(value, dict):
        if wrong := [name for name in value if not isinstance(name, str)]:
            raise ValueError(f"the name {wrong[0]!r:.60} is not text")
        return "{" + ",".join(f"{_text(name)}:{as_json(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(as_json, value)) + "]"
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, datetime | date | time):
        return f'"{value.isoformat()}"'
    if isinstance(value, timedelta | UUID):
        return f'"{value}"'
    raise ValueError(f"JSON has no {type(value).__name__}")


def _text(value: str) -> str:
    """Format a JSON string. Escapes lone surrogates, which UTF-8 cannot hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return encode_basestring_ascii(value)
    return encode_basestring(value)


def _surplus(value: Any, kind: Any) -> Any:
    """Return the part of a value that its type cannot hold, or None."""
    import pyarrow as pa

    if isinstance(value, dict) and pa.types.is_struct(kind):
        fields = {item.name: item.type for item in kind}
        parts = {name: _surplus(each, fields[name]) if name in fields else each for name, each in value.items()}
        return {name: part for name, part in parts.items() if part is not None} or None
    if isinstance(value, dict) and pa.types.is_map(kind):
        parts = {name: _surplus(each, kind.item_type) for name, each in value.items()}
        return {name: part for name, part in parts.items() if part is not None} or None
    if isinstance(value, list | tuple) and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        items = [_surplus(each, kind.value_type) for each in value]
        return items if any(item is not None for item in items) else None
    return None


class Codec(Protocol):
    """The interface of codecs: payloads to rows and back, one message at a time for applications or many at once as Arrow columns.

    An entry point of the group ``mainstem.codecs`` is a class like this. It is called with its options as keyword arguments, which
    are all strings. Instances are pickled to Spark's workers, so they should hold only plain values. ``RowCodec`` is an easier way
    to write a codec.

    Example:
        >>> codec: Codec = find_codec("csv", {"columns": "id,name"})
    """

    def __init__(self, **options: str) -> None: ...

    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        """Decode one message.

        Args:
            payload: The message.

        Returns:
            One dictionary per row. Most formats have one row per message.

        Raises:
            DecodeError: The message cannot be read.

        Example:
            >>> find_codec("json").decode(b'{"id": 1}')
            [{'id': 1}]
        """
        ...

    def encode(self, row: dict[str, Any]) -> bytes:
        """Encode one row as a message.

        Args:
            row: The values by field name.

        Returns:
            The payload.

        Raises:
            ConfigurationError: The format cannot hold a value, or the codec cannot encode.
        """
        ...

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """Return the columns. They are inferred from messages unless the codec's options determine them.

        Args:
            sample: The first payloads of the recordings. It may be empty.

        Returns:
            The schema for ``decode_batch``.

        Raises:
            DecodeError: The sample does not determine a schema.
        """
        ...

    def decode_batch(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        """Decode many messages. An unreadable message never stops the others.

        Args:
            payloads: The messages.
            schema: The schema that the columns must have exactly.

        Returns:
            The rows, and the reasons for messages without rows.

        Example:
            >>> find_codec("json").decode_batch([b'{"id": 1}', b"{"], schema).origins
            [0]
        """
        ...

    def encode_batch(self, batch: pa.RecordBatch) -> list[bytes]:
        """Encode each row of a batch as a message.

        Args:
            batch: The rows; its columns are the fields.

        Returns:
            The payloads, in the order of the rows.

        Raises:
            ConfigurationError: The format cannot hold a value (the error names the row), or the codec cannot encode.
        """
        ...


class NoColumnsError(DecodeError):
    """The error if a sample of messages does not determine a codec's columns."""


class NoRowsError(NoColumnsError):
    """The error if a codec takes its columns from a sample of messages, and the sample has no rows."""

    def __init__(self, sample: Sequence[bytes]) -> None:
        reason = f"none of {len(sample)} can be decoded" if sample else "there is none"
        super().__init__(f"its columns are in the messages, and {reason}")


class RowCodec(Codec, ABC):
    """A base class for codecs that handle one message at a time, as dictionaries. Easy to use, and fast enough for most formats.

    Override ``decode``, and ``encode`` if the codec can write messages. If ``decode`` raises an exception, that becomes the
    message's problem. ``StoreError`` and ``MissingExtraError`` instead stop the reading, because the same message can be read once
    the store responds or the package is installed. If ``encode`` raises an exception, the error names the row.

    ``schema`` infers each column in the narrowest type that holds its values in the sample. If the values of a field have several
    types, the most frequent one decides. It omits fields that no column can hold, which are rescued.

    Example:
        >>> class Words(RowCodec):
        ...     def decode(self, payload):
        ...         return [{"word": word} for word in payload.decode().split()]
    """

    #: Whether to keep fields that the schema lacks, as JSON. A reader that would drop them sets this to False.
    rescues = True

    def __init__(self, **options: str) -> None:
        if options:
            raise ValueError(f"{type(self).__name__} has no option {min(options)!r}")

    @abstractmethod
    def decode(self, payload: bytes) -> list[dict[str, Any]]: ...

    def encode(self, row: dict[str, Any]) -> bytes:  # noqa: ARG002
        raise ConfigurationError(f"{type(self).__name__} only decodes")

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        with needs_extras():
            import pyarrow as pa

        rows: list[dict[str, Any]] = []
        for payload in sample:
            with suppress(Exception):
                rows += _rows(self.decode(payload))
        if not rows:
            raise NoRowsError(sample)
        return pa.schema(fields_of(rows))

    def decode_batch(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        rows: list[dict[str, Any]] = []
        origins: list[int] = []
        problems: dict[int, str] = {}
        for i, payload in enumerate(payloads):
            try:
                decoded = _rows(self.decode(payload))
            except (StoreError, MissingExtraError):
                raise
            except Exception as error:
                problems[i] = reason_of(error)
                continue
            rows += decoded
            origins += [i] * len(decoded)
        return within_limits(self._columns(rows, origins, as_nullable(schema), problems), schema)

    def encode_batch(self, batch: pa.RecordBatch) -> list[bytes]:
        payloads = []
        for i, row in enumerate(_python_rows(batch)):
            try:
                payloads.append(self.encode(row))
            except (StoreError, MissingExtraError):
                raise
            except Exception as error:
                raise ConfigurationError(f"row {i}: {error}") from error
        return payloads

    def column(self, values: list[Any], kind: Any) -> Any:
        """Make an Arrow column from values. Override this if values need a conversion.

        Args:
            values: A value for each row, None for null.
            kind: The Arrow type of the column.

        Returns:
            An array with the same values.

        Raises:
            ValueError: A value is not of that type: 2.5 is not an integer, and 5 is not a string.

        Example:
            >>> find_codec("json").column(["2026-01-31"], pa.date32())
        """
        return exact_array(values, kind)

    def _columns(
        self, rows: list[dict[str, Any]], origins: list[int], schema: pa.Schema, problems: dict[int, str]
    ) -> Decoded:
        try:
            columns = [self.column([row.get(item.name) for row in rows], item.type) for item in schema]
        except Exception:
            bad = self._unfit(rows, origins, schema)
            if not bad:
                raise
            return self._without(bad, rows, origins, schema, problems)
        texts, reasons = rescue(rows, schema) if self.rescues else ({}, {})
        if reasons:
            bad = {origins[k]: reason for k, reason in reasons.items()}
            return self._without(bad, rows, origins, schema, problems)
        return Decoded(columns, origins, problems, texts)

    def _without(
        self,
        bad: dict[int, str],
        rows: list[dict[str, Any]],
        origins: list[int],
        schema: pa.Schema,
        problems: dict[int, str],
    ) -> Decoded:
        good = [k for k, origin in enumerate(origins) if origin not in bad]
        return self._columns([rows[k] for k in good], [origins[k] for k in good], schema, problems | bad)

    def _unfit(self, rows: list[dict[str, Any]], origins: list[int], schema: pa.Schema) -> dict[int, str]:
        """Return the messages with values that do not fit the schema, and why."""
        bad: dict[int, str] = {}
        for item in schema:
            # Group the values by type, because a misfit nearly always has the wrong type.
            by_type: dict[type, list[int]] = {}
            for k, row in enumerate(rows):
                by_type.setdefault(type(row.get(item.name)), []).append(k)
            for places in by_type.values():
                for i, error in self._misfits([rows[k].get(item.name) for k in places], item.type):
                    bad.setdefault(origins[places[i]], f"{item.name}: {reason_of(error)}")
        return bad

    def _misfits(self, values: list[Any], kind: Any) -> Iterator[tuple[int, Exception]]:
        """Yield the values that do not fit a type. Tests each if most seem not to fit, and otherwise bisects."""
        ends = [error for value in (values[0], values[-1]) if (error := self._misfit([value], kind)) is not None]
        if len(ends) == 2:
            for i, value in enumerate(values):
                if (error := self._misfit([value], kind)) is not None:
                    yield i, error
        else:
            yield from self._halved(values, 0, kind)

    def _misfit(self, values: list[Any], kind: Any) -> Exception | None:
        try:
            self.column(values, kind)
        except Exception as error:
            return error
        return None

    def _halved(self, values: list[Any], first: int, kind: Any) -> Iterator[tuple[int, Exception]]:
        error = self._misfit(values, kind)
        if error is None:
            return
        if len(values) == 1:
            yield first, error
            return
        half = len(values) // 2
        yield from self._halved(values[:half], first, kind)
        yield from self._halved(values[half:], first + half, kind)


def decodes(decode: Callable[[C, bytes], list[dict[str, Any]]]) -> Callable[[C, bytes], list[dict[str, Any]]]:
    """Make the ``decode`` of a codec raise DecodeError for a message that it cannot read."""

    @functools.wraps(decode)
    def checked(self: C, payload: bytes) -> list[dict[str, Any]]:
        try:
            return decode(self, payload)
        except MainstemError:
            raise
        except Exception as error:
            raise DecodeError(reason_of(error)) from error

    return checked


def reason_of(error: Exception) -> str:
    """Describe an error as a message's problem. Adds the type if the text may not be a sentence: ``KeyError: 'id'``."""
    if isinstance(error, UnicodeDecodeError):
        return f"the message is not UTF-8: byte {error.object[error.start]:#04x} at {error.start}"
    is_sentence = type(error) is ValueError or isinstance(error, MainstemError)
    return str(error) if is_sentence and str(error) else f"{type(error).__name__}: {error}"


def _rows(decoded: Any) -> list[dict[str, Any]]:
    """Check the rows of a codec. Raises TypeError unless all are dictionaries."""
    rows = list(decoded)
    if wrong := [row for row in rows if not isinstance(row, dict)]:
        raise TypeError(f"a row is a dictionary, not {type(wrong[0]).__name__}")
    return rows


def _python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a batch. Raises ConfigurationError for a value without a Python type or a map with a duplicate key."""
    options: dict[str, Any] = {"maps_as_pydicts": "strict"}
    try:
        rows: list[dict[str, Any]] = batch.to_pylist(**options)
    except Exception:
        for i in range(batch.num_rows):
            try:
                batch.slice(i, 1).to_pylist(**options)
            except Exception as error:
                raise ConfigurationError(f"row {i}: {error}") from error
        raise
    return rows
