"""Tables as DataFrame functions: typed, documented, the same in batch and streaming.

Each takes the frames of ``mainstem.capture``; ``messages``, ``sessions`` and ``problems`` also take rows of
``mainstem.recording``. In batch a row comes once. In streaming (output mode ``append``) a row of a stateful table comes again
when it has changed, with a higher ``revision``; ``latest(rows, TABLES[name].identity)`` keeps the last form of each. ``TABLES``
describes the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import needs_extras

with needs_extras():
    from mainstem.analysis.folds.fold import REVISION
    from mainstem.analysis.tables import (
        AQUEDUCT_CHANNELS,
        AQUEDUCT_FOLD,
        CHANNEL_FOLD,
        CHANNEL_OF_AERON,
        CHANNELS,
        CREDITS,
        FLOW_CONTROL,
        GAPS,
        MESSAGES,
        MUX_FOLD,
        MUX_STREAMS,
        NAKS,
        PATH_FOLD,
        PROBLEMS,
        RATIONS,
        RECORDED_FRAME_FOLD,
        RECORDED_SESSIONS,
        RECORDING_FOLD,
        REQUESTS,
        RETRANSMITS,
        ROUND_TRIP_FOLD,
        RTT,
        SELECTIONS,
        SESSIONS,
        STATUS_MESSAGES,
        TABLES,
        TIME,
        Table,
        sources,
    )

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from mainstem.analysis.folds.fold import Fold
    from mainstem.capture.schema import Column

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
    from mainstem.spark.fold_frames import apply

    return select(apply(fold, rows, table.name), fold, table)


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
