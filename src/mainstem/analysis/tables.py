"""Defines the tables of captures and recordings: their columns, and how their rows are computed.

A table of a fold selects from what the fold produces; ``sources`` lists the origin of each column. The other tables are a
``Selection`` from frames. ``mainstem.spark.tables`` computes both as DataFrames, and ``local_tables`` in this process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem.analysis.folds.aqueduct import AqueductFold
from mainstem.analysis.folds.channels import ChannelFold
from mainstem.analysis.folds.combined import RoundTripFold
from mainstem.analysis.folds.fold import REVISION
from mainstem.analysis.folds.multiplexed import MuxFold
from mainstem.analysis.folds.path import CHANNEL, PathFold
from mainstem.analysis.folds.recordings import RecordingFold
from mainstem.capture.schema import COLUMNS, Column

if TYPE_CHECKING:
    from mainstem.analysis.folds.fold import Fold

TIME = Column("time", "timestamp", "when the row was, in microseconds; the columns in nanoseconds are exact")
PATH_FOLD, MUX_FOLD, ROUND_TRIP_FOLD, CHANNEL_FOLD = PathFold(), MuxFold(), RoundTripFold(), ChannelFold()
AQUEDUCT_FOLD, RECORDING_FOLD, RECORDED_FRAME_FOLD = AqueductFold(), RecordingFold(), RecordingFold(frames=True)


@dataclass(frozen=True)
class Table:
    """A table: the meaning of a row, the columns in order, and the columns that identify a row.

    A stateful table depends on earlier frames. In streaming, a changed row is emitted again with a higher ``revision``, and
    ``latest`` keeps the last version. Other tables emit each row once.

    Attributes:
        name: The table's name, which is also its key in ``TABLES``.
        meaning: What a row represents, for the documentation.
        columns: Name, Spark type and meaning of each column, in order.
        identity: The names of the columns that together identify a row.
        fold: The fold that computes a stateful table from frames; None for other tables.

    Example:
        >>> TABLES["gaps"].identity
        ('session_id', 'stream_id', 'channel', 'position', 'noticed_ns')
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    identity: tuple[str, ...]
    fold: Fold | None = field(default=None, repr=False, compare=False)

    @property
    def is_stateful(self) -> bool:
        """Whether rows may be emitted again in streaming."""
        return self.fold is not None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True)
class Selection:
    """The frames that become rows of a table, and the expressions for its columns.

    A column without an expression is the frame's column of the same name.
    """

    where: str
    columns: dict[str, str]

    def expressions(self, table: Table) -> list[str]:
        return [f"{self.columns.get(name, name)} as {name}" for name in table.names]


def _of_fold(fold: Fold, name: str, meaning: str) -> Table:
    kind = fold.kind(name)
    keys = tuple(column for column, _ in fold.keys)
    identity = (*(key.name for key in keys), *kind.identity)
    return Table(name, meaning, (*keys, TIME, *kind.columns, REVISION), identity, fold)


def sources(table: Table, fold: Fold) -> list[tuple[Column, str]]:
    """Return each column of a table with its place in the output of ``fold``.

    A place is a column (``session_id``), a field of the table's struct (``gaps.position``), or empty for a key that the fold lacks,
    whose value is 0 or an empty string. Timestamps are computed from nanoseconds.
    """
    kind = fold.kind(table.name)
    places = {column.name: column.name for column, _ in fold.keys} | {REVISION.name: REVISION.name}
    places |= {column.name: f"{kind.name}.{column.name}" for column in kind.columns}
    places[TIME.name] = f"{kind.name}.{kind.instant}"
    return [(column, places.get(column.name, "")) for column in table.columns]


_SESSION, _STREAM, _CHANNEL = (column for column, _ in PATH_FOLD.keys)
_PACKET = (
    Column("file", "string", "path of the capture"),
    Column("packet", "bigint", "number of the packet in its file"),
)
_PASSED = (TIME, Column("time_ns", "bigint", "when it passed"), *_PACKET)

