"""The codec for Protobuf messages, without framing or in Confluent's framing."""

from __future__ import annotations

import base64
import importlib
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.codecs.base import decodes
from mainstem.codecs.protobuf_resolution import Difference, differences, restore
from mainstem.codecs.protobuf_rows import Budget, Message, Messages
from mainstem.codecs.schemas import (
    FRAMED_LENGTH,
    SchemaCache,
    SchemaCodec,
    SchemaRegistry,
    confluent_number,
    read_bytes,
)
from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

# Maximum number of indexes that identify a message type. Message types are not nested more deeply.
MAX_INDEXES = 64
# Maximum number of cached types, by schema number and indexes. When it is reached, the cache is cleared.
MAX_READINGS = 1024


class Protobuf(SchemaCodec):
    """The codec for Protobuf messages of one type. Needs ``mainstem[codecs]``.

    Options: ``descriptors``, a file made by ``protoc --include_imports --descriptor_set_out``, and ``message``, a full name in it;
    or ``module``, a generated class such as ``tides_pb2:Trade``; ``timestamps``: ``us``, or ``ns`` for int64 nanoseconds; and those
    of ``SchemaCodec``, where a directory has such files by number (``17.desc``).
    """

    format = "PROTOBUF"

    def __init__(
        self, *, descriptors: str = "", message: str = "", module: str = "", timestamps: str = "us", **options: str
    ) -> None:
        super().__init__(**options)
        if timestamps not in ("us", "ns"):
            raise ConfigurationError(f"timestamps must be us or ns (got {timestamps!r})")
        if bool(descriptors) and bool(module):
            raise ConfigurationError("the options descriptors and module exclude each other")
        self._nanos, self._name, self._module = timestamps == "ns", message, module
        self._data = read_bytes(Path(descriptors)) if descriptors else None
        if self._data is None and not module and self._source is None:
            raise ConfigurationError("the options descriptors and message, or module, name the type of the messages")
        # Report descriptor errors here, not in a task.
        _ = self._reader

    @cached_property
    def _reader(self) -> _Reading | None:
        with needs_extras():
            import google.protobuf.descriptor  # noqa: F401

        if self._module:
            return _Reading(_class_of_module(self._module).DESCRIPTOR, self._nanos)
        if self._data is None:
            return None
        files = _files(self._data)
        pool = _pool(files)
        try:
            descriptor = pool.FindMessageTypeByName(self._name)
        except KeyError:
            names = [f"{file.package}.{each.name}".lstrip(".") for file in files for each in file.message_type]
            raise ConfigurationError(f"message must be one of {', '.join(names[:20])} (got {self._name!r})") from None
        return _Reading(descriptor, self._nanos)

    @cached_property
    def _by_number(self) -> SchemaCache:
        return SchemaCache(self._file_of)

    def _file_of(self, number: int) -> Any:
        data = _decoded(self._stored_schema(number).text, number)
        if isinstance(self._source, SchemaRegistry):
            files = [_parsed("FileDescriptorProto", data)]
            files[0].name = files[0].name or f"{number}.proto"
        else:
            files = _files(data)
        return _pool(files).FindFileByName(files[-1].name)

    @cached_property
    def _readings(self) -> dict[tuple[int, ...], tuple[Any, _Reading]]:
        """The file and the reader of each message type, by schema number and indexes."""
        return {}

    def _reading(self, payload: bytes) -> tuple[_Reading, int]:
        """Return the reader for a message, and the offset at which it starts. Raises ValueError for a message of another type."""
        if self._framing == "none":
            assert self._reader is not None, "framing=none has descriptors"
            return self._reader, 0
        number = confluent_number(payload)
        indexes, start = _indexes(payload, FRAMED_LENGTH)
        if self._source is None:
            assert self._reader is not None, "there are descriptors where there is no source"
            file = self._reader.descriptor.file
        else:
            file = self._by_number.get(number)
        key = (number if self._source is not None else 0, *indexes)
        if key not in self._readings or self._readings[key][0] is not file:
            if len(self._readings) >= MAX_READINGS:
                self._readings.clear()
            self._readings[key] = file, self._reading_of(_message_at(file, indexes))
        return self._readings[key][1], start

    def _reading_of(self, descriptor: Any) -> _Reading:
        """Return the reader for a message type. Raises ValueError if the options name another type."""
        name = self._name if self._reader is None else self._reader.descriptor.full_name
        if name and descriptor.full_name != name:
            raise ValueError(f"the message {descriptor.full_name!r}, not {name!r}")
        if self._reader is None:
            return _Reading(descriptor, self._nanos)
        return self._reader.for_writer(_Reading(descriptor, self._nanos))

    @decodes
    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        reading, start = self._reading(payload)
        return [reading.read(payload[start:] if start else payload)]

    def encode(self, row: dict[str, Any]) -> bytes:
        if self._reader is None:
            raise ConfigurationError("the options descriptors and message, or module, name the type that is written")
        row_bytes = self._reader.write(row)
        if self._framing == "none":
            return row_bytes
        return self._confluent_head() + _written_indexes(self._reader.descriptor) + row_bytes

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """Return the schema of the type. Without a type, uses the sample message whose schema has the highest number."""
        if self._reader is not None:
            return self._reader.schema()
        framed = [each for each in sample if len(each) > FRAMED_LENGTH and each[0] == 0]
        reason = "no message names one"
        for payload in sorted(
            {each[:FRAMED_LENGTH]: each for each in framed}.values(), key=confluent_number, reverse=True
        ):
            try:
                return self._reading(payload)[0].schema()
            except ValueError as error:
                reason = str(error)
        raise ValueError(f"no schema: {reason}; set the options descriptors and message")


