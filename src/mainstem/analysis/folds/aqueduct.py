"""The fold that reconstructs one Aqueduct channel from its frames."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mainstem.analysis.folds.fold import TIME_INPUTS, Fold, Kind, Row, checkpointed
from mainstem.capture.schema import Column

if TYPE_CHECKING:
    from mainstem.analysis.folds.fold import Events

TO_CLIENT, MINTED_BY_SERVER, ONESHOT = 1, 2, 4  # bits of a channel id

CHANNELS = Kind(
    "aqueduct_channels",
    (
        Column("direction", "string", "'to server' or 'to client': which way its messages flow"),
        Column("minted_by", "string", "'server' or 'client'"),
        Column("is_oneshot", "boolean", "whether it carries one message at most"),
        Column("first_ns", "bigint", "its first frame"),
        Column("last_ns", "bigint", "its last frame"),
        Column("messages", "bigint", "MESSAGE"),
        Column("message_bytes", "bigint", "their payload"),
        Column("highest_number", "bigint", "of a message; null without one"),
        Column("declared_unreliable", "bigint", "unreliable messages that SENT_UNRELIABLE declared"),
        Column("acknowledgments", "bigint", "ACK_RELIABLE and ACK_NACK_UNRELIABLE"),
        Column("finished_after", "bigint", "reliable messages that FINISH_SENDER counted; null before"),
        Column("status", "string", "'open', 'finished' (no more will be sent), 'closed' (no more is read), 'lost'"),
    ),
    "first_ns",
)


@checkpointed("AqueductState")
@dataclass
class AqueductState:
    seen: int = 0
    bits: int = 0
    first_ns: int = 0
    last_ns: int = 0
    messages: int = 0
    message_bytes: int = 0
    highest_number: int = -1
    declared_unreliable: int = 0
    acknowledgments: int = 0
    finished_after: int = -1
    status: str = "open"


_INPUTS = ("time_ns", "frame_type", "length", "number", "bits")


class AqueductFold(Fold):
    name = "aqueduct"
    keys = (
        (Column("file", "string", "path of the trace"), "file"),
        (Column("channel_id", "bigint", "the channel"), "channel_id"),
    )
    inputs = TIME_INPUTS | {
        "frame_type": "frame_type",
        "length": "coalesce(length, 0)",
        "number": "coalesce(message_number, 0)",
        "bits": "cast(channel_id & 7 as int)",
    }
    where = "protocol = 'aqueduct' and channel_id is not null"
    kinds = (CHANNELS,)
    state = AqueductState

    def feed(self, state: AqueductState, events: Events) -> list[Row]:
        for time_ns, kind, length, number, bits in events.rows(_INPUTS, slice(None)):
            state.seen += 1
            state.bits = bits
            state.first_ns, state.last_ns = state.first_ns or time_ns, time_ns
            _note(state, kind, length, number)
        return []

    def pending_rows(self, state: AqueductState) -> list[Row]:
        return [Row(CHANNELS.name, state.seen, _values(state))] if state.seen else []


def _note(state: AqueductState, kind: str, length: int, number: int) -> None:
    if kind == "MESSAGE":
        state.messages += 1
        state.message_bytes += length
        state.highest_number = max(state.highest_number, number)
    elif kind == "SENT_UNRELIABLE":
        state.declared_unreliable += number
    elif kind in ("ACK_RELIABLE", "ACK_NACK_UNRELIABLE"):
        state.acknowledgments += 1
    elif kind == "FINISH_SENDER":
        state.finished_after = number
        state.status = "finished" if state.status == "open" else state.status
    elif kind == "CLOSE_RECEIVER" and state.status != "lost":
        state.status = "closed"
    elif kind == "CLOSED_CHANNEL_LOST":
        state.status = "lost"


def _values(state: AqueductState) -> dict[str, Any]:
    values = asdict(state)
    values["direction"] = "to client" if state.bits & TO_CLIENT else "to server"
    values["minted_by"] = "server" if state.bits & MINTED_BY_SERVER else "client"
    values["is_oneshot"] = bool(state.bits & ONESHOT)
    values["highest_number"] = None if state.highest_number < 0 else state.highest_number
    values["finished_after"] = None if state.finished_after < 0 else state.finished_after
    return values
