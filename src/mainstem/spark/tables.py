"""Tables as DataFrame functions: typed, documented, the same in batch and streaming.

Each takes the frames of ``mainstem.capture``; ``messages``, ``sessions`` and ``problems`` also take rows of
``mainstem.recording``. In batch a row comes once. In streaming (output mode ``append``) a row of a stateful table comes again
when it has changed, with a higher ``revision``; ``latest(rows, TABLES[name].identity)`` keeps the last form of each. ``TABLES``
describes the columns.

A table of a fold is a selection from what ``folds.run.apply`` returns: ``sources`` lists where each column comes from.
The others are a ``Selection`` from frames. Spark makes both here; ``report.local_tables`` makes the same without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.capture.schema import COLUMNS, Column
from mainstem.spark.folds.aqueduct import AqueductFold
from mainstem.spark.folds.channels import ChannelFold
from mainstem.spark.folds.every import RoundTripFold
from mainstem.spark.folds.fold import REVISION
from mainstem.spark.folds.multiplexed import MuxFold
from mainstem.spark.folds.path import CHANNEL, PathFold
from mainstem.spark.folds.recordings import RecordingFold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from mainstem.spark.folds.fold import Fold

__all__ = [
    "OF_FRAMES",
    "TABLES",
    "Table",
    "aqueduct_channels",
    "channels",
    "credits",
    "flow_control",
    "frames",
    "gaps",
    "latest",
    "messages",
    "mux_streams",
    "naks",
    "problems",
    "rations",
    "requests",
    "retransmits",
    "rtt",
    "sessions",
    "status_messages",
    "without_repeats",
]

TIME = Column("time", "timestamp", "when the row was, in microseconds; the columns in nanoseconds are exact")
PATH_FOLD, MUX_FOLD, ROUND_TRIP_FOLD, CHANNEL_FOLD = PathFold(), MuxFold(), RoundTripFold(), ChannelFold()
AQUEDUCT_FOLD, RECORDING_FOLD, RECORDED_FRAME_FOLD = AqueductFold(), RecordingFold(), RecordingFold(frames=True)


@dataclass(frozen=True)
class Table:
    """What a row of a table is, its columns in order, and those that together identify a row.

    A stateful table needs the frames before: in streaming, a row comes again when it has changed, with a higher ``revision``,
    and ``latest`` keeps the last form of each. Rows of the other tables come once.

    Attributes:
        name: The table's name, which is also its key in ``TABLES``.
        meaning: What a row is, for the documentation.
        columns: Name, Spark type and meaning of each column, in order.
        identity: The names of the columns that together identify a row.
        is_stateful: Whether rows come again in streaming.

    Example:
        >>> TABLES["gaps"].identity
        ('session_id', 'stream_id', 'channel', 'position', 'noticed_ns')
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    identity: tuple[str, ...]
    is_stateful: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns, in order."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True)
class Selection:
    """Which frames are a row of a table, and its columns as expressions; one that is left out is the frame's of that name."""

    where: str
    columns: dict[str, str]

    def expressions(self, table: Table) -> list[str]:
        """Every column of a table, with its name."""
        return [f"{self.columns.get(name, name)} as {name}" for name in table.names]


def _of_fold(fold: Fold, name: str, meaning: str) -> Table:
    kind = fold.kind(name)
    keys = tuple(column for column, _ in fold.keys)
    identity = (*(key.name for key in keys), *kind.identity)
    return Table(name, meaning, (*keys, TIME, *kind.columns, REVISION), identity, True)


def sources(table: Table, fold: Fold) -> list[tuple[Column, str]]:
    """Each column of a table with the place in what ``fold`` makes that it is taken from.

    A place is a column (``session_id``), a field of the table's struct (``gaps.position``), or empty for a key that the fold
    does not have: its value is 0 or an empty text. A timestamp is taken from nanoseconds.
    """
    kind = fold.kind(table.name)
    places = {column.name: column.name for column, _ in fold.keys} | {REVISION.name: REVISION.name}
    places |= {column.name: f"{kind.name}.{column.name}" for column in kind.columns}
    places[TIME.name] = f"{kind.name}.{kind.instant}"
    return [(column, places.get(column.name, "")) for column in table.columns]


