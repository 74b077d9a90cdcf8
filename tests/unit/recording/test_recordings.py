"""Recordings as tables without Spark: every library sees the same rows and reads only what a condition needs."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.streams import Stream, record

import mainstem
from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording import Recorder, Recordings, open_recordings
from mainstem.recording.index import index_file
from mainstem.recording.rows.filters import EVERYTHING, bounds_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TERM = 65536
START_NS = 1_769_860_800_000_000_000  # 2026-01-31T12:00:00Z
STEP_NS = 10_000_000
COLUMNS = [
    "recording_id", "session_id", "stream_id", "position", "term_id", "term_offset", "flags", "reserved_value",
    "recorded_at", "length", "payload",
]  # fmt: skip


def write(path: Path, streams: int = 3, messages: int = 200) -> dict[int, list[bytes]]:
    """Record several streams and return the messages published on each."""
    rng, payloads_by_stream = random.Random(7), {}
    with Recorder(path, segment_length=2 * TERM) as recorder:
        for number in range(streams):
            session_id, stream_id = 70 + number, 1001 + number
            stream = Stream(session_id=session_id, stream_id=stream_id)
            writer = Stream(session_id=session_id, stream_id=stream_id).start(recorder)
            payloads = [b"%d:%d " % (stream_id, i) + bytes(rng.randrange(3000)) for i in range(messages)]
            record(writer, stream, payloads, time_ns=START_NS, step_ns=STEP_NS)
            payloads_by_stream[stream_id] = payloads
    return payloads_by_stream


@dataclass
class Recorded:
    """Recordings and the messages published on each stream. Its repr omits the payloads, to keep Hypothesis reports short."""

    path: Path
    payloads: dict[int, list[bytes]] = field(repr=False)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    path = tmp_path_factory.mktemp("recordings")
    return Recorded(path, write(path))


@pytest.fixture
def recordings(recorded: Recorded) -> Iterator[Recordings]:
    with mainstem.open_recordings(recorded.path) as opened:
        yield opened


def eager_frame(recordings: Recordings) -> pl.DataFrame:
    frame = pl.from_arrow(recordings.scan().to_arrow())
    assert isinstance(frame, pl.DataFrame)
    return frame


def test_every_output_format_has_the_same_rows(recorded: Recorded, recordings: Recordings) -> None:
    table = recordings.scan().to_arrow()
    assert table.column_names == COLUMNS
    expected = [payload for payloads in recorded.payloads.values() for payload in payloads]
    assert table["payload"].to_pylist() == expected
    assert pa.Table.from_batches(recordings.scan().to_batches()).equals(table)
    assert recordings.scan().to_reader().read_all().equals(table)
    assert pa.table(recordings).equals(table)  # through the Arrow C stream interface
    assert recordings.scan().to_polars().collect().equals(pl.from_arrow(table))  # type: ignore[arg-type]
    assert recordings.to_polars().collect().equals(pl.from_arrow(table))  # type: ignore[arg-type]
    assert recordings.to_arrow().equals(table)
    assert recordings.scan().to_pandas()["payload"].tolist() == expected
    assert recordings.to_pandas()["payload"].tolist() == expected
    assert list(recordings.messages()) == expected
    assert duckdb.sql("select payload from recordings").fetchall() == [(payload,) for payload in expected]


def test_constructors_of_data_frames_take_recordings_as_a_table_or_refuse(recordings: Recordings) -> None:
    assert pl.DataFrame(recordings).equals(eager_frame(recordings))
    assert pl.LazyFrame(recordings).collect().equals(eager_frame(recordings))
    with pytest.raises(TypeError, match=r"call to_pandas\(\)"):
        pd.DataFrame(recordings)


def test_a_sequence_of_readers(recordings: Recordings) -> None:
    assert [reader.descriptor.stream_id for reader in recordings] == [1001, 1002, 1003]
    assert len(recordings) == 3
    assert recordings[-1].descriptor.recording_id == 2


def test_selected_columns_come_in_the_requested_order(recordings: Recordings) -> None:
    assert recordings.scan(["length", "position"]).to_arrow().column_names == ["length", "position"]
    assert (recordings.scan([]).to_arrow().num_columns, recordings.scan([]).to_arrow().num_rows) == (0, 600)
    assert recordings.scan([], [("stream_id", "=", 1001)]).to_arrow().num_rows == 200
    assert "type" in recordings.scan(frames=True).to_arrow().column_names
    assert recordings.scan(frames=True).to_arrow().num_rows > recordings.scan().to_arrow().num_rows
    with pytest.raises(ConfigurationError, match="no column 'topic'"):
        recordings.scan(["topic"]).to_arrow()


@pytest.mark.parametrize(
    "where",
    [
        None,
        [("position", "<", 4096)],
        [[("position", "<", 4096)], [("length", ">", 100)]],
        pc.field("position") < 4096,
    ],
    ids=["nothing", "filters", "alternatives", "an expression"],
)
def test_ids_narrow_what_a_filter_selects(recordings: Recordings, where: Any) -> None:
    selected = recordings.scan(["position"], where).to_arrow().num_rows
    parts = [recordings.to_arrow(["stream_id"], where, stream_id=each)["stream_id"] for each in (1001, 1002, 1003)]
    assert [part.unique().to_pylist() for part in parts] == [[1001], [1002], [1003]]
    assert sum(map(len, parts)) == selected
    assert recordings.to_arrow(where=where, stream_id=1001, recording_id=1).num_rows == 0
    assert recordings.to_arrow(where=where, session_id=7).num_rows == 0
    with pytest.raises(ConfigurationError, match="stream_id must be an integer"):
        recordings.to_arrow(where=where, stream_id="tides")


def test_messages_of_one_stream_or_session(recorded: Recorded, recordings: Recordings) -> None:
    for reader in recordings:
        ids = reader.descriptor
        payloads = recorded.payloads[ids.stream_id]
        assert list(recordings.messages(stream_id=ids.stream_id)) == payloads
        assert list(recordings.messages(session_id=ids.session_id)) == payloads
        assert list(recordings.messages(recording_id=ids.recording_id)) == payloads
    assert list(recordings.messages(stream_id=1001, session_id=7)) == []
    with pytest.raises(ConfigurationError, match="recording_id must be an integer"):
        recordings.messages(recording_id=1.5)  # type: ignore[arg-type]


columns = st.sampled_from(["recording_id", "stream_id", "session_id", "position", "recorded_at", "length"])


@st.composite
def filters(draw: st.DrawFn) -> tuple[str, str, Any]:
    name = draw(columns)
    values = {
        "recording_id": st.integers(-1, 4),
        "stream_id": st.integers(1000, 1004),
        "session_id": st.integers(69, 73),
        "position": st.integers(-5, 400_000),
        "recorded_at": st.integers(-5, 205).map(
            lambda step: datetime.fromtimestamp(START_NS / 1e9, UTC) + timedelta(microseconds=step * STEP_NS // 1000)
        ),
        "length": st.integers(0, 3100),
    }[name]
    operator = draw(st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]))
    return name, operator, draw(st.lists(values, min_size=1, max_size=3)) if "in" in operator else draw(values)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(filters(), min_size=1, max_size=3), min_size=1, max_size=3))
def test_a_filter_keeps_exactly_the_matching_rows(recorded: Recorded, where: list[list[tuple[str, str, Any]]]) -> None:
    import pyarrow.parquet as pq

    with open_recordings(recorded.path) as recordings:
        whole = recordings.scan().to_arrow()
        expected = whole.filter(pq.filters_to_expression(where))
        assert recordings.scan(where=where).to_arrow().equals(expected)
        assert recordings.scan(where=pq.filters_to_expression(where)).to_arrow().equals(expected)
        assert recordings.scan(["length"], where).to_arrow().equals(expected.select(["length"]))


def expression(part: tuple[str, str, Any]) -> pl.Expr:
    """Return a filter as a Polars expression."""
    name, operator, value = part
    column = pl.col(name)
    if "in" in operator:
        return column.is_in(value) if operator == "in" else ~column.is_in(value)
    compared: dict[str, pl.Expr] = {
        "=": column == value, "==": column == value, "!=": column != value, "<": column < value,
        "<=": column <= value, ">": column > value, ">=": column >= value,
    }  # fmt: skip
    return compared[operator]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(filters().filter(lambda each: "in" not in each[1]), min_size=1, max_size=3), st.booleans())
def test_polars_pushes_conditions_down_and_keeps_every_row(
    recorded: Recorded, parts: list[tuple[str, str, Any]], joined_by_or: bool
) -> None:
    predicate = expression(parts[0])
    for part in parts[1:]:
        predicate = predicate | expression(part) if joined_by_or else predicate & expression(part)
    with open_recordings(recorded.path) as recordings:
        whole = eager_frame(recordings)
        lazy = recordings.scan().to_polars().filter(predicate)
        assert lazy.collect().equals(whole.filter(predicate))
        assert lazy.select("length").collect().equals(whole.filter(predicate).select("length"))


counts = st.sampled_from([0, 1, 7, 199, 200, 201, 450, 1000])
STEPS: dict[str, st.SearchStrategy[Any]] = {
    "head": counts,
    "tail": counts,
    "slice": st.tuples(st.integers(-650, 650), counts),
    "filter": filters(),
    "with_row_index": st.none(),
    "select": st.sampled_from([["stream_id", "position"], ["length"], ["recorded_at", "stream_id"], []]),
    "len": st.none(),
}


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, Any]:
    name = draw(st.sampled_from([*STEPS, "head", "filter"]))
    return name, draw(STEPS[name])


def applied(frame: Any, each: tuple[str, Any], number: int) -> Any:
    """Return an eager or lazy frame after one step, unchanged if an earlier step dropped the step's column."""
    name, argument = each
    names = frame.collect_schema().names()
    if name in ("head", "tail"):
        return getattr(frame, name)(argument)
    if name == "slice":
        return frame.slice(*argument)
    if name == "filter":
        return frame.filter(expression(argument)) if argument[0] in names else frame
    if name == "with_row_index":
        return frame.with_row_index(f"index_{number}")
    if name == "select":
        # If no column of the recording is selected, only row indexes (if any) remain.
        return frame.select([each for each in names if each in argument or each.startswith("index_")])
    return frame.select(pl.len())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example([("head", 200), ("filter", ("stream_id", "=", 1002))])
