"""Reads recordings as a DataFrame, pruned by a condition before anything is opened."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from mainstem.recording.rows.filters import EVERYTHING, IDS, RANGES, PredicateBounds, Range, among, compared
from mainstem.spark.sources.options import NO_RECORDING, location_texts, parse_options, time_ns_of
from mainstem.spark.sources.parallelism import parallelism_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mainstem.recording.rows.filters import Ids

FORMAT = "mainstem.recording"


def recordings(
    spark: SparkSession,
    path: Path | str | Sequence[Path | str],
    *,
    where: Column | str | None = None,
    schema: StructType | str | None = None,
    streaming: bool = False,
    **options: Any,
) -> DataFrame:
    """Read the rows of recordings that match a condition, and skip as much other data as possible.

    When called, this converts bounds on ``recording_id``, ``stream_id``, ``session_id``, ``position`` and ``recorded_at`` to
    options of the source. Spark also applies the condition to the rows, so it may contain any expression. Parts that depend on the
    time of the query, such as ``now()``, prune nothing.

    Args:
        spark: The Spark session.
        path: The location as driver and executors see it: a directory, a URL, a pattern, or a list of them.
        where: The condition, as SQL or a ``Column``. None selects all rows.
        schema: The columns to read, including those in the condition. None reads all.
        streaming: Whether to return a streaming DataFrame.
        **options: Options of ``mainstem.recording``, which restrict the rows further.

    Returns:
        A DataFrame. It can be used in any number of queries.

    Raises:
        ConfigurationError: An option does not exist or has an invalid value.

    Example:
        >>> df = recordings(spark, "/data/recordings", where="stream_id = 5 and position < 1000000")
    """

    def scan(reader: Any, pruning: dict[str, str]) -> DataFrame:
        shaped = reader if schema is None else reader.schema(schema)
        rows: DataFrame = shaped.format(FORMAT).options(**defaults | options | pruning | location).load()
        return rows

    location = location_texts(path)
    # Executors may have started after the source was registered.
    parallelism = parallelism_of(spark)
    defaults = {} if parallelism is None else {"parallelism": str(parallelism)}

    start = spark.readStream if streaming else spark.read
    if where is None:
        return scan(start, {})
    texts = {name: str(value) for name, value in options.items()}
    # Report invalid options here. If there is a schema, Spark would fail later with a less useful error.
    parse_options(texts | location)
    # A condition on an unknown time is never true, so rows without a time can be skipped.
    has_times = any(name.lower() in ("fromtime", "totime") for name in texts)
    skipping = {} if has_times else {"unknownTimes": "skip"}
    pruning = skipping | pruned_options(bounds_of(scan(spark.read, {}).where(where)), texts)
    replaced = {name.lower() for name in pruning}
    options = {name: value for name, value in options.items() if name.lower() not in replaced}
    return scan(start, pruning).where(where)


# -- pushdown ----------------------------------------------------------------------------------------------------------
#
# Spark's optimized plan of the condition gives the bounds.


OPERATORS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# Strings that Spark interprets as times when a query runs.
MOVING_TEXTS = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
ID_OPTIONS = {"recording_id": "recordingId", "stream_id": "streamId", "session_id": "sessionId"}
RANGE_OPTIONS = {"position": ("fromPosition", "toPosition"), "recorded_at": ("fromTime", "toTime")}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds_of(filtered: DataFrame) -> PredicateBounds:
    """Return the bounds of a DataFrame with filters above a scan, or no bounds if the plan cannot be read (Spark Connect)."""
    if not hasattr(filtered, "_jdf"):
        return EVERYTHING
    execution = filtered._jdf.queryExecution()
    # The optimizer replaces expressions that depend on the time of the query with constants, but a later query would get others.
    # So if there are any, use only the constants that were in the condition itself.
    moves = _depends_on_its_time(filtered.sparkSession, execution.analyzed())
    plan, bounds = execution.analyzed() if moves else execution.optimizedPlan(), EVERYTHING
    while plan.children().size() == 1:
        if _name(plan) == "Filter":
            bounds = bounds & _bounds(plan.condition())
        plan = plan.children().apply(0)
    return bounds


def _depends_on_its_time(spark: SparkSession, analyzed: Any) -> bool:
    """Return whether the condition contains ``now()`` or ``current_date``, or a string such as ``'today'``."""
    jvm: Any = spark._jvm
    current = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    said = analyzed.condition().sql() if _name(analyzed) == "Filter" else ""
    return bool(analyzed.containsPattern(current)) or MOVING_TEXTS.search(said) is not None


def _bounds(expression: Any) -> PredicateBounds:
    name = _name(expression)
    if name in ("And", "Or"):
        left, right = (_bounds(expression.children().apply(i)) for i in (0, 1))
        return left & right if name == "And" else left | right
    if name in OPERATORS:
        return _comparison(OPERATORS[name], *(expression.children().apply(i) for i in (0, 1)))
    if name == "In":
        return _among(expression.children())
    if name == "InSet":
        column = _column(expression.child())
        # Integers separated by commas. Spark stores times as integers too.
        texts = expression.hset().mkString(",").split(",")
        return among(column, (int(text) for text in texts if text != "null")) if column else EVERYTHING
    return EVERYTHING


def _comparison(operator: str, left: Any, right: Any) -> PredicateBounds:
    column, value = _column(left), _value(right)
    if column is None:
        column, value, operator = _column(right), _value(left), TURNED[operator]
    return EVERYTHING if column is None or value is None else compared(column, operator, value)


def _among(children: Any) -> PredicateBounds:
    column = _column(children.apply(0))
    values = [_value(children.apply(i)) for i in range(1, children.size())]
    # The value is not a constant, so the column can match anything.
    if column is None or any(value is None for value in values):
        return EVERYTHING
    return among(column, (value for value in values if value is not None))


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _column(expression: Any) -> str | None:
    if _name(expression) != "AttributeReference":
        return None
    # Spark keeps the case that the condition uses.
    name = str(expression.name()).lower()
    return name if name in IDS or name in RANGES else None


def _value(expression: Any) -> int | None:
    """Return the number of a literal, or None. A time is in microseconds."""
    if _name(expression) != "Literal":
        return None
    value = expression.value()
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def pruned_options(bounds: PredicateBounds, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that restrict a read to these bounds and to those that ``options`` already set."""
    lowered = {key.lower(): value for key, value in options.items()}
    pruned: dict[str, str] = {}
    for name, option in ID_OPTIONS.items():
        chosen: Ids = getattr(bounds, name)
        if chosen is None:
            continue
        if before := lowered.get(option.lower()):
            chosen = chosen & {int(part) for part in before.split(",") if part.strip()}
        elif name == "recording_id":
            chosen = chosen | {NO_RECORDING}
        if not chosen:
            return {"recordingId": str(NO_RECORDING)}
        pruned[option] = ",".join(map(str, sorted(chosen)))
    for name, (start, end) in RANGE_OPTIONS.items():
        both: Range = getattr(bounds, name) & _range_of(name, lowered.get(start.lower()), lowered.get(end.lower()))
        if both.low is not None:
            pruned[start] = _text(name, both.low)
        if both.high is not None:
            # The end options are exclusive.
            pruned[end] = _text(name, both.high + 1)
    return pruned


def _range_of(name: str, start: str | None, end: str | None) -> Range:
    def number(text: str | None) -> int | None:
        if text is None:
            return None
        return int(text) if name == "position" else time_ns_of(text, name) // 1000

    high = number(end)
    return Range(number(start), None if high is None else high - 1)


def _text(name: str, value: int) -> str:
    if name == "position":
        return str(max(value, 0))
    try:
        return (EPOCH + timedelta(microseconds=value)).isoformat()
    except OverflowError:
        return (datetime.min if value < 0 else datetime.max).replace(tzinfo=UTC).isoformat()
