"""What a Spark table passes to a source, and the options that can be tested without a JVM."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType
from tests.support.streams import Stream, record

from mainstem.errors import ConfigurationError
from mainstem.recording import Recorder
from mainstem.spark import root_cause
from mainstem.spark.option_table import TriggerDelay
from mainstem.spark.option_table import table_of as options_of
from mainstem.spark.sinks.channel import ChannelSink
from mainstem.spark.sinks.channels import ChannelOptions
from mainstem.spark.sources import features
from mainstem.spark.sources.capture import CaptureSource
from mainstem.spark.sources.capture_options import CaptureOptions
from mainstem.spark.sources.features import WithoutLimits, stream_reader
from mainstem.spark.sources.live import LiveOptions, LiveSource
from mainstem.spark.sources.options import RecordingOptions, parse_options
from mainstem.spark.sources.recording import RecordingSource, RecordingStreamReader
from mainstem.spark.sources.sql_tables import TUNING, is_secret, read_options, user_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

COUNT = 500
STREAM = {"initial_term_id": -5, "term_buffer_length": 65536, "mtu_length": 1408}


@pytest.fixture
def path(tmp_path: Any) -> Any:
    with Recorder(tmp_path / "recordings", segment_length=2 * 65536) as recorder:
        for session_id in (7, 8):
            writer = recorder.start(session_id=session_id, stream_id=1000 + session_id, join_position=0, **STREAM)
            record(writer, Stream(session_id=session_id), [bytes(100)] * COUNT, time_ns=1, step_ns=1000)
    return tmp_path / "recordings"


def created(**options: str) -> dict[str, str]:
    """Return the options that Spark passes for CREATE TABLE ... OPTIONS."""
    prefixed = {f"option.{name}": value for name, value in options.items()}
    return options | prefixed | {"provider": "mainstem.recording", "owner": "root"}


@pytest.mark.parametrize(
    ("kind", "provider", "place"),
    [
        (RecordingSource, "mainstem.recording", {"option.path": "/data", "path": "file:/data"}),
        (RecordingSource, "mainstem.recording", {"location": "/data", "path": "file:/data"}),
        (CaptureSource, "mainstem.capture", {"location": "/data"}),
    ],
)
def test_the_columns_of_a_table_carry_its_options(kind: type[DataSource], provider: str, place: dict[str, str]) -> None:
    columns = kind(place | {"provider": provider, "owner": "root"}).schema()
    assert isinstance(columns, StructType)
    assert read_options(provider, {}, columns) == {"path": "/data"}
    assert read_options(provider, {"rowsperbatch": "500"}, columns) == {"path": "/data", "rowsperbatch": "500"}
    with pytest.raises(ConfigurationError, match="has its own path"):
        read_options(provider, {"path": "/else"}, columns)


def table_of(options: dict[str, str]) -> StructType:
    stored = {"mainstem.options": json.dumps(options)}
    return StructType([StructField("position", LongType(), metadata=stored)])


def test_options_of_a_query_override_those_of_the_table_without_regard_to_case() -> None:
    columns = table_of({"path": "/data", "minPartitions": "5"})
    read = read_options("mainstem.recording", {"minpartitions": "6", "fs.s3a.secret.key": "x"}, columns)
    assert read == {"path": "/data", "minpartitions": "6", "fs.s3a.secret.key": "x"}


def test_options_that_affect_rows_belong_to_the_table() -> None:
    names = {each.name for kind in (RecordingOptions, CaptureOptions) for each in options_of(kind).values()}
    for name in names - {"path", "paths"} | {"endpoint_override", "tail"}:
        if name.lower() in TUNING:
            read_options("mainstem.recording", {name: "1"}, table_of({"path": "/data"}))
            continue
        with pytest.raises(ConfigurationError, match=f"^{name} can only be set for the whole table"):
            read_options("mainstem.recording", {name: "1"}, table_of({"path": "/data"}))
    assert {
        "indexdirectory", "maxbytespertrigger", "maxrowsperpartition", "maxrowspertrigger", "maxtriggerdelay",
        "minbytespertrigger", "minpartitions", "parallelism", "partitionbytes", "rowsperbatch", "skipreport",
    } == TUNING  # fmt: skip


@pytest.mark.parametrize("kind", [RecordingOptions, CaptureOptions, LiveOptions, ChannelOptions])
def test_every_option_is_read_documented_and_known_to_the_source(kind: type) -> None:
    table = options_of(kind)
    others = {"read", "store_options", "reading", "codec_options"}
    assert {each.name for each in fields(kind)} - table.keys() <= others, "a field without an option(...)"
    assert len({each.name.lower() for each in table.values()}) == len(table)
    sources = {RecordingOptions: RecordingSource, CaptureOptions: CaptureSource, LiveOptions: LiveSource}
    source = (sources | {ChannelOptions: ChannelSink})[kind]
    for each in table.values():
        assert each.meaning
        assert f"``{each.name}``" in str(source.__doc__)


def test_a_load_is_no_table() -> None:
    assert user_options("mainstem.recording", {"path": "/data"}) == ({"path": "/data"}, False)
    assert not any(each.metadata for each in RecordingSource({"path": "/data"}).schema().fields)


def test_secrets_are_not_stored() -> None:
    for name in (
        "secret_key",
        "fs.s3a.secret.key",
        "token",
        "tail.token",
        "fs.azure.account.key.x.dfs.core.windows.net",
    ):
        assert is_secret(name)
        with pytest.raises(ConfigurationError, match=f"WITH \\({name} = "):
            user_options("mainstem.recording", created(path="/data", **{name: "x"}))
    assert not any(map(is_secret, ("token_file", "tail.token_file", "region", "fs.s3a.endpoint", "path")))


class SetClock:
    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def epoch_ms(self) -> int:
        return 0

    def epoch_ns(self) -> int:
        return 0


def test_a_micro_batch_is_held_back_until_enough_is_new_or_the_delay_has_passed() -> None:
    clock = SetClock()
    delay = TriggerDelay(100, 1000, clock)
    assert not delay.holds(1)  # the first micro-batch
    assert delay.holds(99)
    assert not delay.holds(100)
    clock.now_ns = 999
    assert delay.holds(99)
    clock.now_ns = 1000
    assert not delay.holds(1)
    assert delay.holds(1)
    assert not TriggerDelay(None, 1000, clock).holds(0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"minBytesPerTrigger": "2m", "maxBytesPerTrigger": "1m"},
            "minBytesPerTrigger must not exceed maxBytesPerTrigger (got '2m'",
        ),
        ({"maxTriggerDelay": "5s"}, "maxTriggerDelay limits the delay of minBytesPerTrigger, which is not set"),
        ({"minBytesPerTrigger": "1k", "maxTriggerDelay": "5"}, "maxTriggerDelay must be a duration such as 500ms, 30s"),
        ({"maxRowsPerPartition": "0"}, "maxRowsPerPartition must be above 0 (got '0')"),
        ({"maxRowsPerPartition": "5", "rows": "frames"}, "maxRowsPerPartition counts messages"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss must be true or false (got 'yes')"),
    ],
)
def test_a_wrong_option_is_named_as_the_user_wrote_it(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_options({"path": "/data"} | options)
    assert sentence in str(caught.value)


def test_a_delay_is_written_as_for_kafka() -> None:
    read = {
        text: parse_options({"path": "x", "minBytesPerTrigger": "1", "maxTriggerDelay": text}).max_trigger_delay_ns
        for text in ("500ms", "2s", "15m", "1h")
    }
    assert list(read.values()) == [500 * 10**6, 2 * 10**9, 900 * 10**9, 3600 * 10**9]


def batch_reader(path: Any, **options: str) -> Any:
    source = RecordingSource({"path": str(path), "parallelism": "2"} | options)
    return source.reader(StructType([StructField("position", LongType(), False)]))


def rows_of(reader: Any) -> list[int]:
    return [sum(batch.num_rows for batch in reader.read(part)) for part in reader.partitions()]


def test_a_task_reads_only_its_share_of_messages(path: Any) -> None:
    assert max(rows_of(batch_reader(path))) > 70
    sizes = rows_of(batch_reader(path, maxRowsPerPartition="70"))
    assert sum(sizes) == 2 * COUNT
    assert max(sizes) <= 70
    assert len(sizes) <= 2 * -(-COUNT // 70)


def test_small_pieces_share_a_task_only_within_the_limit(path: Any) -> None:
    sizes = rows_of(batch_reader(path, maxRowsPerPartition="70", toPosition="3200"))
    assert max(sizes) <= 70
    assert sum(sizes) == 2 * 19


def test_too_many_tasks_are_refused(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.spark.sources.planning.MAX_TASKS", 100)
    with pytest.raises(ConfigurationError, match="maxRowsPerPartition needs more than 100 tasks"):
        batch_reader(path, maxRowsPerPartition="1").partitions()


def test_without_limits_a_stream_continues_where_the_last_micro_batch_ended(path: Any) -> None:
    source = RecordingSource({"path": str(path), "parallelism": "2"})
    names = StructType([StructField("position", LongType(), False)])

    def inner() -> RecordingStreamReader:
        return RecordingStreamReader(source._options(names), {"position": False})

    def count(parts: Any, reader: Any) -> int:
        return sum(batch.num_rows for part in parts for batch in reader.read(part))

    reader = WithoutLimits(inner())
    start = reader.initialOffset()
    end = reader.latestOffset()
    assert count(reader.partitions(start, end), reader) == 2 * COUNT
    assert reader.latestOffset() == end
    reader.stop()
    # After a restart whose last micro-batch was committed, Spark first asks for the latest offset.
    again = WithoutLimits(inner())
    latest = again.latestOffset()
    assert latest == end
    assert count(again.partitions(end, latest), again) == 0
    again.stop()


@pytest.mark.parametrize("name", ["maxBytesPerTrigger", "maxrowspertrigger", "minBytesPerTrigger"])
def test_a_spark_version_without_limits_refuses_their_options(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "HAS_READ_LIMITS", False)
    with pytest.raises(ConfigurationError, match=r"(?i)" + name + r": Spark .* has no limits for Python sources"):
        stream_reader(object(), {name: "1"}, RecordingOptions)  # type: ignore[arg-type]
    assert isinstance(stream_reader(object(), {}, RecordingOptions), WithoutLimits)  # type: ignore[arg-type]


def test_the_reason_is_the_last_mainstem_error() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n'
        "mainstem.errors.StoreError: the cause\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "mainstem.errors.RecordingError: /data holds no recordings\n"
        " SQLSTATE: XXKST\n=== Streaming Query ===\nCurrent State: mainstem.errors.RecordingError: elsewhere\n"
    )
    assert root_cause(RuntimeError(text)) == "/data holds no recordings"
    assert root_cause(ConfigurationError("path: none")) == "path: none"
    assert root_cause(RuntimeError("[A_CODE] another\nmore")) == "[A_CODE] another"


FAILED = "[STREAM_FAILED] Query [id = b4177a9c, runId = d5d890ef] terminated with exception: "
PLAN = "\n SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: tides\nTraceback: none\n"
TRACE = 'Traceback (most recent call last):\n  File "t.py", line 9\n    raise\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"{FAILED}[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1) ==\n1 div 0{PLAN}",
            "[DIVIDE_BY_ZERO] Division by zero.",
        ),
        (
            f"{FAILED}[PYTHON_EXCEPTION] {TRACE}ValueError: boom at 3\nline 2\n SQLSTATE: 38000{PLAN}",
            "ValueError: boom at 3",
        ),
        (
            f"{TRACE}KeyError: 1\n\nDuring handling:\n\n{TRACE}OSError: [Errno 28] No space\n",
            "OSError: [Errno 28] No space",
        ),
        ("", "RuntimeError"),
    ],
)
def test_the_root_cause_of_a_foreign_error_is_what_was_raised(text: str, sentence: str) -> None:
    assert root_cause(RuntimeError(text)) == sentence
