"""Pushdown: the bounds within which a condition can be true, and the options of ``mainstem.recording`` that read no more.

The bounds come from Spark's own optimized plan of the condition.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from mainstem.recording.rows.bounds import EVERYTHING, IDS, RANGES, PredicateBounds, Range, among, compared
from mainstem.spark.sources.options import time_ns_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from mainstem.recording.rows.bounds import Ids

OPERATORS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# Texts that Spark takes for times when a query runs.
MOVING_TEXTS = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
ID_OPTIONS = {"recording_id": "recordingId", "stream_id": "streamId", "session_id": "sessionId"}
RANGE_OPTIONS = {"position": ("fromPosition", "toPosition"), "recorded_at": ("fromTime", "toTime")}
# What no recording has as its id.
NO_RECORDING = "-1"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds_of(filtered: DataFrame) -> PredicateBounds:
    """The bounds of a DataFrame that is a scan and filters above it. Spark has typed and folded the condition by then.

    Everything where Spark's plan cannot be read, as over Spark Connect.
    """
    if not hasattr(filtered, "_jdf"):
        return EVERYTHING
    execution = filtered._jdf.queryExecution()
    # The optimiser makes a number of what depends on the time of the query, and a later query has another. Then only what
    # the condition has as plain numbers is sure.
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
        # Commas between them: whole numbers, as Spark keeps times too.
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
    # A value that is not known could be any.
    if column is None or any(value is None for value in values):
        return EVERYTHING
    return among(column, (value for value in values if value is not None))


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _column(expression: Any) -> str | None:
    if _name(expression) != "AttributeReference":
        return None
    # Spark names a column as the condition writes it.
    name = str(expression.name()).lower()
    return name if name in IDS or name in RANGES else None


def _value(expression: Any) -> int | None:
    """The number of a literal; a time in microseconds, as Spark keeps it."""
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
            # Ranges of options end before their end.
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
