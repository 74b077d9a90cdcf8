"""The fold state of one bymux connection: its streams, their credit, and its heartbeats."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mainstem.analysis.folds.fold import TIMES, Kind, Row, checkpointed, moment, round_trip
from mainstem.analysis.folds.mux import GONE, GRANT_COLUMNS, MAX_PINGS, UNSIGNED, MuxStream
from mainstem.capture.schema import BYMUX_TYPES

CREDIT, WRITE, PING, PONG, CLOSE, STOP_READ = range(6)
assert tuple(BYMUX_TYPES.values()) == ("CREDIT", "WRITE", "PING", "PONG", "CLOSE", "STOP_READ")
GLOBAL = 0x10
# Streams of one connection that are tracked at once. Beyond this limit, the fold emits the oldest one in its current form.
MAX_STREAMS = 4096

CREDITS = Kind("credits", GRANT_COLUMNS, "time_ns", TIMES)


@checkpointed("BymuxState")
@dataclass
class BymuxState:
    seen: int = 0
    creation: MuxStream = field(default_factory=lambda: MuxStream(-1, 0))
    streams: dict[str, MuxStream] = field(default_factory=dict)
    pings: dict[str, list[int]] = field(default_factory=dict)


def pending_rows(state: BymuxState) -> list[Row]:
    return [stream.row("bymux") for stream in state.streams.values()]


def note(state: BymuxState, event: dict[str, Any], out: list[Row]) -> None:
    """Process one frame, and add final rows to ``out``."""
    state.seen += 1
    kind, side, time_ns = event["type"], event["from_client"], event["time_ns"]
    if kind == GONE:
        for stream in state.streams.values():
            stream.status, stream.ended_ns, stream.revision = "lost", time_ns, state.seen
            out.append(stream.row("bymux"))
        state.streams.clear()
        return
    if kind in (PING, PONG):
        _note_heartbeat(state, event, out)
        return
    is_global = bool(event["flags"] & GLOBAL)
    if is_global and kind == CREDIT:
        # In a global CREDIT, zero grants nothing. It does not mean "no limit", as it does for a stream.
        out.append(_grant(state.creation, event, event["credit"] % UNSIGNED, None, state.seen))
    elif is_global and kind == WRITE:
        _stream(state, event["stream"], time_ns, out).opened_by = side
        state.creation.write(side, 1, time_ns)
    elif not is_global:
        stream = _stream(state, event["stream"], time_ns, out)
        stream.revision = state.seen
        if kind == CREDIT:
            amount = event["credit"] % UNSIGNED
            out.append(_grant(stream, event, amount or None, event["stream"], state.seen))
        elif kind == WRITE:
            stream.write(side, event["length"], time_ns)
        else:
            (stream.closed if kind == CLOSE else stream.stopped)[side] = True
            if all(stream.closed) and all(stream.stopped):
                stream.status, stream.ended_ns = "ended", time_ns
                out.append(state.streams.pop(str(stream.stream_id)).row("bymux"))


def _stream(state: BymuxState, stream_id: int, time_ns: int, out: list[Row]) -> MuxStream:
    key = str(stream_id)
    if key not in state.streams:
        if len(state.streams) >= MAX_STREAMS:
            out.append(state.streams.pop(next(iter(state.streams))).row("bymux"))
        state.streams[key] = MuxStream(stream_id, time_ns, revision=state.seen)
    return state.streams[key]


def _grant(stream: MuxStream, event: dict[str, Any], amount: int | None, stream_id: int | None, revision: int) -> Row:
    values = moment(event) | {"from_client": event["from_client"] == 1, "mux_stream_id": stream_id}
    values |= stream.grant(event["from_client"], amount, event["time_ns"])
    return Row(CREDITS.name, revision, {name: _signed(value) for name, value in values.items()})


def _signed(value: Any) -> Any:
    # Amounts are unsigned 64-bit integers, but columns are signed.
    return value - UNSIGNED if isinstance(value, int) and value >= 1 << 63 else value


def _note_heartbeat(state: BymuxState, event: dict[str, Any], out: list[Row]) -> None:
    asker = event["from_client"] if event["type"] == PING else 1 - event["from_client"]
    waiting = state.pings.setdefault(f"{event['stream']}/{asker}", [])
    if event["type"] == PING:
        waiting.append(event["time_ns"])
        del waiting[:-MAX_PINGS]
    elif waiting:
        out.append(round_trip("bymux", "PING", event, waiting.pop(0), state.seen))
    if not waiting:
        del state.pings[f"{event['stream']}/{asker}"]