@example([("head", 450), ("filter", ("position", ">", 200_000)), ("head", 7)])
@example([("filter", ("stream_id", "=", 1002)), ("head", 7), ("filter", ("length", "<", 1500))])
@example([("with_row_index", None), ("select", [])])
@example([("head", 7), ("with_row_index", None), ("len", None)])
@given(st.lists(steps(), min_size=1, max_size=5))
def test_a_lazy_query_returns_what_the_same_steps_on_a_data_frame_do(
    recorded: Recorded, query: list[tuple[str, Any]]
) -> None:
    with open_recordings(recorded.path) as recordings:
        eager, lazy = eager_frame(recordings), recordings.scan().to_polars()
        for number, each in enumerate(query):
            eager, lazy = applied(eager, each, number), applied(lazy, each, number)
        for engine in ("in-memory", "streaming"):
            assert lazy.collect(engine=engine).equals(eager), engine


def test_a_polars_condition_limits_the_range_read(recorded: Recorded) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    within = bounds_of((pl.col("stream_id") == 1002) & (pl.col("recorded_at") < noon) & (pl.col("position") >= 4096))
    assert within.stream_id == frozenset({1002})
    assert within.recorded_at.high == round(noon.timestamp() * 1e6) - 1
    assert within.position.low == 4096
    assert bounds_of(pl.col("payload").bin.size() > 3) == EVERYTHING
    assert bounds_of(~(pl.col("stream_id") == 1002)) == EVERYTHING


