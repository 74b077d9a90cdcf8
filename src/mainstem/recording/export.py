"""Exports recordings to Parquet, CSV, JSON lines and Arrow. Needs pyarrow (``mainstem[tables]``)."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any, Protocol

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.codecs.lookup import CodecChoice
from mainstem.codecs.numerals import decimal_text, float_name
from mainstem.errors import ConfigurationError, RecordingError, needs_extras
from mainstem.recording.recordings import open_recordings
from mainstem.recording.rows.filters import filters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

KINDS = ("parquet", "csv", "jsonl", "arrow")
PAYLOADS = ("base64", "hex", "text")
SUFFIXES = {f".{kind}": kind for kind in KINDS} | {".ndjson": "jsonl", ".arrows": "arrow"}
ROWS = ("messages", "frames")
# CSV and JSON cannot contain bytes, so payloads are written as text.
TEXT_KINDS = ("csv", "jsonl")


@dataclass(frozen=True, kw_only=True)
class ExportOptions(CodecChoice):
    """The rows of the recordings at ``location`` to export, and how to write them to ``out`` (``-`` is standard output)."""

    location: str
    format: str = ""
    out: str = "-"
    columns: str = ""
    recordings: tuple[int, ...] = ()
    streams: tuple[int, ...] = ()
    sessions: tuple[int, ...] = ()
    since: str = ""
    until: str = ""
    rows: str = "messages"
    payload_encoding: str = "base64"
    strict: bool = True
    store_options: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The file format: ``format``, or the one that the name of the file says. Raises ConfigurationError if neither does."""
        kind = self.format or SUFFIXES.get(PurePath(self.out).suffix.lower(), "")
        if not kind:
            raise ConfigurationError(f"`format` is needed, because {self.out!r} does not end in {', '.join(SUFFIXES)}")
        return kind


@contextmanager
def open_rows(options: ExportOptions) -> Iterator[pa.RecordBatchReader]:
    """Yield the rows to export. Raises ConfigurationError, RecordingError and StoreError."""
    where = filters_of(
        since=options.since,
        until=options.until,
        now_ns=SYSTEM_CLOCK.epoch_ns(),
        recording_id=options.recordings,
        stream_id=options.streams,
        session_id=options.sessions,
    )
    codec = options.chosen_codec()
    names = [name.strip() for name in options.columns.split(",")] if options.columns else None
    with open_recordings(options.location, options.store_options) as recordings:
        yield recordings.scan(
            names, where, frames=options.rows == "frames", strict=options.strict, codec=codec
        ).to_reader()


class _Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch, /) -> None: ...
    def close(self) -> None: ...


def write_rows(reader: pa.RecordBatchReader, file: IO[bytes], kind: str, *, payload: str = "base64") -> int:
    """Write record batches to a file, one at a time, and return the number of rows.

    ``kind`` is one of ``KINDS``. ``payload``, one of ``PAYLOADS``, is the encoding of bytes in CSV and JSON. Raises
    ConfigurationError if either has another value, and RecordingError if ``payload`` is ``text`` and a payload is not UTF-8.
    """
    if kind not in KINDS:
        raise ConfigurationError(f"the file format must be one of {', '.join(KINDS)} (got {kind!r})")
    if payload not in PAYLOADS:
        raise ConfigurationError(f"the payload encoding must be one of {', '.join(PAYLOADS)} (got {payload!r})")
    batches: Iterator[pa.RecordBatch] = iter(reader)
    schema = reader.schema
    if kind in TEXT_KINDS and (names := _text_columns(schema, kind)):
        with needs_extras():
            import pyarrow as pa

        for name in names:
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
        batches = (_with_text(batch, schema, names, _ENCODINGS[payload]) for batch in batches)
    writer, rows = _writer(file, schema, kind), 0
    try:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    finally:
        writer.close()
    return rows


def _writer(file: IO[bytes], schema: pa.Schema, kind: str) -> _Writer:
    if kind == "jsonl":
        return _JsonLines(file)
    with needs_extras():
        import pyarrow as pa
        from pyarrow import csv, parquet

    if kind == "parquet":
        writer: _Writer = parquet.ParquetWriter(file, schema, compression="zstd")
    else:
        writer = csv.CSVWriter(file, schema) if kind == "csv" else pa.ipc.new_stream(file, schema)
    return writer


class _JsonLines:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write_batch(self, batch: pa.RecordBatch) -> None:
        rows = batch.to_pylist(maps_as_pydicts="strict")
        self._file.write("".join(json_of(row) + "\n" for row in rows).encode())

    def close(self) -> None: ...


def json_of(value: Any) -> str:
    """Format a row as JSON. Values that JSON lacks become text: times, decimals, bytes, NaN and infinities."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_with_named_floats(value))


def _with_named_floats(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return float_name(value)
    if isinstance(value, dict):
        return {name: _with_named_floats(each) for name, each in value.items()}
    return [_with_named_floats(each) for each in value] if isinstance(value, list | tuple) else value


def _json_of(value: Any) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, timedelta):
        # Exact and with a single sign. Python writes a negative duration as negative days plus a positive time.
        return f"{Decimal(value // timedelta(microseconds=1)).scaleb(-6):f} s"
    raise ValueError(f"JSON has no {type(value).__name__}")


_ENCODER = json.JSONEncoder(default=_json_of, ensure_ascii=False, allow_nan=False)


def _text_columns(schema: pa.Schema, kind: str) -> list[str]:
    """Return the columns that the format cannot represent: bytes and, in CSV, nested values and durations."""
    import pyarrow.types as is_

    def is_text(each: Any) -> bool:
        in_csv = kind == "csv" and (is_.is_nested(each) or is_.is_duration(each))
        return in_csv or bool(is_.is_binary(each) or is_.is_large_binary(each))

    return [item.name for item in schema if is_text(item.type)]


def _with_text(
    batch: pa.RecordBatch, schema: pa.Schema, names: list[str], encode: Callable[[bytes], str]
) -> pa.RecordBatch:
    """Return the batch with these columns as text: ``encode`` encodes bytes, and other values are written as JSON."""
    import pyarrow as pa

    columns = {}
    for name in names:
        texts: list[str | None] = []
        nested = {"maps_as_pydicts": "strict"} if pa.types.is_nested(batch.schema.field(name).type) else {}
        for row, value in enumerate(batch.column(name).to_pylist(**nested)):
            try:
                texts.append(None if value is None else encode(value) if isinstance(value, bytes) else json_of(value))
            except UnicodeDecodeError as error:
                where = f" at position {batch.column('position')[row]}" if "position" in batch.schema.names else ""
                raise RecordingError(
                    f"the {name}{where} is not UTF-8 ({error.reason}): write it as base64 or hex"
                ) from None
        columns[name] = pa.array(texts, pa.string())
    whole = [columns.get(name, batch.column(i)) for i, name in enumerate(batch.schema.names)]
    return pa.RecordBatch.from_arrays(whole, schema=schema)


_ENCODINGS: dict[str, Callable[[bytes], str]] = {
    "base64": lambda payload: b64encode(payload).decode(),
    "hex": bytes.hex,
    "text": bytes.decode,
}