MESSAGES = Table(
    "messages",
    "one row for each whole message of a recording",
    (
        Column("recording_id", "bigint", "the recording"),
        Column("session_id", "int", "the publisher's session"),
        Column("stream_id", "int", "the stream"),
        Column("position", "bigint", "the position at the message's end, as offer returned it"),
        Column("recorded_at", "timestamp", "when it was recorded, to about 100 ms; null if the recording has no times"),
        Column("length", "int", "bytes of payload"),
        Column("reserved_value", "bigint", "the publisher's reserved value"),
        Column("payload", "binary", "the message"),
    ),
    ("recording_id", "position"),
)
FRAMES = Table(
    "frames",
    "one row for each frame of every protocol, each event of TCP and each problem",
    (
        *COLUMNS,
        Column("channel", "string", "aeron: the endpoint that data goes to, whichever direction the frame took"),
    ),
    ("file", "packet", "frame_index", "protocol"),
)
SESSIONS = _of_fold(
    PATH_FOLD, "sessions", "one row for each session of an Aeron stream and each endpoint that it went to"
)
RECORDED_SESSIONS = _of_fold(RECORDING_FOLD, "recorded_sessions", "one row for each session of a stream in a recording")
GAPS = _of_fold(PATH_FOLD, "gaps", "one row for each range of an Aeron stream that was lost, or seemed so")
NAKS = Table(
    "naks",
    "one row for each NAK",
    (
        _SESSION,
        _STREAM,
        _CHANNEL,
        *_PASSED,
        Column("receiver", "string", "who asked: address:port"),
        Column("term_id", "int", "the term of the missing range"),
        Column("term_offset", "int", "offset in the term at which the range starts"),
        Column("length", "int", "bytes missing"),
    ),
    ("file", "packet", "channel"),
)
RETRANSMITS = _of_fold(PATH_FOLD, "retransmits", "one row for each Aeron data frame that passed again, or late")
STATUS_MESSAGES = Table(
    "status_messages",
    "one row for each status message",
    (
        Column("session_id", "int", "the publisher's session; 0 if a receiver only announces itself"),
        Column("stream_id", "int", "the stream; 0 likewise"),
        _CHANNEL,
        *_PASSED,
        Column("receiver", "string", "who sent it: address:port"),
        Column("receiver_id", "bigint", "the receiver's id"),
        Column("group_tag", "bigint", "its group; null without"),
        Column("term_id", "int", "consumed position: the term"),
        Column("term_offset", "int", "and where in it"),
        Column("receiver_window", "int", "bytes that may be sent beyond"),
        Column("asks_for_setup", "boolean", "whether it only asks for a SETUP; term and window are 0 then"),
        Column("is_end_of_stream", "boolean", "whether the receiver leaves"),
    ),
    ("file", "packet", "channel"),
)
RTT = _of_fold(ROUND_TRIP_FOLD, "rtt", "one row for each round trip")
FLOW_CONTROL = _of_fold(PATH_FOLD, "flow_control", "one row for each silence of a publisher, and its cause")
CHANNELS = _of_fold(CHANNEL_FOLD, "channels", "one row for each endpoint that was connected or sent to")
CREDITS = _of_fold(MUX_FOLD, "credits", "one row for each Credit of a bymux connection")
RATIONS = _of_fold(MUX_FOLD, "rations", "one row for each ration that a Jmux peer gave")
MUX_STREAMS = _of_fold(MUX_FOLD, "mux_streams", "one row for each stream of a bymux or session of a Jmux connection")
REQUESTS = _of_fold(MUX_FOLD, "requests", "one row for each request of a Jmux connection")
AQUEDUCT_CHANNELS = _of_fold(AQUEDUCT_FOLD, "aqueduct_channels", "one row for each channel of Aqueduct")
PROBLEMS = Table(
    "problems",
    "one row for each fault of a capture, a connection or a recording, and each error that a peer reported",
    (
        TIME,
        Column("time_ns", "bigint", "the same in nanoseconds; null if a problem belongs to no packet"),
        *_PACKET,
        Column("kind", "string", "a kind of problem, GAP or RESET of TCP, ERR of Aeron, ERROR of Jmux"),
        Column("source", "string", "who sent it: address:port"),
        Column("target", "string", "to whom"),
        Column("session_id", "int", "aeron"),
        Column("stream_id", "int", "aeron"),
        Column("code", "int", "aeron: the error's code"),
        Column("recording_id", "bigint", "of a recording"),
        Column("position", "bigint", "recordings: the position of the problem"),
        Column("packets", "bigint", "PASSED_OVER: the number of packets without a row, for the reason in text"),
        Column("text", "string", "the text of the error or problem"),
    ),
    ("file", "packet", "kind", "time_ns", "recording_id", "position"),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        MESSAGES, FRAMES, SESSIONS, RECORDED_SESSIONS, GAPS, NAKS, RETRANSMITS, STATUS_MESSAGES, RTT, FLOW_CONTROL,
        CHANNELS, CREDITS, RATIONS, MUX_STREAMS, REQUESTS, AQUEDUCT_CHANNELS, PROBLEMS,
    )
}  # fmt: skip
"""All tables by name."""

CHANNEL_OF_AERON = f"case when protocol = 'aeron' then {CHANNEL} end"
_SENDER, _TARGET = "concat(src, ':', src_port)", "concat(dst, ':', dst_port)"
SELECTIONS: dict[str, Selection] = {
    "naks": Selection(
        "protocol = 'aeron' and type = 2", {"channel": CHANNEL, "receiver": _SENDER, "length": "nak_length"}
    ),
    "status_messages": Selection(
        "protocol = 'aeron' and type = 3",
        {
            "channel": CHANNEL,
            "receiver": _SENDER,
            "asks_for_setup": "flags & 128 != 0",
            "is_end_of_stream": "flags & 64 != 0",
        },
    ),
    "problems": Selection(
        "protocol = 'problem' or (protocol = 'tcp' and frame_type in ('GAP', 'RESET')) or frame_type in ('ERR', 'ERROR')",
        {
            "kind": "frame_type",
            "source": _SENDER,
            "target": _TARGET,
            "code": "error_code",
            "recording_id": "cast(null as bigint)",
            "position": "cast(null as bigint)",
            "packets": "cast(if(frame_type = 'PASSED_OVER', length, null) as bigint)",
        },
    ),
}
"""The tables computed from frames without a fold, by name."""
FOLDS = (PATH_FOLD, MUX_FOLD, CHANNEL_FOLD, AQUEDUCT_FOLD)
"""The folds that compute the other tables."""
