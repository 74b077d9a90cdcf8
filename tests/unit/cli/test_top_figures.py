"""Numbers as short text."""

from __future__ import annotations

import pytest

from mainstem.aeron.tools.archives import ArchiveState
from mainstem.cli._top_app import age, archive_line, bar, short, spark


@pytest.mark.parametrize(
    ("values", "width", "text"),
    [([], 3, "   "), ([0, 0], 3, " ▁▁"), ([0, 4, 8], 3, "▁▅█"), ([1, 2, 3, 4], 2, "▇█"), ([1e300, 1], 2, "█▁")],
)
def test_a_sparkline_has_the_last_values(values: list[float], width: int, text: str) -> None:
    assert spark(values, width) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "    "), (1e-9, "▏   "), (0.5, "██  "), (0.53, "██▏ "), (1, "████"), (7, "████"), (-1, "    ")],
)
def test_a_bar_is_as_long_as_its_share(share: float, text: str) -> None:
    assert bar(share, 4) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (999, "999"), (1000, "1.0k"), (123_456, "123k"), (12_345_678, "12.3M"), (2e9, "2.0G")]
)
def test_a_number_is_short(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(12, "12 ms"), (59_900, "59 s"), (61_000, "1 min 1 s"), (3_660_000, "1 h 1 min"), (90_000_000, "1 d 1 h")],
)
def test_an_age_has_its_largest_units(milliseconds: float, text: str) -> None:
    assert age(milliseconds) == text


def test_an_archive_line_highlights_errors() -> None:
    quiet = archive_line(ArchiveState(archive_id=42, recordings=1, replays=2))
    assert quiet.plain == "\n  archive 42  1 recording  2 replays  0 clients  0 errors"
    assert not any(span.style for span in quiet.spans)
    failed = archive_line(ArchiveState(archive_id=42, control_sessions=1, errors=1_000))
    assert failed.plain.endswith("  1 client  1,000 errors")
    assert [span.style for span in failed.spans] == ["red bold"]
