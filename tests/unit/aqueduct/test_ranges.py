"""The range set, compared with a plain set of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainstem._core.aqueduct.ranges import RangeSet

NUMBER = st.integers(0, 40)
STEP = st.one_of(
    st.tuples(st.just("add"), NUMBER),
    st.tuples(st.just("remove"), NUMBER),
    st.tuples(st.just("below"), NUMBER),
    st.tuples(st.just("range"), NUMBER, NUMBER),
)


@given(st.lists(STEP, max_size=40))
def test_behaves_like_a_set_of_numbers_and_merges_adjacent_ranges(steps: list[tuple[object, ...]]) -> None:
    ranges, model = RangeSet(), set()
    for name, *numbers in steps:
        first = int(str(numbers[0]))
        if name == "add":
            assert ranges.add(first) == (first not in model)
            model.add(first)
        elif name == "remove":
            ranges.remove(first)
            model.discard(first)
        elif name == "below":
            ranges.discard_below(first)
            model = {number for number in model if number >= first}
        else:
            second = int(str(numbers[1]))
            ranges.add_range(first, second)
            model |= set(range(first, second))
        assert {number for start, stop in ranges for number in range(start, stop)} == model
        stops = [stop for _, stop in ranges]
        assert all(stop < start for stop, (start, _) in zip(stops, list(ranges)[1:], strict=False))
        assert ranges.top == max(model, default=-1) + 1
        for number in range(42):
            assert (number in ranges) == (number in model)
            missing = ranges.first_missing(number)
            assert missing not in model
            assert all(between in model for between in range(number, missing))


def test_drops_its_oldest_range() -> None:
    ranges = RangeSet()
    for number in (1, 5, 9):
        ranges.add(number)
    ranges.drop_oldest()
    assert list(ranges) == [(5, 6), (9, 10)]
