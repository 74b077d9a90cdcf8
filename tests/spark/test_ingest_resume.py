"""An ingest into a table that another checkpoint wrote, or whose table or checkpoint was deleted, restored or is in use."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.support.ingesting import IngestTrial, forget_last_batch, log, numbered

from mainstem.errors import ConfigurationError
from mainstem.spark.ingest.options import IngestOptions
from mainstem.spark.ingest.query import start

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]
FORMATS = ["parquet", pytest.param("delta", marks=pytest.mark.long), pytest.param("iceberg", marks=pytest.mark.long)]


@pytest.fixture(params=FORMATS)
def trial(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> IngestTrial:
    log(tmp_path / "recordings", numbered(range(30)))
    made = IngestTrial(spark, tmp_path, request.param)
    made.run()
    return made


def test_a_new_checkpoint_is_refused_and_the_old_one_continues(trial: IngestTrial) -> None:
    log(trial.root / "recordings", numbered(range(30, 40)))
    trial.refuses("already has rows, and the checkpoint .*other is new", "recordings", "other")
    trial.run()
    forget_last_batch(trial.root / "checkpoint")
    trial.run()
    assert trial.numbers() == list(range(40))


@pytest.mark.long
def test_a_second_source_is_refused_or_appended(trial: IngestTrial) -> None:
    log(trial.root / "second", numbered(range(30, 50)))
    trial.refuses("already has rows", "second", "other")
    if trial.format == "parquet":
        trial.refuses("`append` needs `format=delta` or `format=iceberg`", "second", "other", append=True)
        return
    trial.run("second", "other", append=True)
    log(trial.root / "second", numbered(range(50, 60)))
    trial.run("second", "other")
    trial.run()
    assert trial.numbers() == list(range(60))


@pytest.mark.long
def test_a_table_that_was_deleted_under_its_checkpoint_is_refused(trial: IngestTrial) -> None:
    log(trial.root / "recordings", numbered(range(30, 40)))
    shutil.rmtree(trial.table)
    trial.refuses("the table was deleted or replaced")
    # Another query has written as many micro-batches into the same place.
    trial.run("recordings", "other")
    trial.refuses("was written with another checkpoint" if trial.format == "parquet" else "deleted or replaced")
    shutil.rmtree(trial.table)
    shutil.rmtree(trial.root / "checkpoint")
    trial.run()
    assert trial.numbers() == list(range(40))


@pytest.mark.long
def test_a_checkpoint_that_was_restored_from_an_older_copy_is_refused(trial: IngestTrial) -> None:
    shutil.copytree(trial.root / "checkpoint", trial.root / "copy")
    log(trial.root / "recordings", numbered(range(30, 40)))
    trial.run()
    log(trial.root / "recordings", numbered(range(40, 50)))
    trial.refuses("was restored from an older copy", "recordings", "copy")
    trial.run()
    assert trial.numbers() == list(range(50))


@pytest.mark.long
def test_a_checkpoint_has_one_query_at_a_time(trial: IngestTrial) -> None:
    query = start(trial.spark, trial.options(follow=True, trigger_interval=0.0))
    try:
        trial.refuses("another ingest is using")
    finally:
        query.stop()
    trial.run()
    assert trial.numbers() == list(range(30))


@pytest.mark.long
def test_a_table_that_is_deleted_while_a_query_runs_ends_the_query(trial: IngestTrial) -> None:
    if trial.format == "parquet":
        pytest.skip("Spark's file sink creates its directory again; the next start finds out")
    query = start(trial.spark, trial.options(follow=True))
    try:
        query.processAllAvailable()
        trial.drop()
        log(trial.root / "recordings", numbered(range(30, 40)))
        with pytest.raises(Exception, match=r"deleted or replaced"):
            query.processAllAvailable()
    finally:
        query.stop()
    trial.refuses("the table was deleted or replaced")


@pytest.mark.long
def test_a_parquet_table_without_the_id_of_its_query_continues(spark: SparkSession, tmp_path: Path) -> None:
    log(tmp_path / "recordings", numbered(range(30)))
    trial = IngestTrial(spark, tmp_path, "parquet")
    trial.run("recordings", "table/_checkpoint")
    # Earlier versions did not write this file.
    (tmp_path / "table" / "_query.json").unlink()
    log(tmp_path / "recordings", numbered(range(30, 40)))
    trial.run("recordings", "table/_checkpoint")
    assert trial.numbers() == list(range(40))
    with pytest.raises(ConfigurationError, match="must be a local directory"):
        IngestOptions(source="recordings", out="table", checkpoint="hdfs://host/checkpoint").check()
