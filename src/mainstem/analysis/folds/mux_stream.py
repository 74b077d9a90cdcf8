"""One multiplexed stream: what either side wrote and may still write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mainstem.analysis.folds.fold import Row
from mainstem.analysis.folds.mux import MUX_STREAMS
from mainstem.analysis.folds.state import WRITTEN_AS, checkpointed


@checkpointed("Lane")
@dataclass
class MuxStream:
    """A stream. Lists hold a value for the server (0) and the client (1); ``left`` is None without a limit."""

    stream_id: int = field(metadata={WRITTEN_AS: "stream"})
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
        """Count what ``side`` wrote."""
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
        """Let the other side write ``amount`` more (None: no limit); return the columns of the grant."""
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
