"""The fold for the totals of one channel: everything sent to or from an endpoint, in all sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mainstem.analysis.folds.fold import TIME_INPUTS, Fold, Kind, Row, checkpointed
from mainstem.analysis.folds.mux import FROM_CLIENT
from mainstem.analysis.folds.path import CHANNEL
from mainstem.capture.schema import Column

if TYPE_CHECKING:
    from mainstem.analysis.folds.fold import Events

# The highest number of sessions counted per channel.
MAX_MEMBERS = 65536

CHANNELS = Kind(
    "channels",
    (
        Column("first_ns", "bigint", "its first frame"),
        Column("last_ns", "bigint", "its last frame"),
        Column("sessions", "int", "aeron: sessions of streams; bymux and jmux: connections"),
        Column("frames", "bigint", "of either direction"),
        Column("packets", "bigint", "that completed a frame"),
        Column("wire_bytes", "bigint", "their bytes, link headers included"),
        Column("data_bytes", "bigint", "payload, repeats included"),
        Column("naks", "bigint", "aeron: NAK"),
        Column("status_messages", "bigint", "aeron: SM"),
        Column("errors", "bigint", "aeron: ERR; jmux: ERROR"),
    ),
    "first_ns",
)


@checkpointed("ChannelState")
@dataclass
class ChannelState:
    seen: int = 0
    first_ns: int = 0
    last_ns: int = 0
    packets: int = 0
    wire_bytes: int = 0
    data_bytes: int = 0
    naks: int = 0
    status_messages: int = 0
    errors: int = 0
    members: list[int] = field(default_factory=list)


class ChannelFold(Fold):
    name = "channel"
    keys = (
        (Column("protocol", "string", "aeron, bymux, jmux or aqueduct"), "protocol"),
        (
            Column("channel", "string", "aeron: the endpoint that data goes to; else the side that was connected to"),
            (
                f"coalesce(case when protocol = 'aeron' then {CHANNEL}"
                f" when {FROM_CLIENT} then concat(dst, ':', dst_port) else concat(src, ':', src_port) end, '')"
            ),
        ),
    )
    inputs = TIME_INPUTS | {
        "wire_length": "coalesce(wire_length, 0)",
        "length": "coalesce(length, 0)",
        "is_nak": "cast(protocol = 'aeron' and type = 2 as int)",
        "is_status": "cast(protocol = 'aeron' and type = 3 as int)",
        "is_error": "cast(frame_type in ('ERR', 'ERROR') as int)",
        "member": "if(protocol = 'aeron', xxhash64(session_id, stream_id), xxhash64(file, connection))",
    }
    where = "protocol in ('aeron', 'bymux', 'jmux', 'aqueduct')"
    kinds = (CHANNELS,)
    state = ChannelState

    def feed(self, state: ChannelState, events: Events) -> list[Row]:
        if not len(events):
            return []
        state.first_ns = state.first_ns or int(events["time_ns"][0])
        state.last_ns = int(events["time_ns"][-1])
        state.seen += len(events)
        first = events["frame_index"] == 0
        state.packets += int(np.count_nonzero(first))
        state.wire_bytes += int(events["wire_length"][first].sum())
        state.data_bytes += int(events["length"].sum())
        state.naks += int(events["is_nak"].sum())
        state.status_messages += int(events["is_status"].sum())
        state.errors += int(events["is_error"].sum())
        if len(state.members) < MAX_MEMBERS:
            state.members = sorted({*state.members, *np.unique(events["member"]).tolist()})[:MAX_MEMBERS]
        return []

    def pending_rows(self, state: ChannelState) -> list[Row]:
        if not state.seen:
            return []
        names = ("first_ns", "last_ns", "packets", "wire_bytes", "data_bytes", "naks", "status_messages", "errors")
        values = {name: getattr(state, name) for name in names}
        return [Row(CHANNELS.name, state.seen, values | {"sessions": len(state.members), "frames": state.seen})]
