"""Tables on an object store: written by tasks, committed once and compacted, using Mainstem's names for store options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.object_stores import make_bucket, s3_options, s3_server
from typer.testing import CliRunner

from mainstem.cli import build
from mainstem.errors import ConfigurationError

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("pyspark")

from tests.support.table_batches import QUERY, SIMPLE, batch, files

from mainstem.spark.formats.delta import DeltaTable
from mainstem.spark.formats.iceberg import IcebergTable, open_catalog
from mainstem.spark.formats.storage_options import delta_options, iceberg_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as server:
        yield server


def commit(table: Any, batch_id: int) -> bool:
    return bool(table.commit(QUERY, batch_id, files(table, batch_id, [batch([batch_id], "a/b")])))


def options(endpoint: str) -> list[str]:
    return [text for name, value in s3_options(endpoint).items() for text in ("--store-option", f"{name}={value}")]


def compact(*arguments: str) -> dict[str, int]:
    result = CliRunner().invoke(build(["compact"]), ["compact", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    counts: dict[str, int] = json.loads(result.output)
    return counts


def test_a_delta_table_on_s3(endpoint: str) -> None:
    import deltalake

    url, store = f"s3a://{make_bucket(endpoint)}/lake/tides", s3_options(endpoint)
    table = DeltaTable(url, store, ["place"])
    table.prepare(SIMPLE, evolve=False)
    for number in range(3):
        assert commit(table, number)
        assert not commit(table, number)
    assert compact(url, *options(endpoint))["replaced"] == 3
    lake = deltalake.DeltaTable(url.replace("s3a", "s3"), storage_options=delta_options(url, store))
    rows = lake.to_pyarrow_table().to_pylist()
    assert sorted(row["n"] for row in rows) == [0, 1, 2]
    assert {row["place"] for row in rows} == {"a/b"}


def test_an_iceberg_table_on_s3_with_a_catalog_elsewhere(endpoint: str, tmp_path: Path) -> None:
    url, store = f"s3://{make_bucket(endpoint)}/lake", s3_options(endpoint)
    catalog_options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    catalog = open_catalog(url, options=catalog_options, store=store)
    try:
        table = IcebergTable(lambda: catalog, "sea.tides", ["place"])
        table.prepare(SIMPLE, evolve=False)
        for number in range(3):
            assert commit(table, number)
            assert not commit(table, number)
        assert table.compact(keep_s=0).deleted == 6
        assert sorted(table.existing().scan().to_arrow().column("n").to_pylist()) == [0, 1, 2]
        assert table.existing().location().startswith(url)
    finally:
        catalog.close()


def test_compact_is_a_command_for_both_formats(tmp_path: Path) -> None:
    delta = DeltaTable(str(tmp_path / "delta"))
    catalog = open_catalog(str(tmp_path / "warehouse"))
    iceberg = IcebergTable(lambda: catalog, "sea.tides")
    for table in (delta, iceberg):
        table.prepare(SIMPLE, evolve=False)
        for number in range(3):
            commit(table, number)
    catalog.close()
    assert compact(str(tmp_path / "delta")) == {"replaced": 3, "by": 1, "deleted": 0}
    assert compact(str(tmp_path / "warehouse"), "--table", "sea.tides", "--delete-older-than", "0s") == {
        "replaced": 3,
        "by": 1,
        "deleted": 3,
    }


def test_an_option_without_a_counterpart_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="deltalake has no counterpart of the option 'role_arn'"):
        delta_options("s3://bucket/x", {"role_arn": "arn"})
    with pytest.raises(ConfigurationError, match="no option 'color'"):
        iceberg_options("s3://bucket/x", {"color": "blue"})
    assert delta_options("abfs://c@acc.dfs.core.windows.net/x", {"sas_token": "t"}) == {
        "azure_storage_account_name": "acc",
        "azure_storage_sas_token": "t",
    }
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert iceberg_options("s3://bucket/x", {"region": "eu-1"})["s3.proxy-uri"] == "http://proxy:3128"
    local = {"endpoint_override": "127.0.0.1:9000", "scheme": "http"}
    assert "s3.proxy-uri" not in iceberg_options("s3://bucket/x", local)
    assert iceberg_options("gs://bucket/x", {"access_token": "t"}) == {"gcs.oauth2.token": "t"}
    assert delta_options("gs://bucket/x", {"anonymous": "true"}) == {"google_skip_signature": "true"}
