"""The report of skipped data, summed by archive and recording."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.sources.skip_report import note, read_skip_report

if TYPE_CHECKING:
    from pathlib import Path


def test_recordings_of_two_archives_are_two(tmp_path: Path) -> None:
    for _ in range(2):  # as if a task ran twice
        note(str(tmp_path), "/data/north", 0, 0, 100, "purged")
        note(str(tmp_path), "https://south:8480/", 0, 0, 100, "torn")
        note(str(tmp_path), "https://south:8480/", 0, 50, 300, "purged")
    north, south = read_skip_report(tmp_path)
    assert (north.archive, north.recording_id, north.ranges, north.bytes) == ("/data/north", 0, 1, 100)
    assert (south.archive, south.ranges, south.bytes) == ("https://south:8480/", 1, 300)
    assert set(south.reasons) == {"torn", "purged"}


def test_a_file_whose_text_is_on_its_way_counts(tmp_path: Path) -> None:
    note(str(tmp_path), "/data/north", 3, 0, 128, "torn")
    (file,) = tmp_path.iterdir()
    file.write_text("")
    ((each),) = read_skip_report(tmp_path)
    assert (each.recording_id, each.bytes, each.reasons) == (3, 128, ())
