"""Messages as `mainstem sub` prints them and `mainstem pub` reads them."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from mainstem.aeron.tools.message_text import (
    MAX_MESSAGE,
    Message,
    Outgoing,
    as_json,
    formatter,
    read_json,
    read_lines,
    read_with_length,
    with_length,
)
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MESSAGE = Message(b"high water", 1_800_000_000_123_456_000, -5, 1001, 4096, 77)
BINARY = MESSAGE._replace(payload=b"\x00\xff")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%t %s %p %m", b"2027-01-15T08:00:00.123456Z -5 4096 high water\n"),
        ("%i/%r: %l bytes", b"1001/77: 10 bytes\n"),
        ("%x", b"6869676820776174657 2\n".replace(b" ", b"")),
        (r"100%%\t%m\0\\\q", b"100%\thigh water\0\\\\q\n"),
        ("ø%m", "øhigh water\n".encode()),
        ("", b"\n"),
    ],
)
def test_a_template_formats_a_message(text: str, line: bytes) -> None:
    assert formatter(text)(MESSAGE) == line


@pytest.mark.parametrize("text", ["%", "%z", "%m %", "%%%"])
def test_a_template_with_an_unknown_letter_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="choose one of %m"):
        formatter(text)


@pytest.mark.parametrize("message", [MESSAGE, BINARY, MESSAGE._replace(payload=b""), MESSAGE._replace(payload=b'"\n')])
def test_json_is_read_back(message: Message) -> None:
    line = as_json(message)
    assert line.count(b"\n") == 1
    assert list(read_json(io.BytesIO(line + b"\n" + line))) == 2 * [Outgoing(message.payload, 77)]
    document = json.loads(line)
    assert (document["session_id"], document["stream_id"], document["position"]) == (-5, 1001, 4096)
    assert document["time"] == "2027-01-15T08:00:00.123456Z"


@pytest.mark.parametrize("message", [MESSAGE, BINARY, MESSAGE._replace(payload=b"")])
def test_length_prefixed_messages_are_read_back(message: Message) -> None:
    data = with_length(message)
    assert list(read_with_length(io.BytesIO(data + data))) == 2 * [Outgoing(message.payload)]


def test_a_json_message_that_is_not_text_is_sent_as_json() -> None:
    assert list(read_json(io.BytesIO(b'{"message": {"level": [1, 2]}}'))) == [Outgoing(b'{"level": [1, 2]}')]


def test_lines_lose_their_line_feed_only() -> None:
    assert list(read_lines(io.BytesIO(b"a\r\n\n b"))) == [Outgoing(b"a\r"), Outgoing(b""), Outgoing(b" b")]


@pytest.mark.parametrize(
    ("read", "data", "message"),
    [
        (read_json, b'{"message": "a"}\nhigh', "line 2 is not JSON: "),
        (read_json, b"[]", "line 1: must be a JSON object"),
        (read_json, b"{}", "line 1: needs message or message_base64"),
        (read_json, b'{"message": "a", "message_base64": ""}', "both"),
        (read_json, b'{"message_base64": "?"}', "message_base64: "),
        (read_json, b'{"message_base64": 5}', "message_base64: "),
        (read_json, b'{"message_base64": "\xc3\xb8"}', "message_base64|ASCII"),
        (read_json, b'{"message": "a", "reserved_value": 1e3}', "is not a 64-bit integer"),
        (read_json, b'{"message": "a", "reserved_value": true}', "is not a 64-bit integer"),
        (read_json, b'{"message": "a", "reserved_value": 9223372036854775808}', "is not a 64-bit integer"),
        (read_json, b'{"message": "\\ud800"}', "line 1: "),
        (read_json, b"\xff", "line 1: "),
        (read_json, b"[" * 100_000, "line 1: "),
        (read_with_length, b"\0\0", "truncated inside a length, at byte 2"),
        (read_with_length, b"\0\0\0\x05tide", "truncated inside a message of 5 bytes, at byte 0"),
        (read_with_length, b"\xff\xff\xff\xff", "exceeds the limit of 16,777,216"),
        (read_lines, bytes(2 * MAX_MESSAGE), "line 1 is longer than"),
    ],
)
def test_malformed_input_is_refused_with_its_position(
    read: Callable[[Any], Iterator[Outgoing]], data: bytes, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        list(read(io.BytesIO(data)))
