"""Folds paths and connections together, because a streaming query supports only one fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem.analysis.folds.fold import RTT, Fold, Row, checkpointed
from mainstem.analysis.folds.multiplexed import MuxFold
from mainstem.analysis.folds.path import CHANNEL, PathFold
from mainstem.capture.schema import Column

if TYPE_CHECKING:
    from mainstem.analysis.folds.fold import Events

PATHS, CONNECTIONS = PathFold(), MuxFold()


@checkpointed("CombinedState")
@dataclass
class CombinedState:
    seen: int = 0
    is_path: bool = False
    inner: Any = None


class RoundTripFold(Fold):
    name = "every"
    keys = (
        (Column("session_id", "int", "aeron; else 0"), "coalesce(session_id, 0)"),
        (Column("stream_id", "int", "aeron; else 0"), "coalesce(stream_id, 0)"),
        (
            Column("channel", "string", "aeron: the endpoint that data goes to; else empty"),
            f"if(protocol = 'aeron', {CHANNEL}, '')",
        ),
        (Column("file", "string", "bymux, jmux: path of the capture; else empty"), "if(protocol = 'aeron', '', file)"),
        (
            Column("connection", "bigint", "bymux, jmux: number of the connection's first packet; else 0"),
            "coalesce(connection, 0L)",
        ),
    )
    inputs = MuxFold.inputs | PathFold.inputs | {"protocol": MuxFold.inputs["protocol"]}
    where = f"({PathFold.where}) or protocol in ('bymux', 'jmux')"
    kinds = (RTT,)
    state = CombinedState

    def feed(self, state: CombinedState, events: Events) -> list[Row]:
        if state.inner is None and len(events):
            state.is_path = not events["protocol"][0]
            state.inner = (PATHS if state.is_path else CONNECTIONS).fresh()
        rows = (PATHS if state.is_path else CONNECTIONS).feed(state.inner, events) if state.inner else []
        state.seen = state.inner.seen if state.inner else 0
        return [row for row in rows if row.kind == RTT.name]

    def pending_rows(self, state: CombinedState) -> list[Row]:  # noqa: ARG002 - a round trip is final when it is emitted
        return []
