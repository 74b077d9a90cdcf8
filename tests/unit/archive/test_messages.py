"""Messages of Aeron Archive: known bytes, shorter and longer blocks, and messages that cannot be decoded."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.support.archive_messages import sample, schema_xml

from mainstem.archive.messages import TYPES, MessageReader, MessageType, decode, encode
from mainstem.codecs.sbe import SbeSchema
from mainstem.errors import ConfigurationError, RemoteProtocolError

SESSION = {"control_session_id": 7}
VECTORS: list[tuple[str, dict[str, Any], str]] = [
    (
        "AuthConnectRequest",
        {"correlation_id": 1, "response_stream_id": 20, "version": 0x010C00, "response_channel": "aeron:ipc"}
        | {"encoded_credentials": b"", "client_info": "name=x"},
        "10003a0065000e00 0100000000000000 14000000000c0100 090000006165726f 6e3a697063000000 00060000006e616d 653d78",
    ),
    (
        "ControlResponse",
        SESSION | {"correlation_id": 1, "relevant_id": 7, "code": 0, "version": 0x010C00, "error_message": ""},
        "2000010065000e00 0700000000000000 0100000000000000 0700000000000000 00000000000c0100 00000000",
    ),
    (
        "StartRecordingRequest2",
        SESSION
        | {"correlation_id": 2, "stream_id": 1001, "source_location": 0, "auto_stop": 1, "channel": "aeron:ipc"},
        "1c003f0065000e00 0700000000000000 0200000000000000 e903000000000000 0100000009000000 6165726f6e3a6970 63",
    ),
    (
        "RecordingSignalEvent",
        SESSION | {"correlation_id": 2, "recording_id": 0, "subscription_id": 5, "position": 0, "signal": 0},
        "2c00180065000e00 0700000000000000 0200000000000000 0000000000000000 0500000000000000 0000000000000000 00000000",
    ),
    (
        "ReplayRequest",
        SESSION
        | {"correlation_id": 3, "recording_id": 0, "position": -1, "length": -1, "replay_stream_id": 1002}
        | {"file_io_max_length": -1, "replay_token": -1, "replay_channel": "aeron:ipc"},
        """3800060065000e00 0700000000000000 0300000000000000 0000000000000000 ffffffffffffffff ffffffffffffffff
        ea030000ffffffff ffffffffffffffff 090000006165726f 6e3a697063""",
    ),
    ("Ping", SESSION, "08006a0065000e00 0700000000000000"),
]
# The block lengths that the C client and the archive expect, by message name.
BLOCK_LENGTHS = {
    "ControlResponse": 32,
    "Challenge": 20,
    "RecordingDescriptor": 80,
    "RecordingSubscriptionDescriptor": 28,
    "RecordingSignalEvent": 44,
    "CatalogHeader": 32,
    "RecordingDescriptorHeader": 32,
    "ReplicateRequest2": 68,
    "BoundedReplayRequest": 60,
    "ListRecordingsForUriRequest": 32,
    "TaggedReplicateRequest": 52,
}


@pytest.mark.parametrize(("name", "values", "text"), VECTORS, ids=[vector[0] for vector in VECTORS])
def test_known_bytes_are_written_and_read(name: str, values: dict[str, Any], text: str) -> None:
    data = bytes.fromhex(text)
    assert encode(name, **values) == data
    message = decode(data)
    assert (message.name, message.values) == (name, values)


def test_the_table_has_all_messages_with_their_block_lengths() -> None:
    assert len(TYPES) == 49
    assert len({each.template_id for each in TYPES}) == 49
    lengths = {each.name: each.block_length for each in TYPES}
    assert {name: lengths[name] for name in BLOCK_LENGTHS} == BLOCK_LENGTHS


@pytest.mark.parametrize("message_type", TYPES, ids=[each.name for each in TYPES])
def test_every_message_round_trips_and_the_sbe_codec_agrees(message_type: MessageType) -> None:
    values = sample(message_type)
    data = message_type.encode(**values)
    assert decode(data).values == values
    decoded = SbeSchema(schema_xml(TYPES)).decode(data)
    assert decoded is not None
    block, fields = decoded
    assert block.name == message_type.name
    assert fields == {name: each.encode() if isinstance(each, str) else each for name, each in values.items()}


@pytest.mark.parametrize("version", range(2, 15))
def test_blocks_of_every_version_are_read(version: int) -> None:
    for message_type in TYPES:
        values = sample(message_type)
        data = message_type.encode(**values)
        length = message_type.block_length_of(version)
        cut = data[8 + message_type.block_length :]
        older = struct.pack("<HHHH", length, message_type.template_id, 101, version) + data[8 : 8 + length] + cut
        expected = values | {each.name: each.null for each in message_type.fields if each.since > version}
        assert decode(older).values == expected
        # The block is long enough for the field, but its version is older, so those bytes hold something else.
        padded = struct.pack("<HHHH", message_type.block_length, message_type.template_id, 101, version) + data[8:]
        assert decode(padded).values == expected


def test_a_newer_block_is_read_without_what_it_adds() -> None:
    for message_type in TYPES:
        values = sample(message_type)
        data = message_type.encode(**values)
        end = 8 + message_type.block_length
        head = struct.pack("<HHHH", message_type.block_length + 12, message_type.template_id, 101, 19)
        assert decode(head + data[8:end] + bytes(range(12)) + data[end:]).values == values


def test_fields_of_version_14_beyond_a_short_block_are_absent() -> None:
    data = encode("ReplayRequest", **dict(VECTORS[4][1]) | {"file_io_max_length": 4096, "replay_token": 9})
    short = struct.pack("<HHHH", 48, 6, 101, 14) + data[8:56] + data[64:]
    message = decode(short)
    assert (message.file_io_max_length, message.replay_token, message.replay_channel) == (4096, -1, "aeron:ipc")


def test_data_that_an_older_version_lacks_is_empty_and_padding_behind_the_last_is_skipped() -> None:
    data = bytes.fromhex(VECTORS[0][2])
    older = struct.pack("<HHHH", 16, 58, 101, 11) + data[8:41]
    message = decode(older)
    assert (message.response_channel, message.encoded_credentials, message.client_info) == ("aeron:ipc", b"", "")
    assert decode(data + bytes(63)) == decode(data)


PING = bytes.fromhex(VECTORS[5][2])
BAD = [
    ("header", b""),
    ("header", PING[:7]),
    ("schema id", PING[:4] + b"\x66" + PING[5:]),
    ("template id", PING[:2] + b"\x02" + PING[3:]),
    ("block length", PING[:8]),
    ("block length", PING[:15]),
    ("block length", b"\x07" + PING[1:]),
    ("block length", b"\xff\xff" + PING[2:]),
    ("data length", bytes.fromhex(VECTORS[0][2])[:-1]),
    ("data length", bytes.fromhex(VECTORS[0][2])[:42]),
    ("data length", bytes.fromhex(VECTORS[0][2])[:24] + b"\xff\xff\xff\xff"),
]


@pytest.mark.parametrize(("rule", "data"), BAD)
def test_unreadable_messages_are_rejected_and_counted(rule: str, data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(data)
    assert caught.value.rule == rule
    reader = MessageReader()
    assert [reader.read(data), reader.read(data)] == [None, None]
    assert reader.refused == {rule: 2}
    assert reader.read(PING) is not None


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"stream_id": 1 << 31}, "stream_id=2147483648: must be an integer of 32 bits"),
        ({"correlation_id": "2"}, "correlation_id='2': must be an integer of 64 bits"),
        ({"channel": "aeron:ipc?alias=dé"}, "must be a str of ASCII characters"),
        ({"channel": b"aeron:ipc"}, "must be a str of ASCII characters"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(changed: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        encode("StartRecordingRequest2", **VECTORS[2][1] | changed)


def test_text_that_is_not_ascii_is_read_with_replacements() -> None:
    data = bytes.fromhex(VECTORS[2][2])
    assert decode(data[:-1] + b"\xff").channel == "aeron:ip�"


def test_a_message_shows_its_values_and_has_no_others() -> None:
    message = decode(PING)
    assert repr(message) == "Ping(control_session_id=7)"
    with pytest.raises(AttributeError, match="Ping has no 'position'"):
        _ = message.position
