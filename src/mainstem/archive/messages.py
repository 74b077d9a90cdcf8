"""The messages of Aeron Archive (SBE schema 101), defined in a table of all 49.

A message consists of an 8-byte header (block length, template id, schema id and version, each a u16), a block of fields at fixed
offsets, and variable-length data, each preceded by its length (u32). Everything is little-endian.

The decoder uses the block length and version in the header. A longer block comes from a newer peer, and its additional fields are
skipped. A field that was added in a later version, or lies beyond the block, has its null value. The encoder always writes blocks
with exactly the lengths of schema version 14, because the C client reads five of them by the lengths it was compiled with.

SBE's own null values are never written; the protocol uses -1.
"""

from __future__ import annotations

import struct
from collections import Counter
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_ID = 101
SCHEMA_VERSION = 14
NULL = -1  # an id, position, length or time that is not specified
MAX_DATA_LENGTH = 1 << 30

_HEADER = struct.Struct("<HHHH")
_LENGTH = struct.Struct("<I")


class ResponseCode(IntEnum):
    """``code`` of a ControlResponse."""

    OK = 0
    ERROR = 1
    RECORDING_UNKNOWN = 2
    SUBSCRIPTION_UNKNOWN = 3


class SourceLocation(IntEnum):
    """Where the archive records a stream.

    ``LOCAL`` records a publication of the archive's own driver, through a spy if the channel is UDP. ``REMOTE`` subscribes to the
    channel like any other subscriber.
    """

    LOCAL = 0
    REMOTE = 1


class RecordingSignal(IntEnum):
    """What happened to a recording."""

    START = 0
    STOP = 1
    EXTEND = 2
    REPLICATE = 3
    MERGE = 4
    SYNC = 5
    DELETE = 6
    REPLICATE_END = 7


