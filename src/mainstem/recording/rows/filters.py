"""Row filters: a condition, and the bounds outside of which it cannot be true.

A condition is a predicate of Polars, or filters as in pyarrow. A filter is ``(column, operator, value)`` with one of the operators
``= == != < <= > >= in``, ``not in``. A list of filters is true if all of them are true. A list of such lists is true if one of the
lists is. A ``pyarrow.compute.Expression`` selects rows without bounds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from numbers import Integral, Real
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from mainstem._internal.units import parse_moment_ns, parse_time
from mainstem.errors import ConfigurationError, needs_extras
from mainstem.recording.rows.schema import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import polars as pl


# -- bounds of a condition ---------------------------------------------------------------------------------------------
#
# Bounds can be too wide but never too narrow: the condition is applied to the rows again.


Ids = frozenset[int] | None
"""Allowed integers; None allows all of them."""

IDS = ("recording_id", "stream_id", "session_id")
RANGES = ("position", "recorded_at")


@dataclass(frozen=True)
class Range:
    """Integers from ``low`` to ``high``, inclusive. None means unbounded."""

    low: int | None = None
    high: int | None = None

    def __and__(self, other: Range) -> Range:
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Range(max(lows, default=None), min(highs, default=None))

    def __or__(self, other: Range) -> Range:
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Range(low, high)


@dataclass(frozen=True)
class PredicateBounds:
    """Bounds outside of which no row matches. ``recorded_at`` is in microseconds since the epoch."""

    recording_id: Ids = None
    stream_id: Ids = None
    session_id: Ids = None
    position: Range = Range()
    recorded_at: Range = Range()

    def __and__(self, other: PredicateBounds) -> PredicateBounds:
        return self._joined(other, _both, and_)

    def __or__(self, other: PredicateBounds) -> PredicateBounds:
        return self._joined(other, _either, or_)

    def _joined(self, other: PredicateBounds, ids: Callable[[Ids, Ids], Ids], ranges: Any) -> PredicateBounds:
        joined: dict[str, Any] = {name: ids(getattr(self, name), getattr(other, name)) for name in IDS}
        joined |= {name: ranges(getattr(self, name), getattr(other, name)) for name in RANGES}
        return PredicateBounds(**joined)


EVERYTHING = PredicateBounds()


def compared(column: str, operator: str, value: int) -> PredicateBounds:
    if operator == "=":
        return among(column, [value])
    if column not in RANGES:
        return EVERYTHING
    bounds = {
        "<": Range(high=value - 1),
        "<=": Range(high=value),
        ">": Range(low=value + 1),
        ">=": Range(low=value),
    }[operator]
    return _only(column, bounds)


def among(column: str, values: Iterable[int]) -> PredicateBounds:
    """Return the bounds within which ``column in (values)`` can be true."""
    chosen = frozenset(values)
    if column in IDS:
        return _only(column, chosen)
    if column in RANGES and chosen:
        return _only(column, Range(min(chosen), max(chosen)))
    return EVERYTHING


def bounds_of_ids(ids: Mapping[str, int | None]) -> PredicateBounds:
    """Return the bounds of exactly the messages with these ids; None allows all. Raises ConfigurationError for other values."""
    return reduce(and_, (among(name, [value]) for name, _, value in filters_of_ids(ids)), EVERYTHING)


def filters_of_ids(ids: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    for name, value in ids.items():
        if value is not None and not isinstance(value, Integral):
            raise ConfigurationError(f"{name} must be an integer (got {value!r})")
    return [(name, "=", int(value)) for name, value in ids.items() if value is not None]


def _only(column: str, values: Any) -> PredicateBounds:
    return replace(EVERYTHING, **{column: values})


def _both(one: Ids, other: Ids) -> Ids:
    return other if one is None else one if other is None else one & other


def _either(one: Ids, other: Ids) -> Ids:
    return None if one is None or other is None else one | other


OPERATORS = ("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class RowFilter:
    """The requested rows. ``columns`` are the columns that the expression reads, or None if they are unknown."""

    expression: Any = None
    bounds: PredicateBounds = EVERYTHING
    columns: frozenset[str] | None = frozenset()

    def __and__(self, other: RowFilter) -> RowFilter:
        expressions = [each for each in (self.expression, other.expression) if each is not None]
        columns = None if self.columns is None or other.columns is None else self.columns | other.columns
        return RowFilter(reduce(and_, expressions) if expressions else None, self.bounds & other.bounds, columns)


def row_filter(where: Any, ids: Mapping[str, int | None] | None = None, *, frames: bool) -> RowFilter:
    """Parse ``where``, for rows that also have the given ``ids``. Raises ConfigurationError, which names the invalid part."""
    return _parsed(where, frames=frames) & _parsed(filters_of_ids(ids or {}) or None, frames=frames)


def _parsed(where: Any, *, frames: bool) -> RowFilter:
    if where is None:
        return RowFilter()
    with needs_extras():
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

    if isinstance(where, pc.Expression):
        return RowFilter(where, EVERYTHING, None)
    groups = [[_checked(each, frames=frames) for each in group] for group in _groups(where)]
    bounds = reduce(or_, (reduce(and_, (_bounds(*each) for each in group)) for group in groups))
    names = frozenset(name for group in groups for name, _, _ in group)
    return RowFilter(pq.filters_to_expression(groups), bounds, names)


def _groups(where: Any) -> Sequence[Sequence[Any]]:
    """Return lists of filters: a row matches if all filters of at least one list are true."""
    is_nested = isinstance(where, list) and bool(where) and all(isinstance(each, list) for each in where)
    groups = where if is_nested else [where]
    for group in groups:
        if not isinstance(group, list) or not group:
            raise ConfigurationError(
                f"where: {where!r} is not a list of filters such as [('stream_id', '=', 1001), ('position', '<', 4096)]"
            )
    return list(groups)


def _checked(part: Any, *, frames: bool) -> tuple[str, str, Any]:
    if not isinstance(part, tuple) or len(part) != 3:
        raise ConfigurationError(f"where: {part!r} is not a filter such as ('stream_id', '=', 1001)")
    name, operator, value = part
    columns = columns_of(frames=frames)
    if name not in columns:
        raise ConfigurationError(f"where: there is no column {name!r}; there are {', '.join(columns)}")
    kind = columns[name].kind
    if operator not in OPERATORS:
        raise ConfigurationError(f"where: the operator must be one of {', '.join(OPERATORS)} (got {operator!r})")
    if operator not in ("in", "not in"):
        return name, operator, _literal(name, kind, value)
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise ConfigurationError(f"where: {value!r} is not a list of values")
    return name, operator, [_literal(name, kind, each) for each in value]


def _literal(name: str, kind: str, value: Any) -> Any:
    if kind.startswith("int") and not isinstance(value, Real):
        raise ConfigurationError(f"where: {value!r} is not a number, but {name} is")
    if kind != "timestamp":
        return value
    if isinstance(value, str):
        return parse_time(value, name="where")
    if not isinstance(value, datetime):
        raise ConfigurationError(f"where: {value!r} is not a time, but {name} is")
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _bounds(name: str, operator: str, value: Any) -> PredicateBounds:
    if name not in IDS and name not in RANGES:
        return EVERYTHING
    if operator == "in":
        numbers = [_number(each) for each in value]
        known = [number for number in numbers if number is not None]
        return among(name, known) if len(known) == len(numbers) else EVERYTHING
    number = _number(value)
    if number is None or operator in ("!=", "not in"):
        return EVERYTHING
    return compared(name, "=" if operator == "==" else operator, number)


def _number(value: Any) -> int | None:
    """Return an integer for bounds, with a time in microseconds since the epoch; None for any other value."""
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def filters_of(
    *, since: str = "", until: str = "", now_ns: int, **ids: Sequence[int] | None
) -> list[tuple[str, str, Any]] | None:
    """Return the filters for rows with these ids, between two positions, times, or ages at ``now_ns``; None means all rows."""
    chosen: list[tuple[str, str, Any]] = [(name, "in", list(values)) for name, values in ids.items() if values]
    for text, name, operator in ((since, "`since`", ">="), (until, "`until`", "<")):
        if text.isdecimal():
            chosen.append(("position", operator, int(text)))
        elif text:
            moment_ns = parse_moment_ns(text, name=name, now_ns=now_ns)
            chosen.append(("recorded_at", operator, EPOCH + timedelta(microseconds=moment_ns // 1000)))
    return chosen or None


# -- conditions of Polars ------------------------------------------------------------------------------------------------


_POLARS_OPERATORS = {"Eq": "=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PER_US = {"Milliseconds": (1000, 1), "Microseconds": (1, 1), "Nanoseconds": (1, 1000)}


def bounds_of(predicate: pl.Expr) -> PredicateBounds:
    """Return the bounds within which a condition can be true; unbounded if the condition cannot be parsed.

    Polars serializes an expression to JSON whose layout can change between releases. Unknown parts do not narrow the bounds.
    """
    try:
        return _node_bounds(json.loads(predicate.meta.serialize(format="json")))
    except (ValueError, TypeError, KeyError, AttributeError):
        return EVERYTHING


def _node_bounds(node: Any) -> PredicateBounds:
    binary = node.get("BinaryExpr") if isinstance(node, dict) else None
    if not binary:
        return EVERYTHING
    left, operator, right = binary["left"], binary["op"], binary["right"]
    if operator in ("And", "LogicalAnd"):
        return _node_bounds(left) & _node_bounds(right)
    if operator in ("Or", "LogicalOr"):
        return _node_bounds(left) | _node_bounds(right)
    if operator not in _POLARS_OPERATORS:
        return EVERYTHING
    sign, column, value = _POLARS_OPERATORS[operator], left.get("Column"), _node_value(right)
    if column is None:
        sign, column, value = _TURNED[sign], right.get("Column"), _node_value(left)
    if value is None or (column not in IDS and column not in RANGES):
        return EVERYTHING
    return compared(column, sign, value)


def _node_value(node: Any) -> int | None:
    """Return an integer, or an exact time in microseconds since the epoch; None for any other value."""
    literal = node.get("Literal") if isinstance(node, dict) else None
    if not isinstance(literal, dict):
        return None
    kinds = literal.get("Scalar") or literal["Dyn"]
    kind, value = next(iter(kinds.items()))
    if kind == "Datetime":
        count, unit, zone = value
        factor, divisor = _PER_US[unit]
        # Polars itself rejects a time without a zone. A time between two microseconds does not narrow the bounds.
        return None if zone is None or count * factor % divisor else count * factor // divisor
    is_whole = kind.startswith(("Int", "UInt")) and isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole else None
