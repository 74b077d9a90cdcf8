"""One bymux connection: its streams, their credit, its heartbeats."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mainstem.capture.schema import BYMUX_TYPES
from mainstem.spark.folds.fold import Kind, Row
from mainstem.spark.folds.mux import (
    GONE,
    GRANT_COLUMNS,
    GRANT_IDENTITY,
    MAX_PINGS,
    UNSIGNED,
)
from mainstem.spark.folds.mux_stream import Lane
from mainstem.spark.folds.round_trips import RTT
from mainstem.spark.folds.state import kept

CREDIT, WRITE, PING, PONG, CLOSE, STOP_READ = range(6)
assert tuple(BYMUX_TYPES.values()) == ("CREDIT", "WRITE", "PING", "PONG", "CLOSE", "STOP_READ")
GLOBAL = 0x10
# Streams of one connection that are followed at once; with more the oldest is given as it stands.
MAX_STREAMS = 4096

CREDITS = Kind("credits", GRANT_COLUMNS, "time_ns", GRANT_IDENTITY)


@kept
@dataclass
class BymuxState:
    """One connection."""

    seen: int = 0
    creation: Lane = field(default_factory=lambda: Lane(-1, 0))
    lanes: dict[str, Lane] = field(default_factory=dict)
    pings: dict[str, list[int]] = field(default_factory=dict)


def unsettled(state: BymuxState) -> list[Row]:
    """The streams that are open."""
    return [lane.row("bymux") for lane in state.lanes.values()]


def note(state: BymuxState, event: dict[str, Any], out: list[Row]) -> None:
    """Takes in one frame; adds rows that are settled to ``out``."""
    state.seen += 1
    kind, side, time_ns = event["type"], event["from_client"], event["time_ns"]
    if kind == GONE:
        for lane in state.lanes.values():
            lane.status, lane.ended_ns, lane.revision = "lost", time_ns, state.seen
            out.append(lane.row("bymux"))
        state.lanes.clear()
        return
    if kind in (PING, PONG):
        _note_heartbeat(state, event, out)
        return
    is_global = bool(event["flags"] & GLOBAL)
    if is_global and kind == CREDIT:
        # Zero is no grant at all here, and there is no infinity.
        out.append(_grant(state.creation, event, event["credit"] % UNSIGNED, None, state.seen))
    elif is_global and kind == WRITE:
        _lane(state, event["stream"], time_ns, out).opened_by = side
        state.creation.write(side, 1, time_ns)
    elif not is_global:
        lane = _lane(state, event["stream"], time_ns, out)
        lane.revision = state.seen
        if kind == CREDIT:
            amount = event["credit"] % UNSIGNED
            out.append(_grant(lane, event, amount or None, event["stream"], state.seen))
        elif kind == WRITE:
            lane.write(side, event["length"], time_ns)
        else:
            (lane.closed if kind == CLOSE else lane.stopped)[side] = True
            if all(lane.closed) and all(lane.stopped):
                lane.status, lane.ended_ns = "ended", time_ns
                out.append(state.lanes.pop(str(lane.stream)).row("bymux"))


def _lane(state: BymuxState, stream: int, time_ns: int, out: list[Row]) -> Lane:
    key = str(stream)
    if key not in state.lanes:
        if len(state.lanes) >= MAX_STREAMS:
            out.append(state.lanes.pop(next(iter(state.lanes))).row("bymux"))
        state.lanes[key] = Lane(stream, time_ns, revision=state.seen)
    return state.lanes[key]


def _grant(lane: Lane, event: dict[str, Any], amount: int | None, stream: int | None, revision: int) -> Row:
    values = {name: event[name] for name in ("time_ns", "packet", "frame_index")}
    values |= {"from_client": event["from_client"] == 1, "mux_stream_id": stream}
    values |= lane.grant(event["from_client"], amount, event["time_ns"])
    return Row(CREDITS.name, revision, {name: _signed(value) for name, value in values.items()})


def _signed(value: Any) -> Any:
    # Amounts have 64 bits without a sign; columns have a sign.
    return value - UNSIGNED if isinstance(value, int) and value >= 1 << 63 else value


def _note_heartbeat(state: BymuxState, event: dict[str, Any], out: list[Row]) -> None:
    asker = event["from_client"] if event["type"] == PING else 1 - event["from_client"]
    waiting = state.pings.setdefault(f"{event['stream']}/{asker}", [])
    if event["type"] == PING:
        waiting.append(event["time_ns"])
        del waiting[:-MAX_PINGS]
    elif waiting:
        values = {name: event[name] for name in ("time_ns", "packet", "frame_index")}
        out.append(
            Row(
                RTT.name,
                state.seen,
                values | {"protocol": "bymux", "method": "PING", "rtt_ns": event["time_ns"] - waiting.pop(0)},
            )
        )
    if not waiting:
        del state.pings[f"{event['stream']}/{asker}"]
