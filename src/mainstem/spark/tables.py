"""Functions that derive tables from DataFrames, in the same way for batch and streaming.

Each function takes the frames of ``mainstem.capture``. ``messages``, ``sessions`` and ``problems`` also take rows of
``mainstem.recording``. In batch, each row appears once. In streaming (output mode ``append``), a changed row of a stateful table
appears again with a higher ``revision``; ``latest(rows, TABLES[name].identity)`` keeps the last version of each row. ``TABLES``
describes the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import needs_extras

with needs_extras():
    from mainstem.analysis.folds.fold import REVISION
    from mainstem.analysis.tables import (
        CHANNEL_OF_AERON,
        MESSAGES,
        PROBLEMS,
        RECORDED_FRAME_FOLD,
        RECORDED_SESSIONS,
        SELECTIONS,
        SESSIONS,
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
    "drop_duplicates",
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
]


def select(folded: DataFrame, fold: Fold, table: Table) -> DataFrame:
    """Select one table from the result of ``fold_frames.apply``."""

    def expression(column: Column, place: str) -> str:
        if not place:
            return f"cast({repr('') if column.type == 'string' else 0} as {column.type}) as {column.name}"
        return f"timestamp_micros({place} div 1000) as time" if column is TIME else f"{place} as {column.name}"

    columns = (expression(*source) for source in sources(table, fold))
    return folded.where(f"kind = '{table.name}'").selectExpr(*columns)


def _selected(rows: DataFrame, table: Table) -> DataFrame:
    selection = SELECTIONS[table.name]
    return rows.where(selection.where).selectExpr(*selection.expressions(table))


def _folded(rows: DataFrame, table: Table, fold: Fold | None = None) -> DataFrame:
    fold = fold or table.fold
    assert fold is not None, f"{table.name} is not a table of a fold"
    # Imported here, so that pyarrow is loaded only when a table is made.
    from mainstem.spark.fold_frames import apply

    return select(apply(fold, rows, table.name), fold, table)


def messages(recordings: DataFrame) -> DataFrame:
    """Select the columns of the table ``messages`` from recordings.

    Args:
        recordings: Rows of ``mainstem.recording`` or ``mainstem.live``, batch or streaming.

    Returns:
        A row for each message, with the columns of ``TABLES["messages"]``.

    Example:
        >>> messages(spark.read.format("mainstem.recording").load("/data/recordings")).count()
    """
    return recordings.select(*MESSAGES.names)


def frames(capture: DataFrame) -> DataFrame:
    """Add the column ``channel`` to the frames of captures. If the payload was read, it is kept.

    Args:
        capture: Rows of ``mainstem.capture``, batch or streaming.

    Returns:
        The same rows with the column ``channel``, which is null unless the protocol is Aeron.

    Example:
        >>> frames(capture).where("channel = '10.0.0.2:20121'").show()
    """
    return capture.selectExpr(*capture.columns, f"{CHANNEL_OF_AERON} as channel")


def sessions(rows: DataFrame) -> DataFrame:
    """Find the sessions of Aeron streams: in captures, one per destination of the data; in recordings, the recorded ones.

    Args:
        rows: Rows of ``mainstem.capture``, or messages or frames of ``mainstem.recording``.

    Returns:
        A row for each session: the columns of ``TABLES["sessions"]``, or those of ``TABLES["recorded_sessions"]``.

    Example:
        >>> sessions(capture).select("session_id", "channel", "lost_bytes").show()
    """
    if "recording_id" in rows.columns:
        return _folded(rows, RECORDED_SESSIONS, RECORDED_FRAME_FOLD if "type" in rows.columns else None)
    return _folded(rows, SESSIONS)


def _function(name: str) -> Callable[[DataFrame], DataFrame]:
    """Return the function that derives a table from frames."""
    table = TABLES[name]

    def function(frames: DataFrame) -> DataFrame:
        return _selected(frames, table) if name in SELECTIONS else _folded(frames, table)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Of rows of ``mainstem.capture``, batch or streaming: {table.meaning}.

    Args:
        frames: The rows.

    Returns:
        A DataFrame with the columns of ``TABLES[{name!r}]``.
    """
    return function


