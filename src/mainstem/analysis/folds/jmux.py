"""The fold state of one Jmux connection: its requests, their rations, and its pings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mainstem.analysis.folds.fold import TIMES, Kind, Row, checkpointed, moment, round_trip
from mainstem.analysis.folds.mux import GONE, GRANT_COLUMNS, MAX_PINGS, MuxStream
from mainstem.capture.schema import JMUX_TYPES, Column

KINDS = {name: value for value, name in JMUX_TYPES.items()}
HEADER, DATA, PING, PING_ACK = (KINDS[name] for name in ("HEADER", "DATA", "PING", "PING_ACK"))
INCREMENT, ABORT, CLOSE, ACK = (KINDS[name] for name in ("INCREMENT_RATION", "ABORT", "CLOSE", "ACKNOWLEDGMENT"))
SHUTDOWN, ERROR = KINDS["SHUTDOWN"], KINDS["ERROR"]
OPEN_FLAG, CLOSE_FLAG, EOF_FLAG, ACK_FLAG, PARTIAL_FLAG = 0x10, 0x08, 0x04, 0x02, 0x02
SERVER, CLIENT = 0, 1

RATIONS = Kind("rations", GRANT_COLUMNS, "time_ns", TIMES)

REQUESTS = Kind(
    "requests",
    (
        Column("mux_stream_id", "bigint", "the session; ids are used again"),
        Column("opened_ns", "bigint", "when the request began"),
        Column("in_flight", "int", "requests that were under way then, this one included"),
        Column("request_bytes", "bigint", "data from the client"),
        Column("request_end_ns", "bigint", "when the last of it passed; null before"),
        Column("first_response_ns", "bigint", "when the first data of the response passed; null before"),
        Column("response_bytes", "bigint", "data from the server"),
        Column("response_end_ns", "bigint", "when the last of it passed; null before"),
        Column("latency_ns", "bigint", "from the beginning of the request to the end of the response"),
        Column("wait_ns", "bigint", "from the end of the request (its beginning, if the response was early) to the first response"),
        Column("acknowledged_ns", "bigint", "when the client acknowledged the response, if requested"),
        Column(
            "outcome", "string",
            "`answered`, `aborted by client`, `aborted by server`, `shutdown`, `error`, `lost` (the connection ended), `open`",
        ),
        Column("may_have_run", "boolean", "whether a failed request may have been processed; null if it did not fail"),
    ),
    "opened_ns",
    ("mux_stream_id", "opened_ns"),
)  # fmt: skip


@checkpointed("Request")
@dataclass
class Request:
    in_flight: int
    request_end_ns: int = 0
    first_response_ns: int = 0
    response_end_ns: int = 0
    acknowledged_ns: int = 0
    outcome: str = "open"
    may_have_run: bool | None = None


@checkpointed("JmuxState")
@dataclass
class JmuxState:
    seen: int = 0
    initial: list[int] = field(default_factory=lambda: [-1, -1])
    streams: dict[str, MuxStream] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    pings: dict[str, int] = field(default_factory=dict)


def _rows(state: JmuxState, key: str) -> list[Row]:
    stream, request = state.streams[key], state.requests[key]
    last = request.request_end_ns
    wait_from = last if last and last <= request.first_response_ns else stream.opened_ns
    values = {
        "mux_stream_id": stream.stream_id,
        "opened_ns": stream.opened_ns,
        "in_flight": request.in_flight,
        "request_bytes": stream.bytes[CLIENT],
        "request_end_ns": last or None,
        "first_response_ns": request.first_response_ns or None,
        "response_bytes": stream.bytes[SERVER],
        "response_end_ns": request.response_end_ns or None,
        "latency_ns": request.response_end_ns - stream.opened_ns if request.response_end_ns else None,
        "wait_ns": request.first_response_ns - wait_from if request.first_response_ns else None,
        "acknowledged_ns": request.acknowledged_ns or None,
        "outcome": request.outcome,
        "may_have_run": request.may_have_run,
    }
    return [stream.row("jmux"), Row(REQUESTS.name, stream.revision, values)]


def pending_rows(state: JmuxState) -> list[Row]:
    """Return the sessions whose ids have not been reused, at most 128."""
    return [row for key in state.streams for row in _rows(state, key)]


def note(state: JmuxState, event: dict[str, Any], out: list[Row]) -> None:
    """Process one frame, and add final rows to ``out``."""
    state.seen += 1
    kind, side = event["type"], event["from_client"]
    if kind == HEADER:
        state.initial[side] = event["credit"]
        values = moment(event) | {"from_client": side == CLIENT, "mux_stream_id": None}
        amount = event["credit"] or None
        values |= {"amount": amount, "available_before": None, "available_after": amount, "exhausted_ns": None}
        out.append(Row(RATIONS.name, state.seen, values))
    elif kind in (PING, PING_ACK):
        _note_ping(state, event, out)
    elif kind in (SHUTDOWN, ERROR, GONE):
        _note_end(state, event)
    elif event["stream"] >= 0:
        _note_session(state, event, out)


def _note_session(state: JmuxState, event: dict[str, Any], out: list[Row]) -> None:
    kind, side, time_ns = event["type"], event["from_client"], event["time_ns"]
    key = str(event["stream"])
    opens = kind == DATA and side == CLIENT and event["flags"] & OPEN_FLAG
    if opens and key in state.streams:
        out.extend(_rows(state, key))
    if opens or key not in state.streams:
        _open(state, key, event, side if opens else -1)
    stream, request = state.streams[key], state.requests[key]
    stream.revision = state.seen
    if kind == DATA:
        stream.write(side, event["length"], time_ns)
        _note_data(stream, request, event)
    elif kind == INCREMENT:
        values = moment(event) | {"from_client": side == CLIENT, "mux_stream_id": stream.stream_id}
        out.append(Row(RATIONS.name, state.seen, values | stream.grant(side, event["credit"], time_ns)))
    elif kind == ABORT and request.outcome == "open":
        request.outcome = "aborted by client" if side == CLIENT else "aborted by server"
        request.may_have_run = side == CLIENT or bool(event["flags"] & PARTIAL_FLAG)
        stream.status, stream.ended_ns = "aborted", time_ns
    elif kind == CLOSE and side == SERVER:
        _end(stream, time_ns)
    elif kind == ACK:
        request.acknowledged_ns = time_ns


def _open(state: JmuxState, key: str, event: dict[str, Any], opened_by: int) -> None:
    left = [None if state.initial[1 - side] == 0 else max(state.initial[1 - side], 0) for side in (SERVER, CLIENT)]
    stream = MuxStream(event["stream"], event["time_ns"], opened_by, left=left)
    stream.is_known = opened_by >= 0 and min(state.initial) >= 0
    state.streams.pop(key, None)
    state.streams[key], state.requests[key] = stream, Request(0)
    state.requests[key].in_flight = sum(request.outcome == "open" for request in state.requests.values())


def _note_data(stream: MuxStream, request: Request, event: dict[str, Any]) -> None:
    side, time_ns, flags = event["from_client"], event["time_ns"], event["flags"]
    if side == SERVER and event["length"] and not request.first_response_ns:
        request.first_response_ns = time_ns
    if flags & EOF_FLAG:
        stream.closed[side] = True
        if side == CLIENT:
            request.request_end_ns = time_ns
        else:
            request.response_end_ns = time_ns
            request.first_response_ns = request.first_response_ns or time_ns
            request.outcome = "answered"
    if side == SERVER and flags & CLOSE_FLAG:
        _end(stream, time_ns)


def _end(stream: MuxStream, time_ns: int) -> None:
    if stream.status == "open":
        stream.status, stream.ended_ns = "ended", time_ns


def _note_end(state: JmuxState, event: dict[str, Any]) -> None:
    outcome = {SHUTDOWN: "shutdown", ERROR: "error"}.get(event["type"], "lost")
    for key, stream in state.streams.items():
        request = state.requests[key]
        if request.outcome == "open":
            request.outcome, request.may_have_run, stream.revision = outcome, outcome != "shutdown", state.seen
        if stream.status == "open":
            stream.status, stream.ended_ns, stream.revision = "lost", event["time_ns"], state.seen


def _note_ping(state: JmuxState, event: dict[str, Any], out: list[Row]) -> None:
    asker = event["from_client"] if event["type"] == PING else 1 - event["from_client"]
    key = f"{asker}/{event['cookie']}"
    if event["type"] == PING:
        state.pings[key] = event["time_ns"]
        if len(state.pings) > MAX_PINGS:
            state.pings.pop(next(iter(state.pings)))
    elif key in state.pings:
        out.append(round_trip("jmux", "PING", event, state.pings.pop(key), state.seen))
