from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from mainstem.cli.pub import LineEncoder
from mainstem.cli.sub import decoded_lines
from mainstem.codecs import find_codec
from mainstem.codecs.lookup import CodecChoice
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.codecs import Codec

SCHEMA = {"type": "record", "name": "T", "fields": [
    {"name": "id", "type": "long"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "fee", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "default": "\u0001"},
    {"name": "raw", "type": "bytes", "default": ""}, {"name": "m", "type": {"type": "map", "values": "int"}, "default": {}},
]}  # fmt: skip


@pytest.fixture
def codec(tmp_path: Path) -> Codec:
    (tmp_path / "t.avsc").write_text(json.dumps(SCHEMA))
    chosen = CodecChoice(codec="avro", codec_options={"schema": str(tmp_path / "t.avsc")}).chosen_codec()
    assert chosen is not None
    return chosen


def test_json_lines_are_encoded_and_messages_decoded_to_lines(codec: Codec) -> None:
    line = b'{"id": 5, "at": "2026-01-31T12:00:00Z", "fee": "1.25", "raw": "x", "m": {"a": 1}}\n'
    message = LineEncoder(codec).encode(line)
    assert codec.decode(message) == [
        {"id": 5, "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "fee": Decimal("1.25"), "raw": b"x", "m": {"a": 1}}
    ]
    assert json.loads(decoded_lines(codec, message)) == {
        "id": 5, "at": "2026-01-31T12:00:00+00:00", "fee": "1.25", "raw": "eA==", "m": {"a": 1},
    }  # fmt: skip
    assert json.loads(decoded_lines(codec, b"\x01")) == {
        "problem": "the message is cut off, or of another schema", "payload": "AQ==",
    }  # fmt: skip
    two = decoded_lines(find_codec("json"), b'{"a": 1}\n{"a": 2}')
    assert two == b'{"a": 1}\n{"a": 2}\n'


def test_a_missing_field_gets_its_default(codec: Codec) -> None:
    message = LineEncoder(codec).encode(b'{"id": 5, "at": "2026-01-31T12:00:00Z"}')
    (row,) = codec.decode(message)
    assert (row["fee"], row["raw"], row["m"]) == (Decimal("0.01"), b"", {})


def test_a_format_without_types_keeps_the_types_of_json() -> None:
    assert find_codec("msgpack").decode(LineEncoder(find_codec("msgpack")).encode(b'{"a": [1, "x"]}')) == [
        {"a": [1, "x"]}
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "line 2: "), (b"[1]", "line 2: a line must be a JSON object"), (b'{"id": "x"}', "line 2: id: "),
        (b'{"id": 1, "other": 2}', "line 2: the schema has no field for"), (b'{"id": 1}', "line 2: .*at"),
        (b'{"id": 1, "at": "soon"}', "line 2: at: "),
    ],
)  # fmt: skip
def test_an_invalid_line_is_reported_by_its_number(codec: Codec, line: bytes, reason: str) -> None:
    encoder = LineEncoder(codec)
    encoder.encode(b'{"id": 1, "at": "2026-01-31T12:00:00Z"}')
    with pytest.raises(ConfigurationError, match=reason):
        encoder.encode(line)


def test_options_without_a_codec_are_refused() -> None:
    assert CodecChoice().chosen_codec() is None
    with pytest.raises(ConfigurationError, match="`codec_options` needs `codec`"):
        CodecChoice(codec_options={"a": "b"}).chosen_codec()


def test_a_number_that_would_be_rounded_is_not_published() -> None:
    for name in ("json", "msgpack"):
        for text in (b"0.12345678901234567890", b"1e400", b"9007199254740993.0"):
            with pytest.raises(ConfigurationError, match=r"line 1: .* has more digits"):
                LineEncoder(find_codec(name)).encode(b'{"v": %s}' % text)


@pytest.mark.parametrize(
    ("name", "message"),
    [("msgpack", b"\x81\xa1v\xc7\x01\x05x"), ("json", b'{"v": "\\ud800"}'), ("json", b'{"\\ud800": {}, "\\ud800": 1}')],
)
def test_an_undecodable_message_is_printed_as_a_problem(name: str, message: bytes) -> None:
    line = json.loads(decoded_lines(find_codec(name), message))
    assert b64decode(line["payload"]) == message
