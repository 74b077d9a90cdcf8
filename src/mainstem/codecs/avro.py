"""Avro messages. Each is one record, without framing or in Confluent's framing or Avro's single-object encoding."""

from __future__ import annotations

import io
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.codecs.avro_resolution import agree, resolved
from mainstem.codecs.avro_schema import AvroSchema, arrow_type, check_promoted, to_datum, to_value, values_per_byte
from mainstem.codecs.base import decodes
from mainstem.codecs.schemas import (
    FRAMED_LENGTH,
    MAX_SCHEMAS,
    SchemaCache,
    SchemaCodec,
    confluent_number,
    read_text,
)
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

SINGLE_OBJECT = b"\xc3\x01"
SINGLE_OBJECT_LENGTH = 10
# The limit per message, which corresponds to several hundred megabytes of Python objects. A message that could have more values is
# refused before it is read.
MAX_VALUES = 1 << 24


class Avro(SchemaCodec):
    """The codec for Avro, where each message is a record. Needs ``mainstem[codecs]``.

    Options: ``schema``, the file with the schema of the rows; ``writer``, the file with the schema of the messages, if it differs;
    ``framing``: ``none``, ``confluent`` or ``single-object``, and the others of ``SchemaCodec``. Without ``schema``, the rows have
    the schema of their messages.
    """

    format = "AVRO"
    framings = ("none", "confluent", "single-object")

    def __init__(self, *, schema: str = "", writer: str = "", schemas: str = "", **options: str) -> None:
        super().__init__(schemas=schemas, **options)
        self._reader_text = read_text(Path(schema)) if schema else ""
        self._writer_text = read_text(Path(writer)) if writer else self._reader_text
        if not self._reader_text and (self._source is None or writer):
            raise ConfigurationError("the option schema names the file of the schema")
        # Read the texts here, because the workers may not have the directory.
        self._texts = [read_text(path) for path in self._files(schemas)] if self._framing == "single-object" else []
        # Report schema errors here, not in a task.
        _ = self._reader, self._own_writer, self._by_fingerprint

    @staticmethod
    def _files(schemas: str) -> list[Path]:
        files = sorted(Path(schemas).glob("*.avsc")) if schemas else []
        if len(files) > MAX_SCHEMAS:
            raise ConfigurationError(f"the option schemas: {len(files)} files, more than {MAX_SCHEMAS}")
        return files

    @cached_property
    def _reader(self) -> AvroSchema | None:
        return AvroSchema(self._reader_text) if self._reader_text else None

    @cached_property
    def _own_writer(self) -> AvroSchema | None:
        return AvroSchema(self._writer_text) if self._writer_text else None

    @cached_property
    def _by_fingerprint(self) -> dict[bytes, _Reading]:
        schemas = [AvroSchema(text) for text in self._texts]
        schemas += [each for each in (self._own_writer, self._reader) if each is not None]
        return {each.fingerprint: _Reading(each, self._reader) for each in schemas}

    @cached_property
    def _alone(self) -> _Reading:
        assert self._own_writer is not None, "framing=none has a schema"
        return _Reading(self._own_writer, self._reader)

    @cached_property
    def _by_number(self) -> SchemaCache:
        return SchemaCache(lambda number: _Reading(self._schema_of(number), self._reader))

    def _schema_of(self, number: int) -> AvroSchema:
        """Return the schema with a number. If there is no source of schemas, all messages have the writer's schema."""
        if self._source is None:
            assert self._own_writer is not None, "there is a schema where there is no source"
            return self._own_writer
        return AvroSchema(self._stored_schema(number).text)

    def _reading(self, payload: bytes) -> tuple[_Reading, int]:
        """Return the object that reads a message, and the offset at which the message starts."""
        if self._framing == "none":
            return self._alone, 0
        if self._framing == "confluent":
            number = confluent_number(payload)
            reading: _Reading = self._by_number.get(number)
            return reading, FRAMED_LENGTH
        if payload[:2] != SINGLE_OBJECT or len(payload) < SINGLE_OBJECT_LENGTH:
            raise ValueError("the message is not an Avro single object: one begins with C3 01 and a fingerprint")
        fingerprint = payload[2:SINGLE_OBJECT_LENGTH]
        if fingerprint not in self._by_fingerprint:
            raise ValueError(f"there is no schema with the fingerprint {fingerprint.hex()}")
        return self._by_fingerprint[fingerprint], SINGLE_OBJECT_LENGTH

    @decodes
    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        reading, start = self._reading(payload)
        return [reading.read(payload, start)]

    def encode(self, row: dict[str, Any]) -> bytes:
        """Encode a record with the writer's schema and the framing."""
        import fastavro

        schema, head = self._written
        out = io.BytesIO(head)
        out.seek(len(head))
        fastavro.schemaless_writer(out, schema.parsed, to_datum(row, schema.root))
        return out.getvalue()

    @cached_property
    def _written(self) -> tuple[AvroSchema, bytes]:
        """The schema to write with, and the bytes before each message."""
        schema = self._own_writer
        if self._framing == "confluent":
            head = self._confluent_head()
            assert self._number is not None, "there is a number where there is a head"
            return self._schema_of(self._number), head
        if schema is None:
            raise ConfigurationError("the option schema names the file of the schema that is written")
        return schema, SINGLE_OBJECT + schema.fingerprint if self._framing == "single-object" else b""

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        import pyarrow as pa

        schema = self._reader or self._latest(sample)
        return pa.schema([(name, arrow_type(each)) for name, each, _ in schema.root.fields])

    def _latest(self, sample: Sequence[bytes]) -> AvroSchema:
        """Return the schema with the highest number in the sample."""
        if self._framing != "confluent":
            raise ValueError("the option schema names the file of the schema")
        numbers = {confluent_number(each) for each in sample if each[:1] == b"\0" and len(each) >= FRAMED_LENGTH}
        reason = "no message names one"
        for number in sorted(numbers, reverse=True):
            try:
                reading: _Reading = self._by_number.get(number)
            except ValueError as error:
                reason = str(error)
            else:
                return reading.writer
        if not numbers and self._number is not None:
            return self._schema_of(self._number)
        raise ValueError(f"no schema: {reason}; set the option schema to a file")


