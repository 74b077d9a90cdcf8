"""The fold for the totals of each recorded session."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from mainstem.analysis.folds.fold import Fold, Kind, Row, checkpointed
from mainstem.capture.schema import Column

if TYPE_CHECKING:
    from mainstem.analysis.folds.fold import Events

RECORDED = Kind(
    "recorded_sessions",
    (
        Column(
            "first_ns",
            "bigint",
            "when the first message was recorded, to about 100 ms; null without an index",
        ),
        Column("last_ns", "bigint", "when the last one was; null likewise"),
        Column("messages", "bigint", "whole messages (of frames: those that end one)"),
        Column("data_bytes", "bigint", "their payload"),
        Column("largest", "int", "bytes of the largest"),
        Column("start_position", "bigint", "the lowest position at the end of a message"),
        Column("end_position", "bigint", "the highest"),
    ),
    "first_ns",
)


@checkpointed("RecordedState")
@dataclass
class RecordedState:
    seen: int = 0
    first_ns: int = 0
    last_ns: int = 0
    messages: int = 0
    data_bytes: int = 0
    largest: int = 0
    start_position: int = 0
    end_position: int = 0


class RecordingFold(Fold):
    """The sessions of recordings, from the rows of ``mainstem.recording``."""

    name = "recording"
    keys = (
        (Column("recording_id", "bigint", "the recording"), "recording_id"),
        (Column("session_id", "int", "the publisher's session"), "session_id"),
        (Column("stream_id", "int", "the stream"), "stream_id"),
    )
    where = "recording_id is not null"
    kinds = (RECORDED,)
    state = RecordedState

    def __init__(self, *, frames: bool = False) -> None:
        """Choose the inputs for rows that are messages, or with ``frames`` for rows that are frames."""
        self.inputs = {
            "time_ns": "coalesce(unix_micros(recorded_at) * 1000, 0L)",
            "packet": "position",
            "frame_index": "0",
            "ends": "cast(type = 1 and flags & 64 != 0 as int)" if frames else "1",
            "length": "length",
        }

    def feed(self, state: RecordedState, events: Events) -> list[Row]:
        if not len(events):
            return []
        times, positions, lengths = events["time_ns"], events["packet"], events["length"]
        first = not state.seen
        state.first_ns = int(times.min()) if first else min(state.first_ns, int(times.min()))
        state.last_ns = max(state.last_ns, int(times.max()))
        state.start_position = int(positions.min()) if first else min(state.start_position, int(positions.min()))
        state.end_position = max(state.end_position, int(positions.max()))
        state.messages += int(np.count_nonzero(events["ends"]))
        state.data_bytes += int(lengths.sum())
        state.largest = max(state.largest, int(lengths.max()))
        state.seen += len(events)
        return []

    def pending_rows(self, state: RecordedState) -> list[Row]:
        values = asdict(state)
        del values["seen"]
        values |= {name: values[name] or None for name in ("first_ns", "last_ns")}
        return [Row(RECORDED.name, state.seen, values)] if state.seen else []
