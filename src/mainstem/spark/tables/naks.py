"""``naks``: one row for each NAK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.capture.schema import Column
from mainstem.spark.folds.channel_of import CHANNEL
from mainstem.spark.tables.table import TIME, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAKS = Table(
    "naks",
    "one row for each NAK",
    (
        Column("session_id", "int", "the publisher's session"),
        Column("stream_id", "int", "the stream"),
        Column("channel", "string", "the endpoint that data goes to: address:port"),
        TIME,
        Column("time_ns", "bigint", "when it passed"),
        Column("file", "string", "path of the capture"),
        Column("packet", "bigint", "number of the packet in its file"),
        Column("receiver", "string", "who asked: address:port"),
        Column("term_id", "int", "the term of the missing range"),
        Column("term_offset", "int", "where in it the range starts"),
        Column("length", "int", "bytes missing"),
    ),
    ("file", "packet", "channel"),
)


def naks(frames: DataFrame) -> DataFrame:
    """The NAKs among frames of captures."""
    return frames.where("protocol = 'aeron' and type = 2").selectExpr(
        "session_id", "stream_id", f"{CHANNEL} as channel", "time", "time_ns", "file", "packet",
        "concat(src, ':', src_port) as receiver", "term_id", "term_offset", "nak_length as length",
    )  # fmt: skip