def test_only_matching_recordings_are_opened(tmp_path: Path) -> None:
    write(tmp_path)
    for segment in tmp_path.glob("[02]-*.rec"):
        segment.unlink()
    with open_recordings(tmp_path) as recordings:
        where = [("stream_id", "=", 1002)]
        assert recordings.scan(where=where).to_arrow().num_rows == 200
        assert recordings.scan().to_polars().filter(pl.col("stream_id") == 1002).collect().height == 200
        with pytest.raises(RecordingError):
            recordings.scan().to_arrow()
        with pytest.raises(RecordingError):
            recordings.scan(where=pc.field("stream_id") == 1002).to_arrow()


def test_polars_reads_no_more_rows_than_it_takes(recordings: Recordings) -> None:
    assert recordings.scan().to_polars().head(5).collect().equals(eager_frame(recordings).head(5))


def test_unknown_times_match_no_condition(tmp_path: Path) -> None:
    write(tmp_path, streams=2)
    index_file(tmp_path, 0).unlink()
    with open_recordings(tmp_path) as recordings:
        assert recordings.scan(["recorded_at"]).to_arrow()["recorded_at"].null_count == 200
        assert recordings.scan(where=[("recorded_at", ">=", "2020-01-01")]).to_arrow().num_rows == 200


def test_a_time_without_an_offset_is_in_utc(recordings: Recordings) -> None:
    texts = recordings.scan(where=[("recorded_at", "<", "2026-01-31T12:00:01")]).to_arrow()
    shifted = recordings.scan(where=[("recorded_at", "<", "2026-01-31T13:00:01+01:00")]).to_arrow()
    naive = recordings.scan(where=[("recorded_at", "<", datetime(2026, 1, 31, 12, 0, 1))]).to_arrow()
    assert 0 < texts.num_rows < recordings.scan().to_arrow().num_rows
    assert texts.equals(shifted)
    assert texts.equals(naive)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ([], "not a list of filters"),
        ("stream_id = 1", "not a list of filters"),
        ([("stream_id", "=")], "not a filter"),
        ([("topic", "=", 1)], "no column 'topic'"),
        ([("stream_id", "~", 1)], "must be one of"),
        ([("stream_id", "in", 5)], "not a list of values"),
        ([("recorded_at", ">", "noon")], r"(no|not a) time"),
        ([("recorded_at", ">", 5)], "not a time"),
        ([("stream_id", "=", "tides")], "not a number"),
        ([("position", "in", [0, None])], "not a number"),
    ],
)
def test_an_invalid_filter_is_refused(recordings: Recordings, where: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        recordings.scan(where=where).to_batches()


def test_later_records_appear_in_the_next_read(tmp_path: Path) -> None:
    stream = Stream()
    with Recorder(tmp_path, segment_length=2 * TERM) as recorder:
        writer = Stream().start(recorder)
        record(writer, stream, [b"one"])
        with open_recordings(tmp_path) as recordings:
            assert recordings.scan(["payload"]).to_arrow()["payload"].to_pylist() == [b"one"]
            record(writer, stream, [b"two"])
            assert recordings.scan(["payload"]).to_arrow()["payload"].to_pylist() == [b"one", b"two"]


def test_a_damaged_part_raises_or_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, streams=1)
    with (tmp_path / f"0-{2 * TERM}.rec").open("r+b") as file:
        file.write(b"\xff" * 64)
    with open_recordings(tmp_path) as recordings:
        with pytest.raises(RecordingError, match=f"0-{2 * TERM}.rec"):
            recordings.scan().to_arrow()
        assert 0 < recordings.scan(strict=False).to_arrow().num_rows < 200
    assert re.fullmatch(r"recording 0: \d+ bytes are skipped, positions \d+ to \d+: .*", caplog.messages[0])
