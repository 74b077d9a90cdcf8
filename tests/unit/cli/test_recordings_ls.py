"""``mainstem recordings ls`` and ``show``, and ``mainstem archive ls``: what their rows hold, as a table, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from contextlib import contextmanager
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.many_recordings import make_recordings
from tests.support.shipping import ManualClock, Station, payloads

from mainstem import cli
from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.cli import archive, recordings
from mainstem.cli._output import moment, row_of
from mainstem.cli.recordings import Listed
from mainstem.recording import open_recording
from mainstem.recording.catalog import RecordingDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mainstem.cli._output import Column

START_MS, STOP_MS = 1_800_000_000_123, 1_800_000_060_456
DESCRIPTOR = RecordingDescriptor(
    recording_id=7_001,
    start_timestamp=START_MS,
    stop_timestamp=STOP_MS,
    start_position=65_536,
    stop_position=9_876_544,
    initial_term_id=-5,
    segment_file_length=1 << 20,
    term_buffer_length=1 << 16,
    mtu_length=8_192,
    session_id=-2_147_483_648,
    stream_id=1_001,
    stripped_channel="aeron:udp?endpoint=localhost:20121",
    original_channel="aeron:udp?endpoint=localhost:20121|alias=tides",
    source_identity="192.0.2.1:40123",
    control_session_id=11,
    correlation_id=12,
    entry_offset=1_024,
)
GROWING = replace(DESCRIPTOR, recording_id=7_002, stop_timestamp=-1, stop_position=-1)
ARCHIVE_ID = "an-archive-with-an-id-of-more-than-forty-characters"
SHIPPED = SimpleNamespace(tree=SimpleNamespace(count=12, nbytes=3_456_789), recorded_ns=STOP_MS * 1_000_000)
ARCHIVE: Any = SimpleNamespace(
    archive_id=ARCHIVE_ID, host="north", segments=lambda _: [0, 1 << 20], entry={7_001: SHIPPED}.__getitem__
)
ROW = Listed(descriptor=DESCRIPTOR, start_position=131_072, end_position=9_800_000, archive=ARCHIVE, messages=4_321)

OF_DESCRIPTOR = {
    "recording_id": 7_001,
    "stream_id": 1_001,
    "session_id": -2_147_483_648,
    "start_position": 131_072,
    "end_position": 9_800_000,
    "state": "ended",
    "start_timestamp": START_MS,
    "channel": "aeron:udp?endpoint=localhost:20121|alias=tides",
    "stop_timestamp": STOP_MS,
    "source": "192.0.2.1:40123",
}
LISTED = OF_DESCRIPTOR | {"archive": ARCHIVE_ID, "host": "north", "messages": 4_321}
DETAILS = LISTED | {"term_length": 1 << 16, "segment_length": 1 << 20, "mtu": 8_192, "segments": 2}
SHIPPED_DETAILS = DETAILS | {"objects": 12, "bytes": 3_456_789, "recorded_until": moment(STOP_MS)}


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(each) for each in arguments])
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    return str(out)


def run_formats(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, list[dict[str, Any]]]:
    """Return a listing's table and its rows in JSON, which are those in CSV."""
    rows: list[dict[str, Any]] = json.loads(run(capsys, *arguments, "--json"))
    as_text = [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]
    assert list(csv.DictReader(io.StringIO(run(capsys, *arguments, "--csv")))) == as_text
    return run(capsys, *arguments), rows


def test_every_field_of_the_descriptor_differs_from_its_default() -> None:
    assert [each.name for each in fields(DESCRIPTOR) if getattr(DESCRIPTOR, each.name) == each.default] == []


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        (archive.COLUMNS, OF_DESCRIPTOR),
        (recordings.COLUMNS, LISTED),
        (recordings.DETAILS, DETAILS),
        (recordings.SHIPPED_DETAILS, SHIPPED_DETAILS),
    ],
    ids=["archive ls", "recordings ls", "show", "show, shipped"],
)
def test_a_row_holds_the_values_of_its_recording(columns: Sequence[Column], values: dict[str, Any]) -> None:
    assert row_of(columns, ROW) == values


