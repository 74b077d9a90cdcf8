"""How the frames of one TCP connection reach the folds of the multiplexed protocols."""

from __future__ import annotations

from mainstem.analysis.folds.fold import Kind
from mainstem.capture.schema import Column

KEYS = (
    (Column("file", "string", "path of the capture"), "file"),
    (Column("connection", "bigint", "number of the first packet of the TCP connection"), "connection"),
)
# Without a handshake in the capture, the side whose address sorts first counts as the client.
FROM_CLIENT = "coalesce(from_client, concat(src, ':', src_port) < concat(dst, ':', dst_port))"
# The end of the connection, among the frames: no protocol has such a type.
GONE = 1000
INPUTS = {
    "time_ns": "time_ns",
    "packet": "packet",
    "frame_index": "frame_index",
    "protocol": "case protocol when 'bymux' then 1 when 'jmux' then 2 else 0 end",
    "type": f"if(protocol = 'tcp', {GONE}, type)",
    "flags": "cast(coalesce(flags, 0) as int)",
    "from_client": f"cast({FROM_CLIENT} as int)",
    "stream": "coalesce(mux_stream_id, -1)",
    "credit": "coalesce(credit, 0)",
    "length": "coalesce(length, 0)",
    "cookie": "coalesce(cookie, -1)",
}
# Pings of one connection whose pong is awaited.
MAX_PINGS = 64
UNSIGNED = 1 << 64


GRANT_COLUMNS = (
    Column("time_ns", "bigint", "when it passed"),
    Column("packet", "bigint", "number of its packet in its file"),
    Column("frame_index", "int", "which frame of that packet"),
    Column("from_client", "boolean", "who granted; the other side may write"),
    Column("mux_stream_id", "bigint", "the stream or session; null for the whole connection"),
    Column("amount", "bigint", "bytes (of the whole connection: streams) granted; null without limit"),
    Column("available_before", "bigint", "what remained of earlier grants; null if unlimited or unknown"),
    Column("available_after", "bigint", "the same with this one"),
    Column("exhausted_ns", "bigint", "how long nothing had remained; null if something did"),
)
GRANT_IDENTITY = ("time_ns", "packet", "frame_index")

MUX_STREAMS = Kind(
    "mux_streams",
    (
        Column("protocol", "string", "bymux or jmux"),
        Column("mux_stream_id", "bigint", "the stream or session; ids are used again"),
        Column("opened_ns", "bigint", "when it was created, or first seen"),
        Column("opened_by_client", "boolean", "who created it; null if unknown"),
        Column("ended_ns", "bigint", "when the last of its ends was closed; null while it is open"),
        Column("status", "string", "'open', 'ended', 'aborted', 'lost' (the connection ended under it)"),
        Column("bytes_from_client", "bigint", "payload"),
        Column("bytes_from_server", "bigint", "payload"),
        Column("writes_from_client", "bigint", "frames with payload"),
        Column("writes_from_server", "bigint", "frames with payload"),
        Column("grants", "bigint", "credit or ration that either side gave, frames"),
        Column(
            "client_exhausted_ns",
            "bigint",
            "how long the client had nothing left that it might write, up to each grant",
        ),
        Column("server_exhausted_ns", "bigint", "the same for the server"),
    ),
    "opened_ns",
    ("protocol", "mux_stream_id", "opened_ns"),
)
