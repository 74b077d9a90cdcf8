"""Charts are SVG that any XML parser accepts, and show every existing value."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from mainstem.analysis.page import formatting, svg
from mainstem.analysis.page.svg import Series

NASTY = '<b> & "so"'


def parsed(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture[: picture.index("</svg>") + 6])


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in parsed(picture).iter("text")]


def test_a_chart_draws_each_series_in_its_color_and_breaks_lines_where_values_are_missing() -> None:
    lines = [
        Series(NASTY, "blue", [1.0, 2.0, None, 4.0], is_filled=True),
        Series("dots", "orange", [None, 5e6, None, 1.0], is_dots=True),
    ]
    picture = svg.chart([0.0, 1.0, 2.0, 3.0], lines, formatting.short, title=NASTY)
    root = parsed(picture)
    assert root.attrib["aria-label"] == NASTY
    kinds = [(element.tag, element.attrib["class"]) for element in root if element.attrib["class"].split()[0] != "grid"]
    assert [kind for kind in kinds if kind[0] != "text"] == [
        ("polygon", "fill blue"), ("polyline", "line blue"), ("polygon", "fill blue"), ("circle", "dot blue"),
        ("circle", "dot orange"), ("circle", "dot orange"),
    ]  # fmt: skip
    assert {"0", "2M", "4M", "6M"} <= set(texts(picture))
    assert ElementTree.fromstring(picture[picture.index("</svg>") + 6 :]).tag == "div"


def test_bars_are_as_long_as_their_values_and_negative_ones_go_left() -> None:
    picture = svg.bars([("UA", 10.0), (NASTY, -5.0), ("AA", 20.0)], lambda value: f"{value:.1f}", title="Delays")
    widths = [float(element.attrib["width"]) for element in parsed(picture).iter("rect")]
    assert widths[0] == pytest.approx(widths[2] / 2, abs=0.1)
    assert widths[1] == pytest.approx(widths[2] / 4, abs=0.1)
    assert texts(picture) == ["UA", "10.0", NASTY, "-5.0", "AA", "20.0"]
    assert parsed(svg.bars([], str, title="none")).tag == "svg"


def test_spans_stay_within_their_lanes() -> None:
    rows = [("1001", [(0.0, 1.0, "red"), (0.5, 99.0, "blue")]), (NASTY, [(0.2, 0.2, "red")])]
    picture = svg.spans(rows, 0.0, 2.0, title="Silences", series=[Series("held", "red", ())])
    bars = [element.attrib for element in parsed(picture).iter("rect") if element.attrib["class"] != "lane"]
    assert all(float(bar["x"]) + float(bar["width"]) <= svg.WIDTH for bar in bars)
    assert [bar["class"] for bar in bars] == ["bar red", "bar blue", "bar red"]


@pytest.mark.parametrize(("span", "step"), [(0, 1.0), (1, 0.5), (7, 2), (99, 50), (0.003, 0.001)])
def test_axes_step_by_one_two_or_five(span: float, step: float) -> None:
    assert svg.nice_step(span) == pytest.approx(step)


def test_the_values_of_an_axis_are_short() -> None:
    assert re.fullmatch(r"[\d.]+[kMG]?", formatting.short(1234567.0))
