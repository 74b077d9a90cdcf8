"""Finds periods in which a publisher sent nothing new, and their causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.analysis.folds.fold import Kind, Row
from mainstem.analysis.folds.path_state import NS_PER_MS
from mainstem.capture.schema import Column

if TYPE_CHECKING:
    from mainstem.analysis.folds.path_state import PathState

# A shorter stall hardly matters to a publisher.
HELD_NS = NS_PER_MS
# The heartbeat interval. A publisher that is silent for this long has nothing to send.
IDLE_NS = 100 * NS_PER_MS

PUBLISHER, RECEIVER, NETWORK, UNKNOWN = "publisher", "receiver", "network", "unknown"

STALLS = Kind(
    "flow_control",
    (
        Column("start_ns", "bigint", "when the last new data passed"),
        Column("end_ns", "bigint", "when the next new data passed, or the stream ended; null while it lasts"),
        Column("duration_ns", "bigint", "how long; of one that lasts, up to the last frame seen"),
        Column("position", "bigint", "where the publisher stood"),
        Column("window_left", "bigint", "bytes it might still send, at the end or while held back; null without SM"),
        Column("held_ns", "bigint", "how long the receivers' window held it back"),
        Column(
            "cause", "string",
            "'publisher' (had nothing to send), 'receiver' (window full), 'network' (window full over a loss), 'unknown'",
        ),
    ),
    "start_ns",
    ("start_ns",),
)  # fmt: skip


def room(state: PathState) -> int:
    """Return the window that the publisher needs to send its next frame: the size of the largest frame so far."""
    return max(state.largest, 32)


def left(state: PathState) -> int | None:
    """Return the remaining window. A publisher that waits for all of its receivers stops at their lowest limit."""
    if state.limit is None:
        return None
    least = state.least_limit
    if least is not None and 0 <= least - state.stood < room(state):
        return least - state.stood
    return state.limit - state.stood


def _is_held(state: PathState, window: int | None) -> bool:
    return window is not None and window < room(state)


def note_window(state: PathState, before: int | None, time_ns: int) -> None:
    """Process a status message: record whether it unblocked a publisher whose window was ``before``."""
    if state.unblocked_at != state.stood and _is_held(state, before) and not _is_held(state, left(state)):
        state.unblocked_at, state.unblocked_ns, state.unblocked_left = state.stood, time_ns, before or 0


def stall(state: PathState, until_ns: int, revision: int, *, ended: bool) -> Row | None:
    """Return a row for the silence since the last new data, or None if it is too short."""
    start_ns = state.last_advance_ns
    duration = until_ns - start_ns
    if start_ns == 0 or duration < HELD_NS:
        return None
    window = left(state)
    if state.unblocked_at == state.stood:
        held, window = max(state.unblocked_ns - start_ns, 0), state.unblocked_left
    else:
        held = duration if _is_held(state, window) else 0
    if held < HELD_NS and duration < IDLE_NS:
        return None
    if held >= HELD_NS:
        cause = NETWORK if state.gaps or state.last_nak_ns >= start_ns else RECEIVER
    else:
        cause = UNKNOWN if window is None else PUBLISHER
    values = {
        "start_ns": start_ns,
        "end_ns": until_ns if ended else None,
        "duration_ns": duration,
        "position": state.stood,
        "window_left": window,
        "held_ns": held,
        "cause": cause,
    }
    return Row(STALLS.name, revision, values)


def note_end(state: PathState, until_ns: int, revision: int, out: list[Row]) -> None:
    """End a silence, because of new data or the end of the stream."""
    row = stall(state, until_ns, revision, ended=True)
    if row is None:
        return
    totals, values = state.totals, row.values
    if values["cause"] == NETWORK:
        totals.network_stall_ns += values["held_ns"]
    elif values["cause"] == RECEIVER:
        totals.receiver_stall_ns += values["held_ns"]
    else:
        totals.publisher_idle_ns += values["duration_ns"]
    out.append(row)
