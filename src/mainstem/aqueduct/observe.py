"""An Instrument that logs the frames and state changes of a connection, and functions that print frames as text."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING

from mainstem.aqueduct.frames import (
    ACK_NACK_UNRELIABLE,
    CHANNEL_CONTROL,
    CLOSED_CHANNEL_LOST,
    CONNECTION_CONTROL,
    FRAME_TYPES,
    MESSAGE,
    RANGE_FRAMES,
    VERSION_TAG,
    Frame,
    Incomplete,
    decode_frame,
    describe,
)
from mainstem.errors import ConfigurationError, RemoteProtocolError
from mainstem.instruments import NullInstrument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOWN_PAYLOAD = 32
"""Number of payload bytes to print."""


class FrameLog(NullInstrument):
    """An Instrument that writes every frame and state change of a connection to a file, one JSON object per line.

    `mainstem aqueduct dump` reads the file. The file contains payloads, so use it only for development.
    """

    def __init__(self, path: str | Path) -> None:
        self._file: IO[str] = open(path, "a")  # noqa: SIM115 - closed by `close`

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None:
        self._write({"t": now_ns, "in": frame.hex(), "peer": source})

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None:
        self._write({"t": now_ns, "out": frame.hex(), "peer": destination})

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None:
        self._write({"t": now_ns, "subject": subject, "old": old, "new": new})

    def _write(self, entry: dict[str, object]) -> None:
        self._file.write(json.dumps(entry) + "\n")

    def close(self) -> None:
        self._file.close()


def describe_frame(frame: Frame) -> str:
    tag, value = frame
    if tag == MESSAGE:
        channel_id, number, attachments, payload = value
        attached = f" attaching {', '.join(map(describe, attachments))}" if attachments else ""
        more = "…" if len(payload) > SHOWN_PAYLOAD else ""
        return (
            f"Message {number} on {describe(channel_id)}{attached}: {len(payload)} B {payload[:SHOWN_PAYLOAD]!r}{more}"
        )
    if tag in (CHANNEL_CONTROL, CLOSED_CHANNEL_LOST):
        text = f"of {describe(value)}"
    elif tag in RANGE_FRAMES:
        signs = ("+", "-" if tag == ACK_NACK_UNRELIABLE else "…")
        text = " ".join(f"{signs[index % 2]}{count}" for index, count in enumerate(value))
    elif tag == CONNECTION_CONTROL:
        text = " ".join(f"{key}={item!r}" for key, item in value)
    else:
        text = value.decode("ascii", "replace") if tag == VERSION_TAG else str(value)
    return f"{FRAME_TYPES[tag].name} {text}".rstrip()


def dump_frames(data: bytes) -> Iterator[str]:
    """Yield the frames of one stream or datagram as lines. If decoding stops early, the last line says where and why."""
    position, end = 0, len(data)
    while position < end:
        try:
            frame, after = decode_frame(data, position, end)
        except Incomplete as incomplete:
            yield f"{position:8}  … {end - position} bytes of a frame that is at least {incomplete.needed} bytes longer"
            return
        except RemoteProtocolError as error:
            yield f"{position:8}  ! {error} ({error.rule})"
            return
        yield f"{position:8}  {describe_frame(frame)}"
        position = after


def dump_log(lines: Iterator[str]) -> Iterator[str]:
    """Yield the content of a `FrameLog` file as lines. Raises ConfigurationError if a line is not in its format."""
    first: int | None = None
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            first = entry["t"] if first is None else first
            when = f"{(entry['t'] - first) / 1e6:12.3f} ms"
            if "subject" in entry:
                yield f"{when}    {entry['subject']}: {entry['old']} → {entry['new']}"
                continue
            arrow, data = ("<", entry["in"]) if "in" in entry else (">", entry["out"])
            frames = list(dump_frames(bytes.fromhex(data)))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigurationError(f"line {number} is not one of a FrameLog: {line[:60]!r}") from None
        for text in frames:
            yield f"{when}  {arrow} {text.split(maxsplit=1)[1]}"
