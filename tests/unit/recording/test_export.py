from __future__ import annotations

import io
import json
import math
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from tests.support.streams import Stream, record

from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording import Recorder, Recordings, open_recordings
from mainstem.recording.export import KINDS, ExportOptions, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TERM = 65536
PAYLOADS = [b'{"n": %d, "t": "a,b\n"}' % number for number in range(500)] + ["Größe".encode()]


@pytest.fixture
def recordings(tmp_path: Path) -> Iterator[Recordings]:
    with Recorder(tmp_path, segment_length=2 * TERM) as recorder:
        writer = Stream().start(recorder)
        record(writer, Stream(), PAYLOADS, time_ns=1_769_860_800_000_000_000, step_ns=1_000_000)
    with open_recordings(tmp_path) as opened:
        yield opened


def written(recordings: Recordings, path: Path, kind: str, payload: str = "base64") -> Path:
    out = path / f"out.{kind}"
    with out.open("wb") as file:
        assert write_rows(recordings.scan().to_reader(), file, kind, payload=payload) == len(PAYLOADS)
    return out


def test_parquet_and_arrow_are_read_back_by_others_as_they_were(recordings: Recordings, tmp_path: Path) -> None:
    whole = recordings.scan().to_polars().collect()
    parquet = written(recordings, tmp_path, "parquet")
    assert pl.read_parquet(parquet).equals(whole)
    rows = duckdb.sql(f"select payload from read_parquet('{parquet}') order by position").fetchall()
    assert rows == [(payload,) for payload in PAYLOADS]
    arrow = written(recordings, tmp_path, "arrow")
    assert pa.ipc.open_stream(arrow.read_bytes()).read_all().equals(recordings.scan().to_arrow())


@pytest.mark.parametrize("payload", ["base64", "hex", "text"])
def test_csv_and_json_lines_are_read_back_by_others(recordings: Recordings, tmp_path: Path, payload: str) -> None:
    decode = {"base64": "from_base64(payload)", "hex": "unhex(payload)", "text": "encode(payload)"}[payload]
    for kind, reader in (("csv", "read_csv"), ("jsonl", "read_json")):
        path = written(recordings, tmp_path, kind, payload)
        # Type detection would turn hexadecimal strings into numbers.
        types = "{position: 'BIGINT', recorded_at: 'TIMESTAMPTZ', length: 'INT', payload: 'VARCHAR'}"
        source = f"{reader}('{path}', {'types' if kind == 'csv' else 'columns'}={types})"
        rows = duckdb.sql(f"select position, recorded_at, length, {decode} from {source} order by position").fetchall()
        expected = recordings.scan(["position", "recorded_at", "length", "payload"]).to_arrow().to_pylist()
        assert [row[0] for row in rows] == [row["position"] for row in expected]
        assert [row[1] for row in rows] == [row["recorded_at"] for row in expected]
        assert [bytes(row[3]) for row in rows] == PAYLOADS


def test_a_json_line_is_a_message(recordings: Recordings) -> None:
    file = io.BytesIO()
    write_rows(recordings.scan(["position", "payload"]).to_reader(), file, "jsonl", payload="text")
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [line["payload"].encode() for line in lines] == PAYLOADS


def test_json_lines_are_strict_json_with_numbers_that_json_lacks_as_text() -> None:
    values = [1.5, math.nan, math.inf, -math.inf, None]
    nested = [{"list": [value]} for value in values]
    table = pa.table({"f": pa.array(values), "s": pa.array(nested)})
    file = io.BytesIO()
    write_rows(table.to_reader(), file, "jsonl")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    lines = [json.loads(line, parse_constant=refuse) for line in file.getvalue().splitlines()]
    assert [line["f"] for line in lines] == [1.5, "NaN", "Infinity", "-Infinity", None]
    assert [line["s"]["list"][0] for line in lines] == [1.5, "NaN", "Infinity", "-Infinity", None]
    assert pl.read_ndjson(file.getvalue(), infer_schema_length=None)["f"].to_list() == [
        "1.5",
        *(line["f"] for line in lines[1:]),
    ]


def test_invalid_utf8_is_refused_with_its_position(tmp_path: Path) -> None:
    with Recorder(tmp_path, segment_length=2 * TERM) as recorder:
        writer = Stream().start(recorder)
        record(writer, Stream(), [b"fine", b"\xff\xfe"])
    with open_recordings(tmp_path) as recordings, pytest.raises(RecordingError, match="position 128 is not UTF-8"):
        write_rows(recordings.scan().to_reader(), io.BytesIO(), "csv", payload="text")


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_without_rows_is_written_as_a_complete_file(recordings: Recordings, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"empty.{kind}"
    with out.open("wb") as file:
        assert write_rows(recordings.scan(where=[("stream_id", "=", 5)]).to_reader(), file, kind) == 0
    if kind == "parquet":
        assert pl.read_parquet(out).columns == recordings.scan().to_arrow().column_names
    if kind == "csv":
        assert out.read_text().startswith('"recording_id"')


@pytest.mark.parametrize(
    ("out", "kind"),
    [
        ("tides.parquet", "parquet"),
        ("a.b/TIDES.CSV", "csv"),
        ("tides.jsonl", "jsonl"),
        ("tides.ndjson", "jsonl"),
        ("tides.arrow", "arrow"),
        ("tides.arrows", "arrow"),
    ],
)
def test_the_name_of_the_file_says_the_format(out: str, kind: str) -> None:
    assert ExportOptions(location="tides", out=out).kind == kind
    assert ExportOptions(location="tides", out=out, format="csv").kind == "csv"


@pytest.mark.parametrize("out", ["-", "tides", "tides.xls", ".csv"])
def test_a_format_is_needed_if_the_name_of_the_file_says_none(out: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^`format` is needed, because .* does not end in \.parquet, \.csv"):
        assert ExportOptions(location="tides", out=out).kind


def test_unknown_settings_are_refused(recordings: Recordings) -> None:
    with pytest.raises(ConfigurationError, match=r"must be one of parquet.*got 'xls'"):
        write_rows(recordings.scan().to_reader(), io.BytesIO(), "xls")
    with pytest.raises(ConfigurationError, match=r"must be one of base64.*got 'utf'"):
        write_rows(recordings.scan().to_reader(), io.BytesIO(), "csv", payload="utf")
