"""Messages as text and back: the output of `mainstem sub` and the input of `mainstem pub`."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from mainstem._internal.error_texts import json_problem
from mainstem._internal.printable import printable_json
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LENGTH = struct.Struct(">I")  # in front of each message if messages are length-prefixed
MAX_MESSAGE = 16 << 20  # the longest message that any term length allows
INT64 = range(-(1 << 63), 1 << 63)
ESCAPES = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}


class Message(NamedTuple):
    """A message and where it comes from. ``time_ns`` is the wall-clock time at which this process read it."""

    payload: bytes
    time_ns: int
    session_id: int
    stream_id: int
    position: int
    reserved_value: int


FIELDS: dict[str, Callable[[Message], bytes]] = {
    "m": lambda message: message.payload,
    "x": lambda message: message.payload.hex().encode(),
    "l": lambda message: b"%d" % len(message.payload),
    "t": lambda message: time_text(message.time_ns).encode(),
    "s": lambda message: b"%d" % message.session_id,
    "i": lambda message: b"%d" % message.stream_id,
    "p": lambda message: b"%d" % message.position,
    "r": lambda message: b"%d" % message.reserved_value,
}
TEMPLATE_HELP = (
    "Print each message by this template: %m the message, %x in hexadecimal, %l its length, %t time, %s session, %i stream, "
    "%p position after it, %r reserved value, %% a percent sign; \\n, \\t, \\0. A line feed follows."
)


def time_text(time_ns: int) -> str:
    """Return a time in UTC, such as 2026-01-31T12:00:00.000000Z."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def formatter(text: str) -> Callable[[Message], bytes]:
    """Return a function that formats messages. Raises ConfigurationError for an unknown letter."""
    parts: list[bytes | Callable[[Message], bytes]] = []
    letters = iter(text)
    for letter in letters:
        if letter == "%":
            name = next(letters, "")
            if name != "%" and name not in FIELDS:
                known = ", ".join(f"%{each}" for each in (*FIELDS, "%"))
                raise ConfigurationError(f"`template`: unknown %{name}; choose one of {known}")
            parts.append(FIELDS.get(name, b"%"))
        elif letter == "\\":
            name = next(letters, "\\")
            parts.append(ESCAPES.get(name, f"\\{name}").encode("utf-8", "surrogateescape"))
        else:
            parts.append(letter.encode("utf-8", "surrogateescape"))

    def lay_out(message: Message) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(message) for part in parts) + b"\n"

    return lay_out


def as_json(message: Message) -> bytes:
    """Return a line of JSON: the message as text, or as base64 if it isn't UTF-8, and where it comes from."""
    document: dict[str, Any] = {
        "time": time_text(message.time_ns),
        "session_id": message.session_id,
        "stream_id": message.stream_id,
        "position": message.position,
        "reserved_value": message.reserved_value,
    }
    try:
        document["message"] = message.payload.decode()
    except UnicodeDecodeError:
        document["message_base64"] = base64.b64encode(message.payload).decode()
    return printable_json(document).encode() + b"\n"


def with_length(message: Message) -> bytes:
    """Return the message, preceded by its length in four big-endian bytes."""
    return LENGTH.pack(len(message.payload)) + message.payload


class Outgoing(NamedTuple):
    """A message to publish. If ``reserved_value`` is None, the publication's own value is used."""

    payload: bytes
    reserved_value: int | None = None


def read_lines(file: IO[bytes]) -> Iterator[Outgoing]:
    """Yield lines without their line feed. Raises ConfigurationError for a line of 32 MiB or more."""
    for _number, line in _lines(file):
        yield Outgoing(line)


def read_json(file: IO[bytes]) -> Iterator[Outgoing]:
    """Yield the messages in the lines of `mainstem sub --output json`. Errors are ConfigurationErrors with the line number."""
    for number, line in _lines(file):
        if line.strip():
            try:
                yield _of_json(json.loads(line))
            except json.JSONDecodeError as error:
                raise ConfigurationError(f"line {number} is not JSON: {json_problem(error)}") from None
            except (ValueError, RecursionError) as error:
                raise ConfigurationError(f"line {number}: {error or 'nested too deeply'}") from None


def read_with_length(file: IO[bytes]) -> Iterator[Outgoing]:
    """Yield length-prefixed messages. Raises ConfigurationError for a truncated or oversized message."""
    at = 0
    while head := file.read(LENGTH.size):
        if len(head) < LENGTH.size:
            raise ConfigurationError(f"the input is truncated inside a length, at byte {at + len(head)}")
        (length,) = LENGTH.unpack(head)
        if length > MAX_MESSAGE:
            raise ConfigurationError(
                f"at byte {at}: a message of {length:,} bytes exceeds the limit of {MAX_MESSAGE:,}"
            )
        payload = file.read(length)
        if len(payload) < length:
            raise ConfigurationError(f"the input is truncated inside a message of {length:,} bytes, at byte {at}")
        at += LENGTH.size + length
        yield Outgoing(payload)


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    limit = 2 * MAX_MESSAGE  # base64 and escapes are longer than the text they encode
    while line := file.readline(limit):
        number += 1
        if len(line) == limit:
            raise ConfigurationError(f"line {number} is longer than {limit:,} bytes")
        yield number, line.removesuffix(b"\n")


def _of_json(document: Any) -> Outgoing:
    if not isinstance(document, dict):
        raise ValueError("must be a JSON object with a message")
    text, encoded, reserved = (document.get(key) for key in ("message", "message_base64", "reserved_value"))
    if (text is None) == (encoded is None):
        raise ValueError("needs message or message_base64" if text is None else "has both message and message_base64")
    if reserved is not None and (type(reserved) is not int or reserved not in INT64):
        raise ValueError(f"reserved_value {reserved!r} is not a 64-bit integer")
    if text is not None:
        # Anything but a string is sent as JSON.
        payload = text.encode("utf-8") if isinstance(text, str) else json.dumps(text, ensure_ascii=False).encode()
    else:
        try:
            payload = base64.b64decode(encoded or "", validate=True)
        except (binascii.Error, TypeError) as error:
            raise ValueError(f"message_base64: {error}") from None
    return Outgoing(payload, reserved)
