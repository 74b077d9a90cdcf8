"""What the folds of both multiplexed protocols share: inputs, columns, and the state of one stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mainstem.analysis.folds.fold import TIME_INPUTS, Kind, Row, checkpointed
from mainstem.capture.schema import Column

KEYS = (
    (Column("file", "string", "path of the capture"), "file"),
    (Column("connection", "bigint", "number of the first packet of the TCP connection"), "connection"),
)
# If the capture lacks the TCP handshake, the side whose address sorts first counts as the client.
FROM_CLIENT = "coalesce(from_client, concat(src, ':', src_port) < concat(dst, ':', dst_port))"
# A pseudo frame type for the end of the connection. No protocol uses this number.
GONE = 1000
INPUTS = TIME_INPUTS | {
    "protocol": "case protocol when 'bymux' then 1 when 'jmux' then 2 else 0 end",
    "type": f"if(protocol = 'tcp', {GONE}, type)",
    "flags": "cast(coalesce(flags, 0) as int)",
    "from_client": f"cast({FROM_CLIENT} as int)",
    "stream": "coalesce(mux_stream_id, -1)",
    "credit": "coalesce(credit, 0)",
    "length": "coalesce(length, 0)",
    "cookie": "coalesce(cookie, -1)",
}
# Pings of one connection that may wait for a pong at once.
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


# -- one multiplexed stream --------------------------------------------------------------------------------------------


@checkpointed("MuxStream")
@dataclass
class MuxStream:
    """One stream. Lists hold a value for the server (0) and the client (1). ``left`` is None if there is no limit."""

    stream_id: int
    opened_ns: int
    opened_by: int = -1
    left: list[int | None] = field(default_factory=lambda: [0, 0])
    is_known: bool = True
    bytes: list[int] = field(default_factory=lambda: [0, 0])
    writes: list[int] = field(default_factory=lambda: [0, 0])
    empty_since: list[int] = field(default_factory=lambda: [0, 0])
    empty_ns: list[int] = field(default_factory=lambda: [0, 0])
    closed: list[bool] = field(default_factory=lambda: [False, False])
    stopped: list[bool] = field(default_factory=lambda: [False, False])
    grants: int = 0
    ended_ns: int = 0
    status: str = "open"
    revision: int = 0

    def write(self, side: int, length: int, time_ns: int) -> None:
        """Count a write by ``side``."""
        if not length:
            return
        self.bytes[side] += length
        self.writes[side] += 1
        left = self.left[side]
        if left is not None:
            self.left[side] = left - length
            if left > 0 >= left - length:
                self.empty_since[side] = time_ns

    def grant(self, side: int, amount: int | None, time_ns: int) -> dict[str, Any]:
        """Let the other side write ``amount`` more bytes (None for no limit), and return the columns of the grant."""
        writer, before = 1 - side, self.left[1 - side]
        after = None if amount is None or before is None else before + amount
        exhausted = None
        if self.empty_since[writer] and before is not None and before <= 0:
            exhausted = time_ns - self.empty_since[writer]
            if after is None or after > 0:
                self.empty_ns[writer] += exhausted
                self.empty_since[writer] = 0
        self.left[writer] = after
        self.grants += 1
        known = self.is_known
        return {
            "amount": amount,
            "available_before": before if known else None,
            "available_after": after if known else None,
            "exhausted_ns": exhausted if known else None,
        }

    def row(self, protocol: str) -> Row:
        values = {
            "protocol": protocol,
            "mux_stream_id": self.stream_id,
            "opened_ns": self.opened_ns,
            "opened_by_client": None if self.opened_by < 0 else self.opened_by == 1,
            "ended_ns": self.ended_ns or None,
            "status": self.status,
            "bytes_from_client": self.bytes[1],
            "bytes_from_server": self.bytes[0],
            "writes_from_client": self.writes[1],
            "writes_from_server": self.writes[0],
            "grants": self.grants,
            "client_exhausted_ns": self.empty_ns[1],
            "server_exhausted_ns": self.empty_ns[0],
        }
        return Row(MUX_STREAMS.name, self.revision, values)
