"""Detects gaps in the captured data and ranges that receivers NAKed, and tracks how each was resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.analysis.folds.fold import TIMES, Kind, Row, round_trip
from mainstem.analysis.folds.path_state import NS_PER_MS, UNSEEN, Gap
from mainstem.capture.schema import Column

if TYPE_CHECKING:
    from mainstem.analysis.folds.path_state import PathState

# A sender does not resend the same range again within this time. NAKs that were in flight still arrive; they are for the same loss.
LATE_NAK_NS = 20 * NS_PER_MS
# The upper limit of that time, for distant receivers. A longer delay is not a round trip: an earlier NAK was itself lost.
LATEST_NAK_NS = 1000 * NS_PER_MS
# Gaps of one path that are tracked at once. Beyond this limit, the fold emits the oldest one in its current form.
MAX_GAPS = 1024

GAPS = Kind(
    "gaps",
    (
        Column("position", "bigint", "position at which the lost range starts"),
        Column("end_position", "bigint", "where it ends"),
        Column("length", "bigint", "bytes, headers included"),
        Column("term_id", "int", "the term in which it starts"),
        Column("term_offset", "int", "and where in it"),
        Column("noticed_ns", "bigint", "when later data showed the gap, or the first NAK asked"),
        Column("place", "string", "where it was lost: 'before the capture', 'after the capture', or 'in the capture' only"),
        Column("naks", "int", "NAKs that asked for some of it"),
        Column("first_nak_ns", "bigint", "when the first of them passed; null without"),
        Column("repaired_ns", "bigint", "when the last of it was seen (again); null if never"),
        Column("repair_ns", "bigint", "from noticed to repaired"),
        Column(
            "status", "string",
            "'repaired', 'reordered' (late, no receiver sent a NAK), 'passed' (receivers continued without it), 'open'",
        ),
    ),
    "noticed_ns",
    ("position", "noticed_ns"),
)  # fmt: skip

RETRANSMITS = Kind(
    "retransmits",
    (
        Column("time_ns", "bigint", "when it passed"),
        Column("packet", "bigint", "number of the packet in its file"),
        Column("frame_index", "int", "which frame of that packet"),
        Column("position", "bigint", "position at which the frame starts"),
        Column("term_id", "int", "its term"),
        Column("term_offset", "int", "where in its term"),
        Column("length", "int", "bytes, header included"),
        Column("reason", "string", "'lost before' the capture, 'lost after' it, 'reordered', or 'duplicate'"),
        Column("since_nak_ns", "bigint", "from the first NAK for it to now; null without"),
    ),
    "time_ns",
    TIMES,
)


def _status(gap: Gap) -> str:
    if gap.passed:
        return "passed"
    if gap.ended_ns == 0:
        return "open"
    return "reordered" if gap.naks == 0 else "repaired"


def _place(gap: Gap) -> str:
    if gap.by_nak:
        return "after the capture"
    return "in the capture" if gap.passed and gap.naks == 0 else "before the capture"


def row_of(state: PathState, gap: Gap) -> Row:
    term_id, term_offset = state.place(gap.start)
    repaired = gap.ended_ns if gap.ended_ns and not gap.passed else None
    return Row(
        GAPS.name,
        gap.revision,
        {
            "position": gap.start,
            "end_position": gap.end,
            "length": gap.end - gap.start,
            "term_id": term_id,
            "term_offset": term_offset,
            "noticed_ns": gap.noticed_ns,
            "place": _place(gap),
            "naks": gap.naks,
            "first_nak_ns": gap.first_nak_ns or None,
            "repaired_ns": repaired,
            "repair_ns": None if repaired is None else repaired - gap.noticed_ns,
            "status": _status(gap),
        },
    )


def _add(state: PathState, gap: Gap, out: list[Row]) -> None:
    state.gaps.append(gap)
    state.totals.gaps += 1
    state.totals.lost_bytes += gap.end - gap.start
    if len(state.gaps) > MAX_GAPS:
        out.append(row_of(state, state.gaps.pop(0)))


def ahead(state: PathState) -> int:
    """Return the end of the highest open gap. Data below it may fill a gap even if the capture has not seen the data before."""
    return max((gap.end for gap in state.gaps), default=UNSEEN)


def note_gap(state: PathState, start: int, end: int, time_ns: int, revision: int, out: list[Row]) -> None:
    """Record a gap: the publisher is at ``end``, but nothing after ``start`` was seen. Skips ranges that are already open."""
    pieces = [[start, end]]
    for gap in state.gaps:
        pieces = _without(pieces, gap.start, gap.end)
    for low, high in pieces:
        _add(state, Gap(low, high, time_ns, False, [[low, high]], revision), out)


def _without(pieces: list[list[int]], start: int, end: int) -> list[list[int]]:
    parts = [part for low, high in pieces for part in ([low, min(high, start)], [max(low, end), high])]
    return [part for part in parts if part[0] < part[1]]


def note_nak(state: PathState, start: int, end: int, hwm: int, time_ns: int, revision: int, out: list[Row]) -> None:
    """Process a NAK. The part of its range beyond ``hwm`` was lost before the capture, because the capture never saw it."""
    state.last_nak_ns = time_ns
    finalize_rows(state, time_ns, out)
    # Part of the range may already be in a known gap. The rest was either seen here and lost later, or lies beyond ``hwm``.
    pieces = [[start, end]] if start < end else []
    for gap in state.gaps + state.closed:
        if gap.start < end and start < gap.end:
            gap.naks += 1
            gap.first_nak_ns = gap.first_nak_ns or time_ns
            gap.revision = revision
            pieces = _without(pieces, gap.start, gap.end)
    for first, last in pieces:
        border = last if hwm == UNSEEN else min(max(hwm, first), last)
        for low, high, by_nak in ((first, border, True), (border, last, False)):
            if low < high:
                _add(state, Gap(low, high, time_ns, by_nak, [[low, high]], revision, 1, time_ns), out)


def note_filling(
    state: PathState, start: int, end: int, hwm: int, event: dict[str, Any], revision: int, out: list[Row]
) -> None:
    """Process new data that may fill ranges beyond ``hwm`` that receivers NAKed."""
    new = max(start, hwm)
    if any(low < end and new < high for gap in state.gaps for low, high in gap.missing):
        note_again(state, start, end, event, revision, out)


def note_again(state: PathState, start: int, end: int, event: dict[str, Any], revision: int, out: list[Row]) -> None:
    """Process data at or below the highest position, which is either a repair or an unneeded copy."""
    time_ns = event["time_ns"]
    finalize_rows(state, time_ns, out)
    hit: Gap | None = None
    for gap in [gap for gap in state.gaps if gap.start < end and start < gap.end]:
        missing = _without(gap.missing, start, end)
        if missing == gap.missing:
            continue
        gap.missing, gap.revision, hit = missing, revision, gap
        if gap.naks and not gap.answered_ns:
            gap.answered_ns = time_ns
            out.append(round_trip("aeron", "NAK", event, gap.first_nak_ns, revision))
        if not missing:
            gap.ended_ns = time_ns
            state.gaps.remove(gap)
            state.closed.append(gap)
    if hit is None:
        hit = next((g for g in state.closed if g.naks and g.start < end and start < g.end), None)
        reason = "lost after" if hit else "duplicate"
    elif hit.by_nak:
        reason = "lost after"
    else:
        reason = "lost before" if hit.naks else "reordered"
    if reason in ("duplicate", "reordered"):
        state.totals.duplicates += reason == "duplicate"
    else:
        state.totals.retransmits += 1
        state.totals.retransmitted_bytes += end - start
    term_id, term_offset = state.place(start)
    since = time_ns - hit.first_nak_ns if hit is not None and hit.first_nak_ns else None
    values = {"position": start, "term_id": term_id, "term_offset": term_offset, "length": end - start,
              "reason": reason, "since_nak_ns": since}  # fmt: skip
    out.append(Row(RETRANSMITS.name, revision, event | values))


def note_consumed(state: PathState, time_ns: int, revision: int) -> None:
    """Close the gaps that every receiver has moved past."""
    consumed = state.least_position
    for gap in [gap for gap in state.gaps if gap.end <= consumed]:
        gap.ended_ns, gap.passed, gap.revision = time_ns, True, revision
        state.gaps.remove(gap)
        state.closed.append(gap)


def _late_ns(gap: Gap) -> int:
    """Return how long after a gap's repair NAKs for it may still arrive: as long as the first NAK took."""
    reaction_ns = gap.first_nak_ns - gap.noticed_ns if gap.naks else 0
    return min(max(LATE_NAK_NS, reaction_ns), LATEST_NAK_NS)


def finalize_rows(state: PathState, now_ns: int, out: list[Row]) -> None:
    """Emit the gaps that a NAK still in flight can no longer refer to."""
    old = [gap for gap in state.closed if now_ns - gap.ended_ns > _late_ns(gap)]
    for gap in old:
        state.closed.remove(gap)
        out.append(row_of(state, gap))


def settle_all(state: PathState, out: list[Row]) -> None:
    """Emit every gap in its current form, because the stream starts over."""
    out.extend(row_of(state, gap) for gap in state.closed + state.gaps)
    state.closed.clear()
    state.gaps.clear()


def pending_rows(state: PathState) -> list[Row]:
    return [row_of(state, gap) for gap in state.closed + state.gaps]