def test_a_table_shows_positions_with_separators_and_ids_without() -> None:
    texts = {
        "id": "7001",
        "stream": "1001",
        "session": "-2147483648",
        "start": "131,072",
        "end": "9,800,000",
        "state": "ended",
        "started": moment(START_MS)[:19],
        "channel": "aeron:udp?endpoint=localhost:20121|alias=tides",
    }
    assert {column.title: column.text(ROW) for column in archive.TABLE} == texts
    more = {"archive": ARCHIVE_ID[-40:], "host": "north", "messages": "4,321"}
    assert {column.title: column.text(ROW) for column in recordings.TABLE} == texts | more


def test_what_a_growing_recording_lacks_is_a_dash() -> None:
    row = Listed(descriptor=GROWING, start_position=0, end_position=64, archive=ARCHIVE)
    values = row_of(recordings.COLUMNS, row)
    assert (values["state"], values["messages"], values["stop_timestamp"]) == ("growing", None, -1)
    texts = {column.name: column.text(row) for column in recordings.COLUMNS}
    assert (texts["state"], texts["messages"], texts["stop_timestamp"]) == ("growing", "-", "-")


def test_archive_ls_lists_what_the_archive_has_recorded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Client:
        def list_recordings(self, *, timeout: float) -> Iterator[RecordingDescriptor]:
            assert timeout == 10
            return iter([DESCRIPTOR, GROWING])

        def max_recorded_position(self, recording_id: int, *, timeout: float) -> int:
            assert (recording_id, timeout) == (7_002, 10)
            return 10_000_000

    @contextmanager
    def connected(self: archive.Connection) -> Iterator[Client]:
        yield Client()

    monkeypatch.setattr(archive.Connection, "open", connected)
    text, rows = run_formats(capsys, "archive", "ls")
    own = {"start_position": 65_536, "end_position": 9_876_544}
    growing = {"recording_id": 7_002, "end_position": 10_000_000, "state": "growing", "stop_timestamp": -1}
    assert rows == [OF_DESCRIPTOR | own, OF_DESCRIPTOR | own | growing]
    assert [line.split()[3:6] for line in text.splitlines()[1:]] == [
        ["65,536", "9,876,544", "ended"],
        ["65,536", "10,000,000", "growing"],
    ]


def test_ls_lists_marked_recordings_of_a_directory_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_recordings(tmp_path, 2)
    run(capsys, "recordings", "mark-invalid", tmp_path, 0)
    _, rows = run_formats(capsys, "recordings", "ls", tmp_path)
    assert [(row["recording_id"], row["state"], row["messages"]) for row in rows] == [(1, "ended", 10)]
    text, rows = run_formats(capsys, "recordings", "ls", tmp_path, "--all-states")
    assert [(row["recording_id"], row["state"]) for row in rows] == [(1, "ended"), (0, "invalid")]
    assert [line.split()[2] for line in text.splitlines()[1:]] == ["1", "0"]


def test_show_prints_a_dash_for_what_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_recordings(tmp_path, 1)
    shown = run(capsys, "recordings", "show", tmp_path).splitlines()
    assert {"  host: -", "  in_use_by: -", "    source: -"} <= set(shown)


def test_a_directory_and_its_shipped_copy_are_listed_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    station = Station(tmp_path / "recorder", ManualClock(SYSTEM_CLOCK.epoch_ns()), mtu_length=8_192)
    station.send(payloads(60))
    station.stop()
    store = tmp_path / "store"
    run(capsys, "ship", station.directory, store, "--once")
    with open_recording(station.directory, 0) as reader:
        end = reader.end_position()
    listed = []
    for where in (station.directory, store):
        text, (row,) = run_formats(capsys, "recordings", "ls", where)
        assert (row["end_position"], row["state"], row["messages"]) == (end, "ended", 60)
        assert f"{end:,}" in text.splitlines()[1].split()
        listed.append(row)
        shown = run(capsys, "recordings", "show", where)
        assert {f"    end_position: {end:,}", "    mtu: 8,192", "    state: ended"} <= set(shown.splitlines())
        (each,) = json.loads(run(capsys, "recordings", "show", where, "--json"))
        (details,) = each["recordings"]
        assert row.items() <= details.items()
        assert details["mtu"] == 8_192
    assert listed[0] == listed[1]
    assert each["manifest"] >= 1
    assert details["objects"] >= 1
    assert f"    objects: {details['objects']:,}" in shown.splitlines()