gaps = _function("gaps")
"""Lost ranges of Aeron streams, and whether they were repaired: ``gaps(capture).orderBy("repair_ns").show()``."""
naks = _function("naks")
"""The NAKs of Aeron streams: ``naks(capture).groupBy("receiver").sum("length").show()``."""
retransmits = _function("retransmits")
"""Data of Aeron streams that was sent again or arrived late, with the reason."""
status_messages = _function("status_messages")
"""The status messages of Aeron streams."""
rtt = _function("rtt")
"""Round trips of RTTM requests, of NAKs and their repairs, and of pings."""
flow_control = _function("flow_control")
"""Pauses of Aeron publishers, with the cause of each."""
channels = _function("channels")
"""The totals of each channel, for all protocols."""
credits = _function("credits")  # noqa: A001 - the protocol's own word
"""The credit that bymux peers granted; needs ``bymuxPorts``."""
rations = _function("rations")
"""The rations that Jmux peers granted; needs ``jmuxPorts``."""
mux_streams = _function("mux_streams")
"""The streams of bymux and the sessions of Jmux connections; needs ``bymuxPorts`` or ``jmuxPorts``."""
requests = _function("requests")
"""The requests of Jmux connections, with duration and outcome; needs ``jmuxPorts``."""
aqueduct_channels = _function("aqueduct_channels")
"""The channels of Aqueduct connections, from their traces."""


def problems(rows: DataFrame) -> DataFrame:
    """Find problems in captures or recordings, and errors that peers reported.

    Packets that were skipped are only counted. In batch, there is one row for each file and reason. In streaming, there is one for
    each task of a micro-batch, and the ``packets`` of these rows add up.

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
    """Add up the PASSED_OVER rows of all tasks by file and reason. Other problems are unchanged."""
    from pyspark.sql import functions as f

    names = PROBLEMS.names
    summed = {"packet": f.max("packet"), "packets": f.sum("packets")}
    each = table.withColumn("each", f.expr("if(kind = 'PASSED_OVER', null, monotonically_increasing_id())"))
    grouped = each.groupBy("each", *(name for name in names if name not in summed))
    return grouped.agg(*(column.alias(name) for name, column in summed.items())).select(*names)


OF_FRAMES: dict[str, Callable[[DataFrame], DataFrame]] = {
    name: globals()[name] for name in TABLES if name not in ("messages", "recorded_sessions")
}
"""The functions that take rows of ``mainstem.capture``, by name."""


def latest(rows: DataFrame, identity: Iterable[str]) -> DataFrame:
    """Keep the last version of each row of a stateful table that a streaming query wrote.

    Args:
        rows: The written rows, read in batch.
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


def drop_duplicates(recordings: DataFrame, *, within: str = "1 hour", timestamp: str = "recorded_at") -> DataFrame:
    """Drop duplicate messages that ``mainstem.channel`` sent more than once.

    A message is identified by its stream and the key in its reserved value (``mainstem.message_keys``). A streaming DataFrame gets
    a watermark on the time; duplicates that arrive later than ``within`` are kept.

    Args:
        recordings: Rows of ``mainstem.recording`` or ``mainstem.live``, with the columns ``stream_id`` and
            ``reserved_value`` and, when streaming, the time.
        within: In streaming, how long to remember keys, as a Spark interval. Batch remembers all.
        timestamp: In streaming, the column with the time. For recordings without times, use ``timestamp``, which the option
            ``timestampFrom`` adds.

    Returns:
        The rows without duplicates.

    Example:
        >>> drop_duplicates(recordings(spark, "/data/recordings")).count()
    """
    if recordings.isStreaming:
        return recordings.withWatermark(timestamp, within).dropDuplicatesWithinWatermark(list(_REPEAT_KEY))
    return recordings.dropDuplicates(list(_REPEAT_KEY))
