"""What a Spark table passes to a source when it is read, without a JVM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType
from tests.support import captures

from mainstem.errors import ConfigurationError
from mainstem.spark.option_table import delay_ns, positive, text
from mainstem.spark.option_table import table_of as options_of
from mainstem.spark.sources.capture import CaptureSource
from mainstem.spark.sources.capture_options import CaptureOptions
from mainstem.spark.sources.options import RecordingOptions
from mainstem.spark.sources.recording import RecordingSource
from mainstem.spark.sources.sql_tables import TUNING, is_secret, read_options, user_options

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.datasource import DataSource


def created(**options: str) -> dict[str, str]:
    """Return the options that Spark passes for CREATE TABLE ... OPTIONS."""
    prefixed = {f"option.{name}": value for name, value in options.items()}
    return options | prefixed | {"provider": "mainstem.recording", "owner": "root"}


@pytest.mark.parametrize(
    ("kind", "provider", "options"),
    [
        (RecordingSource, "mainstem.recording", {"option.path": "/data", "path": "file:/data"}),
        (RecordingSource, "mainstem.recording", {"location": "/data", "path": "file:/data"}),
        (CaptureSource, "mainstem.capture", {"location": "/data"}),
    ],
)
def test_the_columns_of_a_table_carry_its_options(
    kind: type[DataSource], provider: str, options: dict[str, str]
) -> None:
    columns = kind(options | {"provider": provider, "owner": "root"}).schema()
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


@pytest.mark.parametrize("kind", [RecordingOptions, CaptureOptions])
def test_only_options_that_keep_the_rows_can_be_set_when_a_table_is_read(kind: type) -> None:
    names = {each.name for each in options_of(kind).values()}
    for name in names - {"path", "paths"} | {"endpoint_override", "tail"}:
        if name.lower() in TUNING:
            read_options("mainstem.recording", {name: "1"}, table_of({"path": "/data"}))
            continue
        with pytest.raises(ConfigurationError, match=f"^{name} can only be set for the whole table"):
            read_options("mainstem.recording", {name: "1"}, table_of({"path": "/data"}))


@pytest.mark.parametrize(("source", "kind"), [(RecordingSource, RecordingOptions), (CaptureSource, CaptureOptions)])
def test_options_that_can_be_set_when_a_table_is_read_keep_the_rows(
    source: type[DataSource], kind: type, recordings: Path, tmp_path: Path
) -> None:
    capture = tmp_path / "tides.pcap"
    packet = captures.link(captures.ip(captures.udp(captures.data_frame())), captures.ETHERNET)
    capture.write_bytes(captures.pcap([packet] * 300))
    path = str(recordings if kind is RecordingOptions else capture)
    whole = rows_of(source, path=path)
    assert len(whole) >= 300
    tuning = [each for each in options_of(kind).values() if each.is_tuning]
    assert tuning
    values = {positive: "1000", delay_ns: "1s", text: str(tmp_path / "out")}
    for each in tuning:
        others = {"minBytesPerTrigger": "1"} if each.parse is delay_ns else {}
        options = {each.name: values.get(each.parse, "1000")} | others
        assert rows_of(source, path=path, **options) == whole, options


def rows_of(source: type[DataSource], **options: str) -> list[str]:
    opened: Any = source(options)
    reader = opened.reader(opened.schema())
    return sorted(repr(row) for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist())


def test_a_load_is_not_a_table() -> None:
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