# Template id, name, block, data. `S` stands for a session and a correlation id. `@N` is the schema version that added a field,
# `=N` its null value if that is not -1. `bytes` marks data that is not text.
_SESSION = "0 control_session_id i64; 8 correlation_id i64"
_TABLE = """
1   ControlResponse; S; 16 relevant_id i64; 24 code i32; 28 version i32 @4 =0 | error_message
3   CloseSessionRequest; 0 control_session_id i64
4   StartRecordingRequest; S; 16 stream_id i32; 20 source_location i32 | channel
5   StopRecordingRequest; S; 16 stream_id i32 | channel
6   ReplayRequest; S; 16 recording_id i64; 24 position i64; 32 length i64; 40 replay_stream_id i32; 44 file_io_max_length i32 @7; \
48 replay_token i64 @10 | replay_channel
7   StopReplayRequest; S; 16 replay_session_id i64
8   ListRecordingsRequest; S; 16 from_recording_id i64; 24 record_count i32
9   ListRecordingsForUriRequest; S; 16 from_recording_id i64; 24 record_count i32; 28 stream_id i32 | channel
10  ListRecordingRequest; S; 16 recording_id i64
11  ExtendRecordingRequest; S; 16 recording_id i64; 24 stream_id i32; 28 source_location i32 | channel
12  RecordingPositionRequest; S; 16 recording_id i64
13  TruncateRecordingRequest; S; 16 recording_id i64; 24 position i64
14  StopRecordingSubscriptionRequest; S; 16 subscription_id i64
15  StopPositionRequest; S; 16 recording_id i64
16  FindLastMatchingRecordingRequest; S; 16 min_recording_id i64; 24 session_id i32; 28 stream_id i32 | channel
17  ListRecordingSubscriptionsRequest; S; 16 pseudo_index i32; 20 subscription_count i32; 24 apply_stream_id i32; \
28 stream_id i32 | channel
18  BoundedReplayRequest; S; 16 recording_id i64; 24 position i64; 32 length i64; 40 limit_counter_id i32; \
44 replay_stream_id i32; 48 file_io_max_length i32 @7; 52 replay_token i64 @10 | replay_channel
19  StopAllReplaysRequest; S; 16 recording_id i64
20  CatalogHeader; 0 version i32; 4 length i32; 8 next_recording_id i64; 16 alignment i32; 31 reserved i8 =0
21  RecordingDescriptorHeader; 0 length i32; 4 state i32; 8 checksum i32; 31 reserved i8 =0
22  RecordingDescriptor; S; 16 recording_id i64; 24 start_timestamp i64; 32 stop_timestamp i64; 40 start_position i64; \
48 stop_position i64; 56 initial_term_id i32; 60 segment_file_length i32; 64 term_buffer_length i32; 68 mtu_length i32; \
72 session_id i32; 76 stream_id i32 | stripped_channel; original_channel; source_identity
23  RecordingSubscriptionDescriptor; S; 16 subscription_id i64; 24 stream_id i32 | stripped_channel
24  RecordingSignalEvent; S; 16 recording_id i64; 24 subscription_id i64; 32 position i64; 40 signal i32
50  ReplicateRequest; S; 16 src_recording_id i64; 24 dst_recording_id i64; 32 src_control_stream_id i32 | src_control_channel; \
live_destination
51  StopReplicationRequest; S; 16 replication_id i64
52  StartPositionRequest; S; 16 recording_id i64
53  DetachSegmentsRequest; S; 16 recording_id i64; 24 new_start_position i64
54  DeleteDetachedSegmentsRequest; S; 16 recording_id i64
55  PurgeSegmentsRequest; S; 16 recording_id i64; 24 new_start_position i64
56  AttachSegmentsRequest; S; 16 recording_id i64
57  MigrateSegmentsRequest; S; 16 src_recording_id i64; 24 dst_recording_id i64
58  AuthConnectRequest; 0 correlation_id i64; 8 response_stream_id i32; 12 version i32 | response_channel; \
encoded_credentials bytes; client_info
59  Challenge; S; 16 version i32 | encoded_challenge bytes
60  ChallengeResponse; S | encoded_credentials bytes
61  KeepAliveRequest; S
62  TaggedReplicateRequest; S; 16 src_recording_id i64; 24 dst_recording_id i64; 32 channel_tag_id i64; \
40 subscription_tag_id i64; 48 src_control_stream_id i32 | src_control_channel; live_destination
63  StartRecordingRequest2; S; 16 stream_id i32; 20 source_location i32; 24 auto_stop i32 | channel
64  ExtendRecordingRequest2; S; 16 recording_id i64; 24 stream_id i32; 28 source_location i32; 32 auto_stop i32 | channel
65  StopRecordingByIdentityRequest; S; 16 recording_id i64
66  ReplicateRequest2; S; 16 src_recording_id i64; 24 dst_recording_id i64; 32 stop_position i64; 40 channel_tag_id i64; \
48 subscription_tag_id i64; 56 src_control_stream_id i32; 60 file_io_max_length i32 @7; 64 replication_session_id i32 @8 \
| src_control_channel; live_destination; replication_channel; encoded_credentials bytes; src_response_channel
67  MaxRecordedPositionRequest; S; 16 recording_id i64
68  ArchiveIdRequest; S
101 RecordingStarted; 0 recording_id i64; 8 start_position i64; 16 session_id i32; 20 stream_id i32 | channel; source_identity
102 RecordingProgress; 0 recording_id i64; 8 start_position i64; 16 position i64
103 RecordingStopped; 0 recording_id i64; 8 start_position i64; 16 stop_position i64
104 PurgeRecordingRequest; S; 16 recording_id i64
105 ReplayTokenRequest; S; 16 recording_id i64
106 Ping; 0 control_session_id i64
107 UpdateChannelRequest; S; 16 recording_id i64 | channel
"""
_CODES = {"i8": ("b", 1), "i32": ("i", 4), "i64": ("q", 8)}


class Field:
    """A number at a fixed offset in a block."""

    __slots__ = ("code", "length", "name", "null", "offset", "since")

    def __init__(self, text: str) -> None:
        offset, self.name, kind, *rest = text.split()
        self.offset = int(offset)
        self.code, self.length = _CODES[kind]
        options = {word[0]: int(word[1:]) for word in rest}
        self.since = options.get("@", 0)
        self.null = options.get("=", NULL)

    @property
    def end(self) -> int:
        return self.offset + self.length


