"""``problems``: one row for each fault of a capture, a connection or a recording, and each error that a peer told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.capture.schema import Column
from mainstem.spark.tables.table import TIME, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PROBLEMS = Table(
    "problems",
    "one row for each fault of a capture, a connection or a recording, and each error that a peer told",
    (
        TIME,
        Column("time_ns", "bigint", "the same in nanoseconds; null where a fault belongs to no packet"),
        Column("file", "string", "path of the capture"),
        Column("packet", "bigint", "number of the packet in its file"),
        Column("kind", "string", "what it is: a kind of problem, GAP or RESET of TCP, ERR of Aeron, ERROR of Jmux"),
        Column("source", "string", "who sent it: address:port"),
        Column("target", "string", "to whom"),
        Column("session_id", "int", "aeron"),
        Column("stream_id", "int", "aeron"),
        Column("code", "int", "aeron: the error's code"),
        Column("recording_id", "bigint", "of a recording"),
        Column("position", "bigint", "of a recording: where the fault is"),
        Column("text", "string", "what was said"),
    ),
    ("file", "packet", "kind", "time_ns", "recording_id", "position"),
)


_OF_A_CAPTURE = (
    "protocol = 'problem' or (protocol = 'tcp' and frame_type in ('GAP', 'RESET')) or frame_type in ('ERR', 'ERROR')"
)


def problems(rows: DataFrame) -> DataFrame:
    """What is wrong with what ``mainstem.capture`` read, or ``mainstem.recording`` with the option ``rows=problems``."""
    if "recording_id" in rows.columns:
        given = {"kind": "kind", "recording_id": "recording_id", "position": "position", "text": "text"}
    else:
        rows = rows.where(_OF_A_CAPTURE)
        given = {name: name for name in ("time", "time_ns", "file", "packet", "session_id", "stream_id", "text")}
        given |= {"kind": "frame_type", "code": "error_code"}
        given |= {"source": "concat(src, ':', src_port)", "target": "concat(dst, ':', dst_port)"}
    return rows.selectExpr(*(f"{given.get(c.name, f'cast(null as {c.type})')} as {c.name}" for c in PROBLEMS.columns))