class _Reading:
    def __init__(self, descriptor: Any, nanos: bool) -> None:
        from google.protobuf import message_factory

        self.descriptor = descriptor
        self._make = message_factory.GetMessageClass(descriptor)
        self._message: Message = Messages(message_factory.GetMessageClass, nanos=nanos).message(descriptor)
        if not self._message.fields:
            raise ConfigurationError(f"Protobuf: {descriptor.full_name} has no fields, and no column holds that")
        self._writer: _Reading | None = None
        self._differences: tuple[Difference, ...] = ()

    def for_writer(self, writer: _Reading) -> _Reading:
        """Return a reader for messages with another schema. Fields that have another type there keep their values."""
        found = differences(writer.descriptor, self.descriptor)
        if not found:
            return self
        result = copy(self)
        result._writer, result._differences = writer, found
        return result

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([(each.name, each.arrow) for each in self._message.fields])

    def read(self, payload: bytes) -> dict[str, Any]:
        message = self._make()
        message.ParseFromString(payload)
        row = self._message.read(message, Budget())
        if self._writer is not None:
            restore(row, self._writer.read(payload), self._differences)
        return row

    def write(self, row: dict[str, Any]) -> bytes:
        message = self._make()
        self._message.write(row, message)
        data: bytes = message.SerializeToString(deterministic=True)
        return data


def _class_of_module(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
        _ = value.DESCRIPTOR.full_name
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"the option module: {name!r} is not a Protobuf class ({error})") from None
    return value


def _decoded(text: str, number: int) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ConfigurationError(f"schema {number} is not a serialized descriptor") from None


def _parsed(name: str, data: bytes) -> Any:
    """Parse a message of descriptor.proto. Raises ConfigurationError."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        return getattr(descriptor_pb2, name).FromString(data)
    except DecodeError as error:
        raise ConfigurationError(f"Protobuf descriptors: {error}") from None


def _files(data: bytes) -> list[Any]:
    """Return the files of a descriptor set, each after its imports. Raises ConfigurationError."""
    files = list(_parsed("FileDescriptorSet", data).file)
    if not files:
        raise ConfigurationError("Protobuf descriptors: the set has no file; protoc --descriptor_set_out writes one")
    return files


def _pool(files: list[Any]) -> Any:
    """Make a descriptor pool of these files and Protobuf's own. Raises ConfigurationError."""
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    pool = descriptor_pool.DescriptorPool()
    names = {file.name for file in files}
    own = (descriptor_pb2, any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    try:
        for module in own:
            if module.DESCRIPTOR.name not in names:
                pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"Protobuf descriptors: {error}; protoc --include_imports adds the files that are imported"
        ) from None
    return pool


def _indexes(payload: bytes, at: int) -> tuple[list[int], int]:
    """Read the indexes that identify a message type in its file, and the message's offset. Raises ValueError."""
    count, at = _varint(payload, at)
    if count == 0:
        return [0], at
    if not 0 < count <= MAX_INDEXES:
        raise ValueError(f"the message has {count} indexes")
    indexes = []
    for _ in range(count):
        index, at = _varint(payload, at)
        indexes.append(index)
    return indexes, at


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35 and at < len(payload):
        byte = payload[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("the indexes of the message are cut off")


def _zigzag(value: int) -> bytes:
    value, out = value << 1, b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def _proto_of(file: Any) -> Any:
    """Return a file as a descriptor.proto message. The indexes refer to its order of message types."""
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    return proto


def _message_at(file: Any, indexes: list[int]) -> Any:
    """Return the message type at these indexes of a file. Raises ValueError."""
    proto = _proto_of(file)
    messages, names = proto.message_type, [proto.package] if proto.package else []
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"the schema has no message at the indexes {indexes}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return file.pool.FindMessageTypeByName(".".join(names))


def _written_indexes(descriptor: Any) -> bytes:
    proto = _proto_of(descriptor.file)
    messages, indexes = proto.message_type, []
    for name in descriptor.full_name.removeprefix(f"{proto.package}.").split("."):
        index = [each.name for each in messages].index(name)
        indexes.append(index)
        messages = messages[index].nested_type
    return b"\0" if indexes == [0] else _zigzag(len(indexes)) + b"".join(map(_zigzag, indexes))
