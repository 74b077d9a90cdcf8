"""Commands and responses against handwritten vectors."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.aeron.command import commands, responses
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.errors import LocalProtocolError, RemoteProtocolError

VECTORS = tomllib.loads((Path(__file__).parents[3] / "vectors" / "aeron_commands.toml").read_text())["vector"]
ALL = commands.COMMANDS | responses.RESPONSES
BYTES_FIELDS = {"key", "token", "source_address"}


def message_of(vector):
    values = {name: bytes.fromhex(v) if name in BYTES_FIELDS else v for name, v in vector["fields"].items()}
    return ALL[vector["type"]](**values)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["class"])
def test_encodes_and_decodes_the_written_bytes(vector):
    message, data = message_of(vector), bytes.fromhex("".join(vector["hex"]))
    assert type(message).__name__ == vector["class"]
    assert message.encode() == data
    assert type(message).decode(data) == message


def test_every_record_has_a_vector_and_every_type_a_record():
    assert {vector["type"] for vector in VECTORS} == set(ALL)
    assert set(commands.COMMANDS) == set(commands.CommandType)
    assert set(responses.RESPONSES) == set(responses.ResponseType)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["class"])
def test_a_record_cut_anywhere_is_malformed_or_lacks_only_what_may_be_absent(vector):
    message, data = message_of(vector), bytes.fromhex("".join(vector["hex"]))
    may_end = {"RemovePublication": [24], "RejectImage": [38, 39]}.get(vector["class"], [])
    for end in range(len(data)):
        if end in may_end:
            assert type(message).decode(data[:end]).encode()[:end] == data[:end]
            continue
        with pytest.raises(RemoteProtocolError, match=vector["class"]) as caught:
            type(message).decode(data[:end])
        assert caught.value.code == ErrorCode.MALFORMED_COMMAND
        assert caught.value.rule in {field.name for field in fields(message)}


def test_remove_publication_without_flags_is_accepted():
    command = commands.decode_command(2, bytes.fromhex("010000000000000002000000000000000300000000000000"))
    assert command == commands.RemovePublication(client_id=1, correlation_id=2, registration_id=3)
    assert not command.revoke
    assert commands.RemovePublication(client_id=1, correlation_id=2, registration_id=3, flags=1).revoke


def test_an_empty_rejection_reason_is_padded_to_forty_bytes():
    command = commands.RejectImage(client_id=1, correlation_id=2, image_correlation_id=3, position=0, reason="")
    assert len(command.encode()) == 40


@pytest.mark.parametrize("length", ["ffffffff", "00100000", "ffffff7f"])
def test_a_length_outside_its_limits_is_malformed(length):
    data = bytes.fromhex("0b000000000000000c00000000000000e9030000" + length) + b"aeron:ipc"
    with pytest.raises(RemoteProtocolError, match="malformed AddPublication: channel"):
        commands.decode_command(1, data)


def test_an_unknown_command_type_is_named():
    with pytest.raises(RemoteProtocolError, match="0x13") as caught:
        commands.decode_command(0x13, bytes(16))
    assert caught.value.code == ErrorCode.UNKNOWN_COMMAND_TYPE_ID


def test_an_unknown_response_type_is_skipped():
    assert responses.decode_response(0x0FFF, b"") is None


@pytest.mark.parametrize(
    ("change", "word"),
    [({"key": bytes(113)}, "key of 113"), ({"label": "x" * 381}, "label of 381"), ({"type_id": 1 << 31}, "type_id")],
)
def test_encoding_refuses_values_that_do_not_fit(change, word):
    values = {"client_id": 1, "correlation_id": 2, "type_id": 1000, "key": b"", "label": ""}
    with pytest.raises(LocalProtocolError, match=word):
        commands.AddCounter(**(values | change)).encode()


def test_unknown_error_codes_read_as_unknown():
    assert responses.OnError(offending_correlation_id=1, error_code=9, message="").code is ErrorCode.UNKNOWN_HOST
    assert responses.OnError(offending_correlation_id=1, error_code=99, message="").code is ErrorCode.UNKNOWN


@pytest.mark.parametrize(
    ("address_type", "address", "text"),
    [
        (1, "7f000001" + "00" * 12, "127.0.0.1:40456"),
        (2, "00" * 15 + "01", "[::1]:40456"),
        (0, "00" * 16, ""),
    ],
)
def test_the_source_of_a_publication_error_reads_as_text(address_type, address, text):
    error = responses.OnPublicationError(
        registration_id=1,
        destination_registration_id=-1,
        session_id=1,
        stream_id=1,
        receiver_id=1,
        group_tag=-1,
        address_type=address_type,
        source_port=40456,
        source_address=bytes.fromhex(address),
        error_code=13,
        message="",
    )
    assert error.source == text
    assert error.code is ErrorCode.IMAGE_REJECTED


@pytest.mark.fuzz
@given(st.sampled_from(sorted(ALL)), st.binary(max_size=120))
def test_random_bytes_decode_or_are_malformed(type_id, data):
    try:
        message = ALL[type_id].decode(data)
    except RemoteProtocolError:
        return
    assert ALL[type_id].decode(message.encode()) == message


def test_a_file_name_that_is_not_utf8_survives():
    path = b"/dev/shm/\xff/1.logbuffer".decode("utf-8", "surrogateescape")
    ready = responses.OnPublicationReady(
        correlation_id=1,
        original_registration_id=1,
        session_id=1,
        stream_id=1,
        position_limit_id=1,
        channel_status_id=1,
        log_file=path,
    )
    assert responses.decode_response(ready.TYPE, ready.encode()) == ready