class _Reading:
    """A reader for messages that were written with one schema as rows of another."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema | None) -> None:
        self.writer = writer
        reader = None if reader is None or reader.root == writer.root else reader
        self._target = (reader or writer).root
        self._values_per_byte = values_per_byte(writer, reader or writer)
        read_as = writer
        if reader is not None and not agree(writer.root, reader.root):
            self._target = resolved(writer.root, reader.root)
            read_as, reader = writer.without_logical_types(), reader.without_logical_types()
        self._writer = read_as.parsed
        self._reader = None if reader is None else reader.parsed
        self._is_walked = writer.is_walked or self._target.is_walked()
        is_promoted = {"int", "long"} & writer.root.kinds() and {"float", "double"} & self._target.kinds()
        self._is_promoted = self._reader is not None and bool(is_promoted)

    def read(self, payload: bytes, start: int) -> dict[str, Any]:
        """Return the row of a message. Raises fastavro's errors, and ValueError."""
        import fastavro

        if (len(payload) - start) * self._values_per_byte > MAX_VALUES:
            raise ValueError(f"a message of {len(payload)} bytes may have more than {MAX_VALUES} values")
        stream = io.BytesIO(payload)
        stream.seek(start)
        try:
            row: Any = fastavro.schemaless_reader(stream, self._writer, self._reader, return_named_type=self._is_walked)
        except (EOFError, IndexError) as error:
            reason = f" ({error})" if str(error) else ""
            raise ValueError(f"the message is cut off, or of another schema{reason}") from None
        if rest := len(payload) - stream.tell():
            raise ValueError(f"{rest} bytes are left after the record")
        if self._is_promoted:
            stream.seek(start)
            check_promoted(fastavro.schemaless_reader(stream, self._writer), self._target)
        return to_value(row, self._target) if self._is_walked else row  # type: ignore[no-any-return]
