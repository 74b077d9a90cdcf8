"""The fold for one bymux or Jmux connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.analysis.folds import bymux, jmux
from mainstem.analysis.folds.fold import RTT, Fold, Row, checkpointed
from mainstem.analysis.folds.mux import INPUTS, KEYS, MUX_STREAMS

if TYPE_CHECKING:
    from mainstem.analysis.folds.fold import Events

BYMUX = 1


@checkpointed("MuxState")
@dataclass
class MuxState:
    seen: int = 0
    inner: bymux.BymuxState | jmux.JmuxState | None = None


class MuxFold(Fold):
    """The credits, rations, requests, streams and round trips of multiplexed connections."""

    name = "mux"
    keys = KEYS
    inputs = INPUTS
    where = (
        "connection is not null and (protocol in ('bymux', 'jmux')"
        " or (protocol = 'tcp' and frame_type in ('CLOSE', 'RESET')))"
    )
    kinds = (bymux.CREDITS, jmux.RATIONS, jmux.REQUESTS, MUX_STREAMS, RTT)
    state = MuxState

    def feed(self, state: MuxState, events: Events) -> list[Row]:
        out: list[Row] = []
        for values in events.rows(INPUTS, slice(None)):
            event = dict(zip(INPUTS, values, strict=True))
            if state.inner is None and event["protocol"]:
                state.inner = bymux.BymuxState() if event["protocol"] == BYMUX else jmux.JmuxState()
            if isinstance(state.inner, bymux.BymuxState):
                bymux.note(state.inner, event, out)
            elif state.inner is not None:
                jmux.note(state.inner, event, out)
        state.seen = state.inner.seen if state.inner else 0
        return out

    def pending_rows(self, state: MuxState) -> list[Row]:
        if isinstance(state.inner, bymux.BymuxState):
            return bymux.pending_rows(state.inner)
        return jmux.pending_rows(state.inner) if state.inner else []
