"""The bounds within which a condition can be true, from what Spark's own optimiser makes of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mainstem.recording.rows.bounds import EVERYTHING, IDS, RANGES, PredicateBounds, among, compared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
