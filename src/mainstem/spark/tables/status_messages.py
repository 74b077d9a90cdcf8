"""``status_messages``: one row for each status message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.capture.schema import Column
from mainstem.spark.folds.channel_of import CHANNEL
from mainstem.spark.tables.table import TIME, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATUS_MESSAGES = Table(
    "status_messages",
    "one row for each status message",
    (
        Column("session_id", "int", "the publisher's session; 0 where a receiver only makes itself known"),
        Column("stream_id", "int", "the stream; 0 likewise"),
        Column("channel", "string", "the endpoint that data goes to: address:port"),
        TIME,
        Column("time_ns", "bigint", "when it passed"),
        Column("file", "string", "path of the capture"),
        Column("packet", "bigint", "number of the packet in its file"),
        Column("receiver", "string", "who sent it: address:port"),
        Column("receiver_id", "bigint", "the receiver's id"),
        Column("group_tag", "bigint", "its group; null without"),
        Column("term_id", "int", "up to where it consumed: the term"),
        Column("term_offset", "int", "and where in it"),
        Column("receiver_window", "int", "bytes that may be sent beyond"),
        Column("asks_for_setup", "boolean", "whether it only asks for a SETUP; term and window are 0 then"),
        Column("is_end_of_stream", "boolean", "whether the receiver leaves"),
    ),
    ("file", "packet", "channel"),
)


def status_messages(frames: DataFrame) -> DataFrame:
    """The status messages among frames of captures."""
    return frames.where("protocol = 'aeron' and type = 3").selectExpr(
        "session_id", "stream_id", f"{CHANNEL} as channel", "time", "time_ns", "file", "packet",
        "concat(src, ':', src_port) as receiver", "receiver_id", "group_tag", "term_id", "term_offset", "receiver_window",
        "flags & 128 != 0 as asks_for_setup", "flags & 64 != 0 as is_end_of_stream",
    )  # fmt: skip
