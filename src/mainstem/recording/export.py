"""Recordings as files that other programs read: Parquet, CSV, JSON lines and Arrow. Needs pyarrow (``mainstem[arrow]``)."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Protocol

from mainstem.errors import ConfigurationError, RecordingError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

KINDS = ("parquet", "csv", "jsonl", "arrow")
PAYLOADS = ("base64", "hex", "text")
# CSV and JSON have no bytes: a payload is written as text there.
TEXT_KINDS = ("csv", "jsonl")


class _Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch, /) -> None: ...
    def close(self) -> None: ...


def write_rows(reader: pa.RecordBatchReader, file: IO[bytes], kind: str, *, payload: str = "base64") -> int:
    """Writes record batches to a file, and returns the number of rows; memory is that of a batch.

    ``kind`` is one of ``KINDS``; ``payload`` says how CSV and JSON lines have the bytes: one of ``PAYLOADS``. Raises
    ConfigurationError for others, and RecordingError where a payload is not UTF-8 and ``payload`` is ``text``.
    """
    if kind not in KINDS:
        raise ConfigurationError(f"{kind!r} is none of {', '.join(KINDS)}")
    if payload not in PAYLOADS:
        raise ConfigurationError(f"{payload!r} is none of {', '.join(PAYLOADS)}")
    batches: Iterator[pa.RecordBatch] = iter(reader)
    schema = reader.schema
    if kind in TEXT_KINDS and "payload" in schema.names:
        with needs_extras():
            import pyarrow as pa

        schema = schema.set(schema.get_field_index("payload"), pa.field("payload", pa.string()))
        batches = (_with_text(batch, schema, _ENCODINGS[payload]) for batch in batches)
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
    """A JSON object a line; times are ISO 8601."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write_batch(self, batch: pa.RecordBatch) -> None:
        lines = (json.dumps(row, default=_json_of, ensure_ascii=False) + "\n" for row in batch.to_pylist())
        self._file.write("".join(lines).encode())

    def close(self) -> None:
        """Nothing is held back."""


def _json_of(value: Any) -> str:
    assert isinstance(value, datetime), f"{value!r} is no value of a column"
    return value.isoformat()


def _with_text(batch: pa.RecordBatch, schema: pa.Schema, encode: Callable[[bytes], str]) -> pa.RecordBatch:
    """The batch with its payloads as text."""
    import pyarrow as pa

    index = batch.schema.get_field_index("payload")
    texts: list[str] = []
    for row, payload in enumerate(batch.column(index).to_pylist()):
        try:
            texts.append(encode(payload))
        except UnicodeDecodeError as error:
            where = f" at position {batch.column('position')[row]}" if "position" in batch.schema.names else ""
            raise RecordingError(
                f"the payload{where} is not UTF-8 ({error.reason}): write it as base64 or hex"
            ) from None
    columns = [pa.array(texts, pa.string()) if i == index else batch.column(i) for i in range(batch.num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_ENCODINGS: dict[str, Callable[[bytes], str]] = {
    "base64": lambda payload: b64encode(payload).decode(),
    "hex": bytes.hex,
    "text": bytes.decode,
}
