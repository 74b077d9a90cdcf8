"""Errors keep their type, text and facts on their way through Spark's workers, as they do in `pickle`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.test_error_copies import all_error_classes, example, facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_error_keeps_its_facts_in_sparks_workers(spark: SparkSession) -> None:
    sent = [example(kind) for kind in all_error_classes()]
    received = spark.sparkContext.parallelize(sent, 2).map(lambda error: error).collect()
    assert [facts(error) for error in received] == [facts(error) for error in sent]
