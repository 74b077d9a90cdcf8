from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from tests.support.streams import Stream, record

import mainstem
from mainstem.cli import main
from mainstem.codecs import find_codec
from mainstem.codecs.json_lines import JsonLines
from mainstem.errors import ConfigurationError
from mainstem.recording import Recorder, Recordings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TERM = 65536
SCHEMA = {"type": "record", "name": "T", "fields": [
    {"name": "n", "type": "long"}, {"name": "raw", "type": "bytes"}, {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "fee", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
]}  # fmt: skip
NAMES = ["recording_id", "session_id", "stream_id", "position", "recorded_at", "problem"]


def write(path: Path, payloads: list[bytes]) -> Path:
    with Recorder(path, segment_length=2 * TERM) as recorder:
        writer = Stream().start(recorder)
        record(writer, Stream(), payloads, time_ns=1_769_860_800_000_000_000, step_ns=1_000_000)
    return path


@pytest.fixture
def recordings(tmp_path: Path) -> Iterator[Recordings]:
    payloads = [b'{"n": %d, "t": "x"}' % i for i in range(300)]
    payloads[100:100] = [b"{", b'{"n": 5, "late": [1]}']
    with mainstem.open_recordings(write(tmp_path / "json", payloads)) as opened:
        yield opened


def test_a_recording_is_a_table_of_its_decoded_messages(recordings: Recordings) -> None:
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    table = recordings.scan(codec="json", schema=schema).to_arrow()
    assert table.schema.names == [*NAMES, "n", "t", "rescued", "payload"]
    rows = table.to_pylist()
    assert [row["n"] for row in rows] == [*range(100), None, 5, *range(100, 300)]
    assert rows[100]["payload"] == b"{"
    assert rows[100]["problem"].startswith("the message is not JSON: ")
    assert rows[101]["rescued"] == '{"late":[1]}'
    assert rows[0]["recorded_at"] is not None
    assert [row["position"] for row in rows] == recordings.scan(["position"]).to_arrow().column(0).to_pylist()
    inferred = recordings.scan(codec=find_codec("json")).to_arrow()
    assert inferred.schema.field("late").type == pa.list_(pa.int64())
    assert recordings.scan(codec="json", schema=schema).to_polars().collect().equals(pl.from_arrow(table))
    assert recordings.scan(codec="json", schema=schema).to_pandas().n.sum() == sum(range(300)) + 5
    assert sum(batch.num_rows for batch in recordings.scan(codec="json", schema=schema).to_batches(rows=7)) == 302


def test_columns_and_conditions_are_chosen_as_without_a_codec(recordings: Recordings) -> None:
    table = recordings.scan(["n", "length", "position"], [("position", "<=", 192)], codec="json").to_arrow()
    assert table.schema.names == ["n", "length", "position"]
    assert table.column("n").to_pylist() == [0, 1, 2]
    assert recordings.scan(["problem", "n"], codec="json").to_arrow().num_rows == 302


@pytest.mark.parametrize(
    "query",
    [
        lambda frame: frame.select("n", "stream_id"),
        lambda frame: frame.filter(pl.col("n") > 250).select("t"),
        lambda frame: frame.filter((pl.col("position") <= 192) & (pl.col("n") > 0)),
        lambda frame: frame.head(101).select("problem", "payload"),
        lambda frame: frame.filter(pl.col("problem").is_not_null()).head(1),
        lambda frame: frame.select(pl.len()),
    ],
)
def test_a_lazy_query_decodes_and_returns_what_it_does_on_a_data_frame(recordings: Recordings, query: Any) -> None:
    for options in ({}, {"columns": ["n", "t", "position", "stream_id", "problem", "payload", "length"]}):
        eager = pl.from_arrow(recordings.scan(codec="json", **options).to_arrow())
        for lazy in (
            recordings.to_polars(codec="json", **options),
            recordings.scan(codec="json", **options).to_polars(),
        ):
            assert query(lazy).collect().equals(query(eager))


def test_a_lazy_query_reads_only_the_messages_that_its_condition_allows(recordings: Recordings) -> None:
    read: list[int] = []

    class Counting(JsonLines):
        def decode_batch(self, payloads: Any, schema: pa.Schema) -> Any:
            read.append(len(payloads))
            return super().decode_batch(payloads, schema)

    frame = recordings.to_polars(codec=Counting(), schema=pa.schema([("n", pa.int64())]))
    assert frame.filter(pl.col("position") <= 192).select("n").collect()["n"].to_list() == [0, 1, 2]
    assert sum(read) == 3


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"codec": "morse"}, "unknown codec 'morse'"),
        ({"codec": "json", "columns": ["m"]}, "no column 'm'; there are problem, n"),
        ({"codec": "json", "frames": True}, "messages, not frames"), ({"codec_options": {"a": "b"}}, "need a codec"),
        ({"codec": "json", "schema": pa.schema([("position", pa.int64())])}, "'position' has a reserved name"),
        ({"codec": find_codec("json"), "codec_options": {"a": "b"}}, "this codec has its own"),
        ({"codec": "csv"}, "codec 'csv': CSV needs a schema"),
    ],
)  # fmt: skip
def test_undecodable_columns_are_refused_before_reading(
    recordings: Recordings, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        recordings.scan(**options).to_batches()


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
def test_export_decodes_with_the_options_of_the_codec(tmp_path: Path, kind: str) -> None:
    (tmp_path / "t.avsc").write_text(json.dumps(SCHEMA))
    codec = find_codec("avro", {"schema": str(tmp_path / "t.avsc")})
    row = {"n": 5, "raw": b"\xff", "tags": ["a", "b"], "fee": Decimal("1.25")}
    location, out = write(tmp_path / "avro", [codec.encode(row), b"\x01"]), tmp_path / f"out.{kind}"
    options = [
        "--codec",
        "avro",
        "--codec-option",
        f"schema={tmp_path / 't.avsc'}",
        "--columns",
        "stream_id,n,raw,tags,fee,problem,payload",
    ]
    with pytest.raises(SystemExit) as ended:
        main(["export", str(location), "--format", kind, "-o", str(out), *options])
    assert not ended.value.code
    problem = "the message is cut off, or of another schema"
    if kind == "jsonl":
        first, second = map(json.loads, out.read_text().splitlines())
        assert first == {
            "stream_id": 1001, "n": 5, "raw": "/w==", "tags": ["a", "b"], "fee": "1.25", "problem": None, "payload": None,
        }  # fmt: skip
        assert (second["n"], second["problem"], second["payload"]) == (None, problem, "AQ==")
    elif kind == "csv":
        frame = pl.read_csv(out)
        assert frame.row(0) == (1001, 5, "/w==", '["a", "b"]', 1.25, None, None)
        assert frame.row(1) == (1001, None, None, None, None, problem, "AQ==")
    else:
        table = pl.read_parquet(out) if kind == "parquet" else pl.read_ipc_stream(out)
        assert table.row(0) == (1001, *row.values(), None, None)


def test_a_time_of_a_codec_is_a_time(tmp_path: Path) -> None:
    location = write(tmp_path / "json", [b'{"at": "2026-01-31T12:00:00Z"}'])
    with mainstem.open_recordings(location) as recordings:
        schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
        assert recordings.scan(["at"], codec="json", schema=schema).to_arrow().to_pylist() == [
            {"at": datetime(2026, 1, 31, 12, tzinfo=UTC)}
        ]
