"""Reads recordings as a DataFrame, pruned by a condition before anything is opened."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.recording.rows.filters import EVERYTHING, IDS, RANGES, PredicateBounds, Range, among, compared
from mainstem.spark.sources.options import parse_options, time_ns_of
from mainstem.spark.sources.parallelism import parallelism_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """Read the rows of recordings that satisfy a condition, and open little else.

    Bounds on ``recording_id``, ``stream_id``, ``session_id``, ``position`` and ``recorded_at`` become options of the source
    when this is called. The condition is also applied to the rows, so it may contain anything. Parts that depend on the time of
    the query, such as ``now()``, prune nothing.

    Args:
        spark: The session.
        path: The location as driver and executors see it: a directory, a URL, a pattern, or a list of them.
        where: The condition, as SQL or a ``Column``. None: all rows.
        schema: The columns to read, including those of the condition. None: all.
        streaming: Whether to return a streaming DataFrame.
        **options: Options of ``mainstem.recording``, which narrow further.

    Returns:
        A DataFrame, which may be used in any number of queries.

    Raises:
        ConfigurationError: An option does not exist or has an invalid value.

    Example:
        >>> df = recordings(spark, "/data/recordings", where="stream_id = 5 and position < 1000000")
    """

    def scan(reader: Any, pruning: dict[str, str]) -> DataFrame:
        shaped = reader if schema is None else reader.schema(schema)
        rows: DataFrame = shaped.format(FORMAT).options(**defaults | options | pruning | location).load()
        return rows

    location = (
        {"path": str(path)} if isinstance(path, str | Path) else {"paths": json.dumps([str(each) for each in path])}
    )
    # Executors may have started since the source was registered.
    parallelism = parallelism_of(spark)
    defaults = {} if parallelism is None else {"parallelism": str(parallelism)}

    start = spark.readStream if streaming else spark.read
    if where is None:
        return scan(start, {})
    texts = {name: str(value) for name, value in options.items()}
    # Report wrong options here; with a schema, Spark would fail later with another error.
    parse_options(texts | location)
    # No condition on an unknown time is true.
    has_times = any(name.lower() in ("fromtime", "totime") for name in texts)
    skipping = {} if has_times else {"unknownTimes": "skip"}
    pruning = skipping | pruned_options(bounds_of(scan(spark.read, {}).where(where)), texts)
    replaced = {name.lower() for name in pruning}
    options = {name: value for name, value in options.items() if name.lower() not in replaced}
    return scan(start, pruning).where(where)


# -- pushdown ----------------------------------------------------------------------------------------------------------
#
# The bounds come from Spark's own optimized plan of the condition.


OPERATORS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# Texts that Spark interprets as times when a query runs.
MOVING_TEXTS = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
ID_OPTIONS = {"recording_id": "recordingId", "stream_id": "streamId", "session_id": "sessionId"}
RANGE_OPTIONS = {"position": ("fromPosition", "toPosition"), "recorded_at": ("fromTime", "toTime")}
# No recording has this id.
NO_RECORDING = "-1"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds_of(filtered: DataFrame) -> PredicateBounds:
    """The bounds of a DataFrame with filters above a scan; everything if Spark's plan cannot be read, as over Spark Connect."""
    if not hasattr(filtered, "_jdf"):
        return EVERYTHING
    execution = filtered._jdf.queryExecution()
    # The optimizer replaces expressions that depend on the query's time by numbers, which differ in a later query. Then only
    # plain numbers of the condition are certain.
    moves = _depends_on_its_time(filtered.sparkSession, execution.analyzed())
    plan, bounds = execution.analyzed() if moves else execution.optimizedPlan(), EVERYTHING
    while plan.children().size() == 1:
        if _name(plan) == "Filter":
            bounds = bounds & _bounds(plan.condition())
        plan = plan.children().apply(0)
    return bounds


def _depends_on_its_time(spark: SparkSession, analyzed: Any) -> bool:
    """Whether the condition holds ``now()``, ``current_date``, or compares with a text such as ``'today'``."""
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
        # Integers separated by commas; Spark stores times as integers too.
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
    # An unknown value could be anything.
    if column is None or any(value is None for value in values):
        return EVERYTHING
    return among(column, (value for value in values if value is not None))


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _column(expression: Any) -> str | None:
    if _name(expression) != "AttributeReference":
        return None
    # Spark keeps the case of the condition.
    name = str(expression.name()).lower()
    return name if name in IDS or name in RANGES else None


def _value(expression: Any) -> int | None:
    """The number of a literal; a time in microseconds."""
    if _name(expression) != "Literal":
        return None
    value = expression.value()
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def pruned_options(bounds: PredicateBounds, options: Mapping[str, str]) -> dict[str, str]:
    """The options that read no more than these bounds and ``options`` allow."""
    lowered = {key.lower(): value for key, value in options.items()}
    pruned: dict[str, str] = {}
    for name, option in ID_OPTIONS.items():
        chosen: Ids = getattr(bounds, name)
        if chosen is None:
            continue
        if before := lowered.get(option.lower()):
            chosen = chosen & {int(part) for part in before.split(",") if part.strip()}
        if not chosen:
            return {"recordingId": NO_RECORDING}
        pruned[option] = ",".join(map(str, sorted(chosen)))
    for name, (start, end) in RANGE_OPTIONS.items():
        both: Range = getattr(bounds, name) & _range_of(name, lowered.get(start.lower()), lowered.get(end.lower()))
        if both.low is not None:
            pruned[start] = _text(name, both.low)
        if both.high is not None:
            # The ends of the options are exclusive.
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
