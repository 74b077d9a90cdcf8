from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.errors import ConfigurationError
from mainstem.recording.rows.filters import EVERYTHING, PredicateBounds, Range, among, compared
from mainstem.spark.filtered_read import pruned_options
from mainstem.spark.sources.options import parse_options

COLUMNS = ("recording_id", "stream_id", "session_id", "position", "recorded_at")
TESTS = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
small = st.integers(0, 4)
leaves = st.one_of(
    st.tuples(st.just("compare"), st.sampled_from(COLUMNS), st.sampled_from(sorted(TESTS)), small),
    st.tuples(st.just("in"), st.sampled_from(COLUMNS), st.lists(small, max_size=3)),
    st.tuples(st.just("unknown"), st.booleans()),
)
conditions = st.recursive(
    leaves, lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner), max_leaves=8
)  # fmt: skip
rows = st.fixed_dictionaries(dict.fromkeys(COLUMNS, small))


def bounds(condition: Any) -> PredicateBounds:
    match condition:
        case ("compare", column, operator, value):
            return compared(column, operator, value)
        case ("in", column, values):
            return among(column, values)
        case ("unknown", _):
            return EVERYTHING
        case ("and", left, right):
            return bounds(left) & bounds(right)
        case _:
            return bounds(condition[1]) | bounds(condition[2])


def holds(condition: Any, row: dict[str, int]) -> bool:
    match condition:
        case ("compare", column, operator, value):
            return bool(TESTS[operator](row[column], value))
        case ("in", column, values):
            return row[column] in values
        case ("unknown", value):
            return bool(value)
        case ("and", left, right):
            return holds(left, row) and holds(right, row)
        case _:
            return holds(condition[1], row) or holds(condition[2], row)


def is_read(options: dict[str, str], row: dict[str, int]) -> bool:
    """Return whether the source reads that row with these options."""
    parsed = parse_options({"path": "/nowhere", **options})
    ids = ((parsed.recording_ids, "recording_id"), (parsed.stream_ids, "stream_id"), (parsed.session_ids, "session_id"))
    inside = all(not wanted or row[name] in wanted for wanted, name in ids)
    since, until = parsed.from_time_ns, parsed.to_time_ns
    inside &= (since is None or row["recorded_at"] * 1000 >= since) and (
        until is None or row["recorded_at"] * 1000 < until
    )
    first, last = parsed.from_position, parsed.to_position
    return inside and (first is None or row["position"] >= first) and (last is None or row["position"] < last)


@given(conditions, rows)
def test_no_row_of_which_a_condition_is_true_is_left_out(condition: Any, row: dict[str, int]) -> None:
    if holds(condition, row):
        assert is_read(pruned_options(bounds(condition), {}), row)


@given(leaves.filter(lambda leaf: leaf[0] == "compare"), leaves.filter(lambda leaf: leaf[0] == "compare"), rows)
def test_known_comparisons_exclude_all_other_rows(one: Any, other: Any, row: dict[str, int]) -> None:
    known = [c for c in (one, other) if c[1] in ("position", "recorded_at") or c[2] == "="]
    if not all(holds(c, row) for c in known):
        assert not is_read(pruned_options(bounds(one) & bounds(other), {}), row)


@given(conditions, rows, st.fixed_dictionaries({}, optional={"STREAMID": st.just("1,2"), "toPosition": st.just("3")}))
def test_options_of_the_user_narrow_further(condition: Any, row: dict[str, int], options: dict[str, str]) -> None:
    made = pruned_options(bounds(condition), options)
    kept = {k: v for k, v in options.items() if k.lower() not in {name.lower() for name in made}}
    if is_read({**kept, **made}, row):
        assert is_read(options, row)
    if holds(condition, row) and is_read(options, row):
        assert is_read({**kept, **made}, row)


def test_a_time_out_of_range_becomes_the_last_in_range() -> None:
    far = pruned_options(PredicateBounds(recorded_at=Range(-(1 << 62), 1 << 62)), {})
    assert [datetime.fromisoformat(text).year for text in far.values()] == [1, 9999]
    assert datetime.fromisoformat(far["fromTime"]).tzinfo == UTC


@pytest.mark.parametrize("text", ["-1", "soon", ""])
def test_an_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="must be a position"):
        parse_options({"path": "/nowhere", "fromPosition": text})
