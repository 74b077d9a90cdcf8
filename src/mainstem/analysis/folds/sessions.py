"""The totals of one path."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from mainstem.analysis.folds.fold import Kind, Row
from mainstem.analysis.folds.path_state import UNSEEN
from mainstem.capture.schema import Column

if TYPE_CHECKING:
    from mainstem.analysis.folds.fold import Events
    from mainstem.analysis.folds.path_state import PathState

SESSIONS = Kind(
    "sessions",
    (
        Column("publisher", "string", "address:port of the sender; null if only frames of receivers were seen"),
        Column("first_ns", "bigint", "first frame of either direction"),
        Column("last_ns", "bigint", "last frame"),
        Column("initial_term_id", "int", "from a SETUP; without one positions count from the first term seen"),
        Column("term_length", "int", "bytes, from a SETUP or as the frames showed; null before a term ended"),
        Column("mtu", "int", "bytes, from a SETUP"),
        Column("lives", "bigint", "how often the publisher began, with this session and stream"),
        Column("start_position", "bigint", "position of the first data or SETUP of the last life"),
        Column("end_position", "bigint", "the highest position seen in it"),
        Column(
            "consumed_position", "bigint", "position up to which the slowest receiver had consumed; null without one"
        ),
        Column("receivers", "int", "receivers at once, at most"),
        Column("is_ended", "boolean", "whether the publisher declared that the stream ends here"),
        Column("frames", "bigint", "of either direction"),
        Column("datagrams", "bigint", "the same in packets"),
        Column("wire_bytes", "bigint", "and their bytes, link headers included"),
        Column("data_frames", "bigint", "DATA with payload, repeats included"),
        Column("data_bytes", "bigint", "their payload"),
        Column("new_bytes", "bigint", "bytes of the stream, headers included, seen for the first time"),
        Column("messages", "bigint", "last fragments seen for the first time"),
        Column("padding_frames", "bigint", "PAD"),
        Column("heartbeats", "bigint", "DATA without a length"),
        Column("setups", "bigint", "SETUP"),
        Column("naks", "bigint", "NAK"),
        Column("nak_bytes", "bigint", "bytes that they asked for, repeats included"),
        Column("status_messages", "bigint", "SM"),
        Column("rttms", "bigint", "RTTM, requests and replies"),
        Column("errors", "bigint", "ERR"),
        Column("retransmits", "bigint", "frames repeated after a NAK or a gap"),
        Column("retransmitted_bytes", "bigint", "their bytes, headers included"),
        Column("duplicates", "bigint", "frames repeated without need"),
        Column("gaps", "bigint", "ranges that were lost, or seemed so"),
        Column("lost_bytes", "bigint", "their bytes"),
        Column("publisher_idle_ns", "bigint", "ended silences in which the publisher had nothing to send"),
        Column("receiver_stall_ns", "bigint", "times in which a full window held the publisher back"),
        Column("network_stall_ns", "bigint", "the same while a loss was being repaired"),
    ),
    "first_ns",
)
TYPES = 12


def count(state: PathState, events: Events, grows: Any, sizes: Any) -> None:
    """Add a batch of frames to the totals, by columns."""
    totals, kind, lengths = state.totals, events["type"], events["frame_length"]
    by_type = np.bincount(kind, minlength=TYPES).tolist()
    is_data = kind == 1
    heartbeats = int(np.count_nonzero(is_data & (lengths == 0)))
    first = events["frame_index"] == 0
    totals.datagrams += int(np.count_nonzero(first))
    totals.wire_bytes += int(events["wire_length"][first].sum())
    totals.data_frames += by_type[1] - heartbeats
    totals.heartbeats += heartbeats
    totals.data_bytes += int(events["length"][is_data].sum())
    totals.new_bytes += int(sizes[grows].sum())
    totals.messages += int(np.count_nonzero(grows & is_data & (events["flags"] & 0x40 != 0)))
    totals.padding_frames += by_type[0]
    totals.naks += by_type[2]
    totals.nak_bytes += int(events["nak_length"][kind == 2].sum())
    totals.status_messages += by_type[3]
    totals.errors += by_type[4]
    totals.setups += by_type[5]
    totals.rttms += by_type[6]
    if not state.seen:
        state.first_ns = int(events["time_ns"][0])
    if not state.publisher:
        state.publisher = next((text for text in events["sender"] if text), "")


def row_of(state: PathState) -> Row:
    has_data = state.hwm != UNSEEN
    values = asdict(state.totals) | {
        "publisher": state.publisher or None,
        "first_ns": state.first_ns,
        "last_ns": state.last_ns,
        "initial_term_id": state.initial_term_id,
        "term_length": state.term_length or None,
        "mtu": state.mtu or None,
        "start_position": state.start if has_data else None,
        "end_position": state.hwm if has_data else None,
        "consumed_position": state.least_position if state.receivers else None,
        "receivers": state.most_receivers,
        "is_ended": state.is_ended,
        "frames": state.seen,
    }
    return Row(SESSIONS.name, state.seen, values)
