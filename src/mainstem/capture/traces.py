"""Aqueduct's own trace (``mainstem.aqueduct.observe.FrameLog``) as rows; in any other capture its frames are encrypted.

Each line is a frame or a change of state, which is skipped, so a packet number is a line number. The peer's name replaces the
address; times are by the connection's clock.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from mainstem._core.capture import layout as layout
from mainstem.capture.chunks import CHUNK_BYTES, Chunk, Problem
from mainstem.capture.schema import arrow_schema
from mainstem.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    import pyarrow as pa

    from mainstem.aqueduct.frames import Frame
    from mainstem.aqueduct.limits import Limits
    from mainstem.capture.chunks import FrameIndex
    from mainstem.capture.planning import CapturePartition, FrameSelection

MAX_TIME_NS = (1 << 63) - 1  # the maximum value of the column

_WORD = re.compile(r"(?<=.)(?=[A-Z])")


def add_chunks(file: IO[bytes], index: FrameIndex, size: int) -> None:
    """Extend the index of a trace of ``size`` bytes to its last whole line."""
    while index.end < size:
        file.seek(index.end)
        data = file.read(min(CHUNK_BYTES, size - index.end))
        end = data.rfind(b"\n") + 1
        if end == 0:
            data += file.readline()
            end = len(data) if data.endswith(b"\n") else 0
        if end == 0:
            text = f"the trace ends within a line: {len(data)} bytes at {index.end}"
            index.tail = Problem(layout.PROBLEM_TRUNCATED_FILE, index.packets, index.end, text)
            return
        lines = data.count(b"\n", 0, end)
        index.chunks.append(Chunk(index.end, index.end + end, index.packets, lines, -1, -1, 0, 0, 0))
        index.end += end
        index.packets += lines


def read_trace(part: CapturePartition, selection: FrameSelection, file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part of a trace. A line that is not from a trace, or holds an invalid frame, is a problem."""
    import pyarrow as pa

    schema = arrow_schema(selection.names)
    rows: list[dict[str, Any]] = []
    number = 0
    for run in part.runs:
        file.seek(run.offset)
        number = number if run.section is None else run.packet
        at = run.offset
        while at < run.end and (line := file.readline()):
            at += len(line)
            number += 1
            if run.offset >= part.begin:
                rows += _rows_of_line(part.path, number, line)
            if len(rows) >= selection.rows:
                yield pa.RecordBatch.from_pylist(rows, schema)
                rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)


def _rows_of_line(path: str, number: int, line: bytes) -> Iterator[dict[str, Any]]:
    about: dict[str, Any] = {"file": path, "packet": number}
    try:
        entry = json.loads(line)
        if "subject" in entry:
            return
        time_ns = int(entry["t"])
        if not 0 <= time_ns <= MAX_TIME_NS:
            raise ValueError(f"{str(time_ns)[:40]} is not a time in ns")
        about |= {"time_ns": time_ns, "time": time_ns // 1000}
        inwards = "in" in entry
        data = bytes.fromhex(entry["in" if inwards else "out"])
        about |= {"src" if inwards else "dst": str(entry["peer"]), "transport": "quic", "datagram_length": len(data)}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        yield about | _problem("no line of a trace")
        return
    yield from _rows_of_frames(about, data)


def _rows_of_frames(about: dict[str, Any], data: bytes) -> Iterator[dict[str, Any]]:
    from mainstem.aqueduct.frames import Incomplete, decode_frame

    position, index = 0, 0
    while position < len(data):
        try:
            frame, after = decode_frame(data, position, len(data), _limits())
        except (Incomplete, RemoteProtocolError) as error:
            yield about | _problem(str(error) or "the frame is longer than the sent bytes") | {"frame_index": index}
            return
        yield about | _frame(frame) | {"frame_index": index, "frame_length": after - position}
        position, index = after, index + 1


def _problem(text: str) -> dict[str, Any]:
    return {"protocol": "problem", "frame_type": "MALFORMED_FRAME", "text": text}


@cache
def _frame_type(tag: int) -> str:
    from mainstem.aqueduct.frames import FRAME_TYPES

    return _WORD.sub("_", FRAME_TYPES[tag].name).upper()


def _frame(frame: Frame) -> dict[str, Any]:
    from mainstem.aqueduct import frames
    from mainstem.aqueduct.observe import describe_frame

    tag, value = frame
    row: dict[str, Any] = {
        "protocol": "aqueduct",
        "frame_type": _frame_type(tag),
        "type": tag,
        "text": describe_frame(frame),
        "length": 0,
        "channel_id": None,
    }
    if tag == frames.MESSAGE:
        channel_id, number, _, payload = value
        row |= {"channel_id": _signed(channel_id), "message_number": _signed(number)}
        row |= {"length": len(payload), "payload": payload}
    elif tag in (frames.CHANNEL_CONTROL, frames.CLOSED_CHANNEL_LOST):
        row["channel_id"] = _signed(value)
    elif tag in (frames.SENT_UNRELIABLE, frames.FINISH_SENDER):
        row["message_number"] = _signed(value)
    return row


def _signed(value: int) -> int:
    """Return an unsigned 64-bit number as Spark's bigint."""
    return value - (1 << 64) if value >= 1 << 63 else value


@cache
def _limits() -> Limits:
    """Return very high limits: a trace also records refused frames, so it is decoded without a connection's limits."""
    from mainstem.aqueduct.limits import DEFAULT_LIMITS

    return replace(DEFAULT_LIMITS, max_payload=1 << 30, max_attachments=1 << 20, max_header_bytes=1 << 30)
