"""The fold for one path of an Aeron stream: everything between a publisher and one endpoint, in both directions.

A path is identified by a session, a stream and the endpoint that data goes to. It has DATA, PAD, SETUP and RTTM replies from the
publisher, and NAK, SM, ERR and RTTM requests from receivers (``docs/protocols/aeron.md``).

Theory of operation. A capture has tens of millions of frames, and nearly all are data that continues where the last frame ended.
Python can afford a few array operations for those, and function calls only for the rest. So frames arrive as columns
(``Events``), and ``feed`` works in three steps:

1. ``_next_change`` finds, in the columns, the next frame that changes how positions are computed: the first frame with a term
   id, a SETUP with other parameters, or data beyond the assumed term length. ``_change`` applies it. Between two changes,
   ``position = (term_id - base_term) * term_length + term_offset`` holds for every frame. If a publisher restarts with the same
   parameters, its positions go back. ``_another_life`` detects that in the columns of step 2, and ``_begin_again`` discards the
   earlier positions.
2. ``_advance`` processes the columns of the frames between two changes. Running maxima give, for each frame, the highest
   position (``before``) and the time of the last new data before it. From these it computes masks: ``gap`` (starts above the
   highest position), ``again`` (ends at or below it), ``fills`` (new data in a range that a receiver NAKed), ``pause`` (1 ms or
   more since the last new data), ``ends`` (end of stream).
3. Only frames in one of the masks, and every NAK, SM and RTTM, are *notable*. ``_note`` processes them one at a time, in order,
   each with the derived values at its time. The modules ``gaps``, ``stalls`` and ``sessions`` contain the details.

State. ``PathState`` holds everything that later frames are compared with. It is bounded (``MAX_GAPS``, ``MAX_RECEIVERS``,
``MAX_QUESTIONS``) and stored as JSON in checkpoints. Only this module and its three companions write it. During ``_note``, the
fields that the columns carry (``last_advance_ns``, ``largest``, ``stood``) have their values at that frame, because gaps and
stalls read them. Afterward ``_advance`` sets them to their values at the end of the batch.

Invariants:

- The rows do not depend on how the frames are batched. Tests split them at every frame.
- ``hwm`` never decreases between two restarts, and ``start <= hwm`` once data was seen.
- A gap is in ``gaps`` while part of it is missing, then in ``closed`` until no NAK in flight can still name it
  (``LATE_NAK_NS``). Its row is emitted when it leaves ``closed``. Ranges in ``missing`` are disjoint and in order.
- The ``revision`` of a row is the number of frames of this path up to the row's last change, so a later version has a higher one.
- The caller sorts frames by time, and frames with equal times by packet and frame index.

Without a SETUP, the term length is unknown. Terms then count as 2^40 bytes, which keeps their positions apart, until a second
term appears. Its distance from the first gives a power of two. A frame beyond that length disproves the guess, and positions
restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mainstem.aeron.logbuffer import align_frame
from mainstem.analysis.folds import gaps, sessions, stalls
from mainstem.analysis.folds.fold import RTT, TIME_INPUTS, Fold, Row, moment, round_trip
from mainstem.analysis.folds.path_state import (
    LEAST_TERM_LENGTH,
    MAX_RECEIVERS,
    NS_PER_MS,
    UNSEEN,
    PathState,
    Receiver,
)
from mainstem.capture.schema import AERON_TYPES, Column

if TYPE_CHECKING:
    from mainstem.analysis.folds.fold import Events

_TYPES = {name: code for code, name in AERON_TYPES.items()}
PAD, DATA, NAK, SM, ERR, SETUP, RTTM = (_TYPES[name] for name in ("PAD", "DATA", "NAK", "SM", "ERR", "SETUP", "RTTM"))
SEND_SETUP, SM_EOS, EOS, END, REPLY = 0x80, 0x40, 0x20, 0x40, 0x80
# The channel of a frame is the endpoint that data goes to. Frames from receivers come from that endpoint, or go to the control
# address of a multicast group, which is one above the data address (its last byte wraps). The receiver sends NAK, SM, ERR,
# RSP_SETUP and RTTM requests to the publisher.
_TO_PUBLISHER = "(type in (2, 3, 4, 11) or (type = 6 and flags & 128 != 0))"
_MULTICAST_4 = "regexp_like(dst, '^(22[4-9]|23[0-9])[.]')"
_MULTICAST_6 = "lower(dst) like 'ff%:%'"
_GROUP_4 = "concat(regexp_extract(dst, '^(.*[.])', 1), pmod(cast(regexp_extract(dst, '([0-9]+)$', 1) as int) - 1, 256))"
_GROUP_6 = (
    "concat(regexp_extract(dst, '^(.*:)', 1), "
    "lower(conv(cast(conv(regexp_extract(dst, '([^:]*)$', 1), 16, 10) as bigint) - 1, 10, 16)))"
)
CHANNEL = (
    f"case when {_TO_PUBLISHER} and {_MULTICAST_4} then concat({_GROUP_4}, ':', dst_port)"
    f" when {_TO_PUBLISHER} and {_MULTICAST_6} then concat({_GROUP_6}, ':', dst_port)"
    f" when {_TO_PUBLISHER} then concat(src, ':', src_port)"
    " else concat(dst, ':', dst_port) end"
)
# RTT requests that wait for a reply. A request is dropped if it has no reply after this many later ones.
MAX_QUESTIONS = 64
# Data overtakes a SETUP or a heartbeat by less than this time. A restarting publisher is silent for longer; heartbeats are sent
# every 100 ms anyway.
OVERTAKEN_SETUP_NS = 20 * NS_PER_MS
OVERTAKEN_HEARTBEAT_NS = 200 * NS_PER_MS
# After this time without a frame, a receiver closes its image. If the publisher had ended, it is gone after the shorter time.
SILENT_NS = 10_000 * NS_PER_MS
SILENT_END_NS = 1_000 * NS_PER_MS


class PathFold(Fold):
    """Sessions, gaps, retransmits, round trips and stalls of every path."""

    name = "path"
    keys = (
        (Column("session_id", "int", "the publisher's session"), "session_id"),
        (Column("stream_id", "int", "the stream"), "stream_id"),
        (Column("channel", "string", "the endpoint that data goes to: address:port"), CHANNEL),
    )
    inputs = TIME_INPUTS | {
        "type": "type",
        "flags": "cast(flags as int)",
        "frame_length": "frame_length",
        "length": "coalesce(length, 0)",
        "wire_length": "wire_length",
        "term_id": "coalesce(term_id, 0)",
        "term_offset": "coalesce(term_offset, 0)",
        "initial_term_id": "coalesce(initial_term_id, 0)",
        "term_length": "coalesce(term_length, 0)",
        "mtu": "coalesce(mtu, 0)",
        "nak_length": "coalesce(nak_length, 0)",
        "receiver_window": "coalesce(receiver_window, 0)",
        "receiver_id": "coalesce(receiver_id, 0)",
        "echo_timestamp": "coalesce(echo_timestamp, 0)",
        "sender": "if(type in (0, 1, 5), concat(src, ':', src_port), '')",
    }
    # Exclude the status messages with which receivers announce themselves to a multi-destination-cast. They belong to no session.
    where = (
        "protocol = 'aeron' and session_id is not null and type in (0, 1, 2, 3, 4, 5, 6, 11)"
        " and not (type = 3 and session_id = 0 and stream_id = 0 and flags & 128 != 0)"
    )
    kinds = (sessions.SESSIONS, gaps.GAPS, gaps.RETRANSMITS, RTT, stalls.STALLS)
    state = PathState

    def feed(self, state: PathState, events: Events) -> list[Row]:
        out: list[Row] = []
        at, count = 0, len(events)
        while at < count:
            change = _next_change(state, events, at)
            if change > at:
                reached = at + _advance(state, events.part(at, change), out)
                if reached < change:
                    _begin_again(state, out)
                    at = reached
                    continue
            if change < count:
                _change(state, events, change, out)
            at = change
        if count:
            assert state.hwm == UNSEEN or state.start <= state.hwm, "the highest position is before the start"
            gaps.finalize_rows(state, state.last_ns, out)
        return out

    def pending_rows(self, state: PathState) -> list[Row]:
        if not state.seen:
            return []
        out = [sessions.row_of(state), *gaps.pending_rows(state)]
        if not state.is_ended:
            lasting = stalls.stall(state, state.last_ns, state.seen, ended=False)
            out += [lasting] if lasting else []
        return out


def _next_change(state: PathState, events: Events, at: int) -> int:
    """Return the index of the next frame that changes how positions are computed, or the number of frames."""
    kind = events["type"][at:]
    setup, data = kind == SETUP, kind <= DATA
    if state.base_term is None:
        # Any frame with a term id will do. A status message that only requests a SETUP has none.
        news = setup | data | (kind == NAK) | ((kind == SM) & (events["flags"][at:] & SEND_SETUP == 0))
    else:
        news = setup & (
            (
                events["initial_term_id"][at:]
                != (state.initial_term_id if state.initial_term_id is not None else 1 << 40)
            )
            | (events["term_length"][at:] != (state.term_length if state.is_length_known else -1))
            | (events["mtu"][at:] != state.mtu)
        )
        if not state.term_length:
            terms = (events["term_id"][at:] - state.base_term + (1 << 31)) & 0xFFFFFFFF
            news |= data & (terms > 1 << 31)
        elif not state.is_length_known:
            news |= data & (events["term_offset"][at:] + events["frame_length"][at:] > state.term_length)
    changes = np.flatnonzero(news)
    return at + int(changes[0]) if len(changes) else len(events)


def _change(state: PathState, events: Events, at: int, out: list[Row]) -> None:
    """Apply the term ids and lengths of the frame at ``at``."""
    fields = {name: int(events[name][at]) for name in ("type", "term_id", "initial_term_id", "term_length", "mtu")}
    if fields["type"] == SETUP:
        known = state.initial_term_id
        is_new = state.base_term is None or (known is not None and known != fields["initial_term_id"])
        if known is not None and (is_new or (state.is_length_known and state.term_length != fields["term_length"])):
            state.totals.lives += 1
        if is_new or state.term_length not in (0, fields["term_length"]):
            _restart(state, fields["initial_term_id"], out)
        state.initial_term_id, state.mtu = fields["initial_term_id"], fields["mtu"]
        state.term_length, state.is_length_known = fields["term_length"], True
    elif state.base_term is None:
        _restart(state, fields["term_id"], out)
    else:
        needed = max(state.base_end, 1)
        if state.term_length:
            # The derived term length is too short, so the positions computed with it are invalid.
            needed = int(events["term_offset"][at] + events["frame_length"][at])
            _restart(state, fields["term_id"], out)
        state.term_length = max(LEAST_TERM_LENGTH, 1 << (needed - 1).bit_length())


def _restart(state: PathState, base_term: int, out: list[Row]) -> None:
    """Restart positions, after a first frame, changed parameters, or a wrong guess of the term length."""
    if state.base_term is not None:
        _end_positions(state, out)
    state.base_term, state.base_end, state.term_length = base_term, 0, 0
    state.is_length_known = False


def _begin_again(state: PathState, out: list[Row]) -> None:
    """Begin a new life of a publisher that restarted with the same parameters."""
    _end_positions(state, out)
    state.totals.lives += 1


def _end_positions(state: PathState, out: list[Row]) -> None:
    """Discard these positions, so that no later frame is compared with them."""
    gaps.settle_all(state, out)
    if not state.is_ended:
        stalls.note_end(state, state.last_ns, state.seen, out)
    state.start = state.hwm = state.stood = state.unblocked_at = UNSEEN
    state.last_advance_ns, state.limit, state.is_ended = 0, None, False
    state.receivers.clear()


def _advance(state: PathState, events: Events, out: list[Row]) -> int:
    """Process the frames between two changes: all by columns, then the notable ones singly. Returns how many are of this life."""
    kind, time_ns, flags = events["type"], events["time_ns"], events["flags"]
    is_data, is_sender = kind <= DATA, (kind <= DATA) | (kind == SETUP)
    sizes = np.where(is_data, (events["frame_length"] + 31) & ~31, 0)
    start = _positions(state, events)
    end = np.where(is_sender, start + sizes, UNSEEN)
    unseen = 0
    if state.hwm == UNSEEN:
        unseen = int(np.argmax(is_sender)) if is_sender.any() else len(events)
        if unseen < len(events):
            state.start = state.hwm = int(start[unseen])
    before = np.maximum.accumulate(np.concatenate(([state.hwm], end)))
    after, before = before[1:], before[:-1].copy()
    before[:unseen] = UNSEEN
    grows = is_data & (sizes > 0) & (end > before)
    last = np.maximum.accumulate(np.concatenate(([state.last_advance_ns], np.where(grows, time_ns, 0))))
    last_before = last[:-1]
    stood = np.maximum.accumulate(np.concatenate(([state.stood], np.where(grows, end, UNSEEN))))
    ends = is_data & (flags & EOS != 0)
    ended = _ended_before(state, ends, grows)
    spoke = np.maximum.accumulate(np.concatenate(([state.last_sender_ns], np.where(is_sender, time_ns, 0))))
    silence = np.where(spoke[:-1] > 0, time_ns - spoke[:-1], 0)
    reached = _another_life(kind, sizes, is_sender & (start < before), time_ns - last_before, silence, ended)
    if reached < len(events):
        # No frame before ``reached`` begins another life.
        return _advance(state, events.part(0, reached), out) if reached else 0
    pause = grows & (last_before > 0) & (time_ns - last_before >= stalls.HELD_NS)
    gap = is_sender & (start > before)
    again = is_data & (sizes > 0) & (end <= before)
    room = np.maximum.accumulate(np.concatenate(([state.largest], np.where(is_data & (kind == DATA), sizes, 0))))[:-1]
    # Data that is new to the capture can fill a range that a receiver NAKed before the capture saw it.
    nak_end = np.where(kind == NAK, start + ((np.maximum(events["nak_length"], 0) + 31) & ~31), UNSEEN)
    ahead = np.maximum.accumulate(np.concatenate(([gaps.ahead(state)], nak_end)))[:-1]
    fills = grows & (before < ahead)
    notable = np.flatnonzero(pause | gap | again | fills | ends | (kind == NAK) | (kind == SM) | (kind == RTTM))
    columns = {
        "start": start, "end": end, "before": before, "last_before": last_before, "stood": stood[:-1], "pause": pause,
        "gap": gap, "again": again, "fills": fills, "ends": ends, "ended": ended, "grows": grows, "room": room,
    }  # fmt: skip
    sessions.count(state, events, grows, sizes)
    frames = zip(
        notable.tolist(), *(column[notable].tolist() for column in columns.values()), events.rows(_NOTED, notable),
        strict=True,
    )  # fmt: skip
    seen = state.seen
    for index, *derived, raw in frames:
        event = dict(zip(columns, derived, strict=True)) | dict(zip(_NOTED, raw, strict=True))
        _note(state, event, seen + index + 1, out)
    _remember(state, events, is_data & (kind == DATA), sizes, end)
    state.hwm, state.last_advance_ns, state.stood = int(after[-1]), int(last[-1]), int(stood[-1])
    state.last_sender_ns = int(spoke[-1])
    state.is_ended = bool(ends[-1] or (ended[-1] and not grows[-1]))
    return len(events)


def _another_life(kind: Any, sizes: Any, goes_back: Any, since_data: Any, silence: Any, ended: Any) -> int:
    """Return the index of the first frame of the publisher's next life, or the number of frames.

    SETUP and heartbeats carry the publisher's position. Within one life it never goes back, except in a frame that others overtook.
    Data below the position is a repair if the publisher was never silent for long.
    """
    overtaken_ns = np.where(kind == SETUP, OVERTAKEN_SETUP_NS, OVERTAKEN_HEARTBEAT_NS)
    tells = (sizes == 0) & (since_data >= overtaken_ns)
    returns = (sizes > 0) & (silence >= np.where(ended, SILENT_END_NS, SILENT_NS))
    first = np.flatnonzero(goes_back & (tells | returns))
    return int(first[0]) if len(first) else len(kind)


def _ended_before(state: PathState, ends: Any, grows: Any) -> Any:
    """Return, for each frame, whether the stream had ended before it: an end of stream, and no new data since."""
    decisive = np.where(ends | grows, np.arange(len(ends)), -1)
    latest = np.maximum.accumulate(np.concatenate(([-1], decisive)))[:-1]
    return np.where(latest >= 0, ends[latest], state.is_ended)


_NOTED = ("type", "time_ns", "packet", "frame_index", "flags", "term_id", "term_offset", "nak_length",
          "receiver_window", "receiver_id", "echo_timestamp")  # fmt: skip


def _positions(state: PathState, events: Events) -> Any:
    terms = ((events["term_id"] - (state.base_term or 0) + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
    if state.term_length:
        return terms * state.term_length + events["term_offset"]
    return (terms << 40) + events["term_offset"]


def _remember(state: PathState, events: Events, is_message: Any, sizes: Any, end: Any) -> None:
    state.seen += len(events)
    state.last_ns = int(events["time_ns"][-1])
    state.largest = max(state.largest, int(sizes[is_message].max(initial=0)))
    if not state.term_length:
        state.base_end = max(state.base_end, int(end.max(initial=0)))


def _note(state: PathState, event: dict[str, Any], revision: int, out: list[Row]) -> None:
    """Process one notable frame, after setting the fields that columns carry to their values at that frame."""
    state.last_advance_ns, state.largest, state.stood = event["last_before"], event["room"], event["stood"]
    time_ns, hwm = event["time_ns"], event["before"]
    if event["pause"] and not event["ended"]:
        stalls.note_end(state, time_ns, revision, out)
    if event["gap"]:
        gaps.note_gap(state, hwm, event["start"], time_ns, revision, out)
    if event["again"] or event["fills"]:
        frame = moment(event)
        if event["again"]:
            gaps.note_again(state, event["start"], event["end"], frame, revision, out)
        else:
            gaps.note_filling(state, event["start"], event["end"], hwm, frame, revision, out)
    if event["ends"] and not event["ended"] and not event["grows"]:
        stalls.note_end(state, time_ns, revision, out)
    if event["type"] == NAK:
        start = state.position(event["term_id"], event["term_offset"])
        gaps.note_nak(state, start, start + align_frame(max(event["nak_length"], 0)), hwm, time_ns, revision, out)
    elif event["type"] == SM:
        _note_status(state, event, revision)
    elif event["type"] == RTTM:
        _note_rttm(state, event, revision, out)


def _note_status(state: PathState, event: dict[str, Any], revision: int) -> None:
    key = str(event["receiver_id"])
    if event["flags"] & SEND_SETUP:
        return
    position = state.position(event["term_id"], event["term_offset"])
    before = stalls.left(state)
    if event["flags"] & SM_EOS:
        state.receivers.pop(key, None)
    elif key in state.receivers or len(state.receivers) < MAX_RECEIVERS:
        state.receivers[key] = Receiver(position, position + event["receiver_window"])
        state.most_receivers = max(state.most_receivers, len(state.receivers))
    limit = position + event["receiver_window"]
    state.limit = limit if state.limit is None else max(state.limit, limit)
    stalls.note_window(state, before, event["time_ns"])
    gaps.note_consumed(state, event["time_ns"], revision)


def _note_rttm(state: PathState, event: dict[str, Any], revision: int, out: list[Row]) -> None:
    key = f"{event['receiver_id']}/{event['echo_timestamp']}"
    if event["flags"] & REPLY:
        state.questions[key] = event["time_ns"]
        if len(state.questions) > MAX_QUESTIONS:
            state.questions.pop(next(iter(state.questions)))
    elif key in state.questions:
        out.append(round_trip("aeron", "RTTM", event, state.questions.pop(key), revision))