class MessageType:
    """A message in the table. ``data`` says for each variable-length field whether it is text."""

    def __init__(self, line: str) -> None:
        number, _, rest = line.partition(" ")
        block, _, data = rest.partition("|")
        name, *fields = (part.strip() for part in block.split(";"))
        if fields[0] == "S":
            fields[:1] = _SESSION.split(";")
        self.name = name
        self.template_id = int(number)
        self.fields = tuple(map(Field, fields))
        self.data = {word[0]: len(word) == 1 for part in data.split(";") if (word := part.split())}
        self.block_length = self.fields[-1].end
        self._base_length = self.block_length_of(0)
        self._header = _HEADER.pack(self.block_length, self.template_id, SCHEMA_ID, SCHEMA_VERSION)
        self._layouts = cache(self._layout)

    def block_length_of(self, version: int) -> int:
        """Return the length of the block in a schema version."""
        return max(field.end for field in self.fields if field.since <= version)

    def _layout(self, count: int) -> struct.Struct:
        """Return the layout of the first ``count`` fields, including the gaps between them."""
        text, at = "<", 0
        for field in self.fields[:count]:
            text += "x" * (field.offset - at) + field.code
            at = field.end
        return struct.Struct(text)

    def encode(self, **values: Any) -> bytes:
        """Encode a message. Every field needs a value; data that is omitted is empty.

        Raises ConfigurationError if a value does not fit.
        """
        try:
            block = self._layouts(len(self.fields)).pack(*(values[field.name] for field in self.fields))
        except struct.error:
            bad = next(field for field in self.fields if not _fits(field, values[field.name]))
            limit = f"an integer of {8 * bad.length} bits"
            raise ConfigurationError(f"{bad.name}={values[bad.name]!r}: must be {limit}") from None
        parts = [self._header, block]
        for name, is_text in self.data.items():
            value = values.get(name) or b""
            if is_text and value:
                value = _as_ascii(name, value)
            if len(value) > MAX_DATA_LENGTH:
                raise ConfigurationError(f"{name}: {len(value)} bytes exceed the maximum of {MAX_DATA_LENGTH}")
            parts += (_LENGTH.pack(len(value)), value)
        return b"".join(parts)

    def decode(self, data: bytes, block_length: int, version: int) -> Message:
        """Decode the block and the data that follow the header. Raises RemoteProtocolError if a length is impossible."""
        if block_length < self._base_length or len(data) < _HEADER.size + block_length:
            raise _unreadable("block length", f"{self.name} has a block of {block_length} bytes in {len(data)}")
        count = len(self.fields)
        while (field := self.fields[count - 1]).end > block_length or field.since > version:
            count -= 1
        values = dict(zip((each.name for each in self.fields), self._layouts(count).unpack_from(data, 8), strict=False))
        for field in self.fields[count:]:
            values[field.name] = field.null
        at = _HEADER.size + block_length
        for name, is_text in self.data.items():
            value = b""
            if at < len(data):
                value, at = self._read_data(name, data, at)
            values[name] = value.decode("ascii", "replace") if is_text else value
        return Message(self, values)

    def _read_data(self, name: str, data: bytes, at: int) -> tuple[bytes, int]:
        start = at + _LENGTH.size
        if start <= len(data):
            (length,) = _LENGTH.unpack_from(data, at)
            if start + length <= len(data):
                return data[start : start + length], start + length
        raise _unreadable("data length", f"{name} of {self.name} is longer than the message ({len(data)} bytes)")

    def __repr__(self) -> str:
        return f"<MessageType {self.name} {self.template_id}>"


class Message:
    """A decoded message: its type, with its values as attributes."""

    __slots__ = ("type", "values")

    def __init__(self, message_type: MessageType, values: Mapping[str, Any]) -> None:
        self.type = message_type
        self.values = values

    @property
    def name(self) -> str:
        return self.type.name

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(f"{self.type.name} has no {name!r}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and (self.type, self.values) == (other.type, other.values)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.type.name}({', '.join(f'{name}={value!r}' for name, value in self.values.items())})"


TYPES = tuple(MessageType(line) for line in _TABLE.strip().splitlines())
_BY_NAME = {each.name: each for each in TYPES}
_BY_ID = {each.template_id: each for each in TYPES}


def encode(name: str, /, **values: Any) -> bytes:
    """Encode the message called ``name``, like ``MessageType.encode``."""
    return _BY_NAME[name].encode(**values)


def decode(data: bytes) -> Message:
    """Decode a message.

    Raises RemoteProtocolError; its ``rule`` is one of "header", "schema id", "template id", "block length" and "data length".
    """
    if len(data) < _HEADER.size:
        raise _unreadable("header", f"{len(data)} bytes are shorter than a header of {_HEADER.size}")
    block_length, template_id, schema_id, version = _HEADER.unpack_from(data)
    if schema_id != SCHEMA_ID:
        raise _unreadable("schema id", f"schema {schema_id} is not {SCHEMA_ID}")
    message_type = _BY_ID.get(template_id)
    if message_type is None:
        raise _unreadable("template id", f"schema {SCHEMA_ID} version {SCHEMA_VERSION} has no template {template_id}")
    return message_type.decode(data, block_length, version)


class MessageReader:
    """Decodes messages from a peer. Counts malformed ones in ``refused``, by the rule that they violate."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()

    def read(self, data: bytes) -> Message | None:
        """Return the message; None if it was refused."""
        try:
            return decode(data)
        except RemoteProtocolError as error:
            self.refused[error.rule] += 1
            return None


def _unreadable(rule: str, reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"cannot read a message of Aeron Archive: {reason}", rule=rule)


def _fits(field: Field, value: Any) -> bool:
    limit = 1 << (8 * field.length - 1)
    return isinstance(value, int) and -limit <= value < limit


def _as_ascii(name: str, value: Any) -> bytes:
    if isinstance(value, str) and value.isascii():
        return value.encode("ascii")
    raise ConfigurationError(f"{name}={value!r}: must be a str of ASCII characters")