def select(folded: DataFrame, fold: Fold, table: Table) -> DataFrame:
    """One table out of everything that ``folds.run.apply`` made with ``fold``."""

    def expression(column: Column, place: str) -> str:
        if not place:
            return f"cast({repr('') if column.type == 'string' else 0} as {column.type}) as {column.name}"
        return f"timestamp_micros({place} div 1000) as time" if column is TIME else f"{place} as {column.name}"

    columns = (expression(*source) for source in sources(table, fold))
    return folded.where(f"kind = '{table.name}'").selectExpr(*columns)


def _selected(rows: DataFrame, table: Table) -> DataFrame:
    selection = SELECTIONS[table.name]
    return rows.where(selection.where).selectExpr(*selection.expressions(table))


def _fold(fold: Fold, rows: DataFrame, table: Table) -> DataFrame:
    # Pyarrow is imported where a table is made, not where the names of the tables are.
    from mainstem.spark.folds.run import apply

    return select(apply(fold, rows, table.name), fold, table)


MESSAGES = Table(
    "messages",
    "one row for each whole message of a recording",
    (
        Column("recording_id", "bigint", "the recording"),
        Column("session_id", "int", "the publisher's session"),
        Column("stream_id", "int", "the stream"),
        Column("position", "bigint", "the position at the message's end, as offer returned it"),
        Column(
            "recorded_at", "timestamp", "when it was recorded, to about 100 ms; null where the recording keeps no times"
        ),
        Column("length", "int", "bytes of payload"),
        Column("reserved_value", "bigint", "what the publisher put there"),
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
        Column("session_id", "int", "the publisher's session"),
        Column("stream_id", "int", "the stream"),
        Column("channel", "string", "the endpoint that data goes to: address:port"),
        TIME,
        Column("time_ns", "bigint", "when it passed"),
        Column("file", "string", "path of the capture"),
        Column("packet", "bigint", "number of the packet in its file"),
        Column("receiver", "string", "who asked: address:port"),
        Column("term_id", "int", "the term of the missing range"),
        Column("term_offset", "int", "where in it the range starts"),
        Column("length", "int", "bytes missing"),
    ),
    ("file", "packet", "channel"),
)
RETRANSMITS = _of_fold(PATH_FOLD, "retransmits", "one row for each Aeron data frame that passed again, or late")
STATUS_MESSAGES = Table(
    "status_messages",
    "one row for each status message",
    (
        Column("session_id", "int", "the publisher's session; 0 where a receiver only makes itself known"),
        Column("stream_id", "int", "the stream; 0 likewise"),
        Column("channel", "string", "the endpoint that data goes to: address:port"),
        TIME,
        Column("time_ns", "bigint", "when it passed"),
        Column("file", "string", "path of the capture"),
        Column("packet", "bigint", "number of the packet in its file"),
        Column("receiver", "string", "who sent it: address:port"),
        Column("receiver_id", "bigint", "the receiver's id"),
        Column("group_tag", "bigint", "its group; null without"),
        Column("term_id", "int", "up to where it consumed: the term"),
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
        Column("time_ns", "bigint", "the same in nanoseconds; null where a fault belongs to no packet"),
        Column("file", "string", "path of the capture"),
        Column("packet", "bigint", "number of the packet in its file"),
        Column("kind", "string", "what it is: a kind of problem, GAP or RESET of TCP, ERR of Aeron, ERROR of Jmux"),
        Column("source", "string", "who sent it: address:port"),
        Column("target", "string", "to whom"),
        Column("session_id", "int", "aeron"),
        Column("stream_id", "int", "aeron"),
        Column("code", "int", "aeron: the error's code"),
        Column("recording_id", "bigint", "of a recording"),
        Column("position", "bigint", "of a recording: where the fault is"),
        Column("packets", "bigint", "PASSED_OVER: so many packets of the file have no row, for the reason in text"),
        Column("text", "string", "the text of the error, or what is wrong"),
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
"""Every table by name."""

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
"""The tables that are made of frames without a fold, by name."""
FOLDS = (PATH_FOLD, MUX_FOLD, CHANNEL_FOLD, AQUEDUCT_FOLD)
"""The folds that make the others."""


def messages(recordings: DataFrame) -> DataFrame:
    """The messages of recordings, without the columns that describe frames.

    Args:
        recordings: Rows of ``mainstem.recording`` or ``mainstem.live``, batch or streaming.

    Returns:
        A row for each message, with the columns of ``TABLES["messages"]``.

    Example:
        >>> messages(spark.read.format("mainstem.recording").load("/data/recordings")).count()
    """
    return recordings.select(*MESSAGES.names)


def frames(capture: DataFrame) -> DataFrame:
    """The frames of captures, each with the channel that it belongs to. A payload that was read is kept.

    Args:
        capture: Rows of ``mainstem.capture``, batch or streaming.

    Returns:
        The same rows with the column ``channel``; it is null where the protocol is not Aeron.

    Example:
        >>> frames(capture).where("channel = '10.0.0.2:20121'").show()
    """
    return capture.selectExpr(*capture.columns, f"{CHANNEL_OF_AERON} as channel")


def sessions(rows: DataFrame) -> DataFrame:
    """The sessions of Aeron streams: of captures, one for each endpoint that data went to; or those that were recorded.

    Args:
        rows: Rows of ``mainstem.capture``, or messages or frames of ``mainstem.recording``.

    Returns:
        A row for each session: the columns of ``TABLES["sessions"]``, or those of ``TABLES["recorded_sessions"]``.

    Example:
        >>> sessions(capture).select("session_id", "channel", "lost_bytes").show()
    """
    if "recording_id" in rows.columns:
        return _fold(RECORDED_FRAME_FOLD if "type" in rows.columns else RECORDING_FOLD, rows, RECORDED_SESSIONS)
    return _fold(PATH_FOLD, rows, SESSIONS)


def gaps(frames: DataFrame) -> DataFrame:
    """What was lost on Aeron streams, where, and whether it was repaired.

    Args:
        frames: Rows of ``mainstem.capture``, batch or streaming.

    Returns:
        A row for each lost range, with the columns of ``TABLES["gaps"]``.

    Example:
        >>> gaps(capture).orderBy("repair_ns", ascending=False).show()
    """
    return _fold(PATH_FOLD, frames, GAPS)


def naks(frames: DataFrame) -> DataFrame:
    """The NAKs of Aeron streams.

    Args:
        frames: Rows of ``mainstem.capture``, batch or streaming.

    Returns:
        A row for each NAK, with the columns of ``TABLES["naks"]``.

    Example:
        >>> naks(capture).groupBy("receiver").sum("length").show()
    """
    return _selected(frames, NAKS)


def retransmits(frames: DataFrame) -> DataFrame:
    """The data of Aeron streams that passed again or late, and why.

    Args:
        frames: Rows of ``mainstem.capture``, batch or streaming.

    Returns:
        A row for each such frame, with the columns of ``TABLES["retransmits"]``.

    Example:
        >>> retransmits(capture).groupBy("reason").count().show()
    """
    return _fold(PATH_FOLD, frames, RETRANSMITS)


def status_messages(frames: DataFrame) -> DataFrame:
    """The status messages of Aeron streams.

    Args:
        frames: Rows of ``mainstem.capture``, batch or streaming.

    Returns:
        A row for each status message, with the columns of ``TABLES["status_messages"]``.

    Example:
        >>> status_messages(capture).agg({"receiver_window": "min"}).show()
    """
    return _selected(frames, STATUS_MESSAGES)


def rtt(frames: DataFrame) -> DataFrame:
    """The round trips of RTTM, of NAKs and their repair, and of pings.

    Args:
        frames: Rows of ``mainstem.capture``, batch or streaming.

    Returns:
        A row for each round trip, with the columns of ``TABLES["rtt"]``.

    Example:
        >>> rtt(capture).where("method = 'RTTM'").agg({"rtt_ns": "max"}).show()
    """
    return _fold(ROUND_TRIP_FOLD, frames, RTT)


def flow_control(frames: DataFrame) -> DataFrame:
    """The silences of publishers of Aeron streams, and the cause of each.

    Args:
        frames: Rows of ``mainstem.capture``, batch or streaming.

    Returns:
        A row for each silence, with the columns of ``TABLES["flow_control"]``.

    Example:
        >>> flow_control(capture).where("cause = 'receiver'").show()
    """
    return _fold(PATH_FOLD, frames, FLOW_CONTROL)


def channels(frames: DataFrame) -> DataFrame:
    """Every channel of every protocol.

    Args:
        frames: Rows of ``mainstem.capture``, batch or streaming.

    Returns:
        A row for each channel, with the columns of ``TABLES["channels"]``.

    Example:
        >>> channels(capture).orderBy("wire_bytes", ascending=False).show()
    """
    return _fold(CHANNEL_FOLD, frames, CHANNELS)


def credits(frames: DataFrame) -> DataFrame:  # noqa: A001 - the protocol's own word
    """The credit that bymux peers gave one another.

    Args:
        frames: Rows of ``mainstem.capture`` with ``bymuxPorts``, batch or streaming.

    Returns:
        A row for each Credit frame, with the columns of ``TABLES["credits"]``.

    Example:
        >>> credits(capture).where("exhausted_ns > 0").show()
    """
    return _fold(MUX_FOLD, frames, CREDITS)


def rations(frames: DataFrame) -> DataFrame:
    """The rations that Jmux peers gave one another.

    Args:
        frames: Rows of ``mainstem.capture`` with ``jmuxPorts``, batch or streaming.

    Returns:
        A row for each ration, with the columns of ``TABLES["rations"]``.

    Example:
        >>> rations(capture).where("exhausted_ns > 0").show()
    """
    return _fold(MUX_FOLD, frames, RATIONS)


def mux_streams(frames: DataFrame) -> DataFrame:
    """The streams of bymux and the sessions of Jmux connections.

    Args:
        frames: Rows of ``mainstem.capture`` with ``bymuxPorts`` or ``jmuxPorts``, batch or streaming.

    Returns:
        A row for each stream or session, with the columns of ``TABLES["mux_streams"]``.

    Example:
        >>> mux_streams(capture).groupBy("protocol", "status").count().show()
    """
    return _fold(MUX_FOLD, frames, MUX_STREAMS)


def requests(frames: DataFrame) -> DataFrame:
    """The requests of Jmux connections, how long each took and how it ended.

    Args:
        frames: Rows of ``mainstem.capture`` with ``jmuxPorts``, batch or streaming.

    Returns:
        A row for each request, with the columns of ``TABLES["requests"]``.

    Example:
        >>> requests(capture).orderBy("latency_ns", ascending=False).show()
    """
    return _fold(MUX_FOLD, frames, REQUESTS)


def aqueduct_channels(frames: DataFrame) -> DataFrame:
    """The channels of Aqueduct connections.

    Args:
        frames: Rows of ``mainstem.capture`` of traces of Aqueduct, batch or streaming.

    Returns:
        A row for each channel, with the columns of ``TABLES["aqueduct_channels"]``.

    Example:
        >>> aqueduct_channels(traces).where("status = 'lost'").show()
    """
    return _fold(AQUEDUCT_FOLD, frames, AQUEDUCT_CHANNELS)


def problems(rows: DataFrame) -> DataFrame:
    """What is wrong with captures or recordings, and the errors that peers reported.

    Packets that were passed over are counted too: in batch in one row for each file and reason; in streaming in rows whose
    ``packets`` add up to it, as each task of a micro-batch has its own.

    Args:
        rows: Rows of ``mainstem.capture``, or of ``mainstem.recording`` with the option ``rows=problems``.

    Returns:
        A row for each problem, with the columns of ``TABLES["problems"]``.

    Example:
        >>> problems(capture).groupBy("kind").count().show()
    """
    if "recording_id" not in rows.columns:
        table = _selected(rows, PROBLEMS)
        return table if table.isStreaming else _by_file(table)
    own = ("kind", "recording_id", "position", "text")
    columns = ((column.name, column.type) for column in PROBLEMS.columns)
    return rows.selectExpr(*(f"{name if name in own else f'cast(null as {kind})'} as {name}" for name, kind in columns))


def _by_file(table: DataFrame) -> DataFrame:
    """Problems with one row of PASSED_OVER for each file and reason; those of the tasks are added up, the others stay."""
    from pyspark.sql import functions as f

    names = PROBLEMS.names
    summed = {"packet": f.max("packet"), "packets": f.sum("packets")}
    each = table.withColumn("each", f.expr("if(kind = 'PASSED_OVER', null, monotonically_increasing_id())"))
    grouped = each.groupBy("each", *(name for name in names if name not in summed))
    return grouped.agg(*(column.alias(name) for name, column in summed.items())).select(*names)


OF_FRAMES: dict[str, Callable[[DataFrame], DataFrame]] = {
    function.__name__: function
    for function in (
        frames, sessions, gaps, naks, retransmits, status_messages, rtt, flow_control, channels, credits, rations,
        mux_streams, requests, aqueduct_channels, problems,
    )
}  # fmt: skip
"""The functions that take what ``mainstem.capture`` reads, by name."""


def latest(rows: DataFrame, identity: Iterable[str]) -> DataFrame:
    """The last form of each row of what a streaming query wrote of a stateful table.

    Args:
        rows: What the query wrote, read in batch.
        identity: The columns that identify a row: ``TABLES[name].identity``.

    Returns:
        The row with the highest ``revision`` for each identity, with the same columns.

    Example:
        >>> latest(spark.read.parquet("gaps"), TABLES["gaps"].identity).show()
    """
    from pyspark.sql import functions as f

    names = rows.columns
    newest = rows.groupBy(*identity).agg(f.max_by(f.struct(*names), f.col(REVISION.name)).alias("newest"))
    return newest.select("newest.*").select(*names)


_REPEAT_KEY = ("stream_id", "reserved_value")


def without_repeats(recordings: DataFrame, *, within: str = "1 hour", timestamp: str = "recorded_at") -> DataFrame:
    """The messages that ``mainstem.channel`` sent, each once.

    A message is identified by its stream and by the key in its reserved value (``mainstem.repeats``). One query may write to
    a stream. A streaming DataFrame gets a watermark on the time: a repeat that comes later than ``within`` is kept.

    Args:
        recordings: Rows of ``mainstem.recording`` or ``mainstem.live``, with the columns ``stream_id`` and
            ``reserved_value`` and, when streaming, the time.
        within: In streaming, how long repeats are remembered, as Spark writes intervals. Batch remembers all.
        timestamp: In streaming, the column of the time. For recordings that keep no times: ``timestamp``, of the option
            ``timestampFrom``.

    Returns:
        The same rows without the repeats.

    Example:
        >>> without_repeats(recordings(spark, "/data/recordings")).count()
    """
    if recordings.isStreaming:
        return recordings.withWatermark(timestamp, within).dropDuplicatesWithinWatermark(list(_REPEAT_KEY))
    return recordings.dropDuplicates(list(_REPEAT_KEY))
