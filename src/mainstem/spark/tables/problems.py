"""``problems``: one row for each fault of a capture, each fault of a TCP connection, and each error that a peer told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.capture.schema import Column
from mainstem.spark.tables.table import TIME, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PROBLEMS = Table(
    "problems",
    "one row for each fault of a capture or a connection, and each error that a peer told",
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
        Column("text", "string", "what was said"),
    ),
    ("file", "packet", "kind", "time_ns"),
)


def problems(capture: DataFrame) -> DataFrame:
    """What is wrong with what ``mainstem.capture`` read."""
    return capture.where(
        "protocol = 'problem' or (protocol = 'tcp' and frame_type in ('GAP', 'RESET')) or frame_type in ('ERR', 'ERROR')"
    ).selectExpr(
        "time", "time_ns", "file", "packet", "frame_type as kind", "concat(src, ':', src_port) as source",
        "concat(dst, ':', dst_port) as target", "session_id", "stream_id", "error_code as code", "text",
    )  # fmt: skip
