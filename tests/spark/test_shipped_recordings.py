"""Spark reads a shipped recording as it grows, and retention by the query's checkpoint removes what the query has committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.shipping import TERM, ManualClock, Station, payloads, shipper

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.shipping.shipped_retention import before_committed, remove
from mainstem.spark.sources.offsets import committed_positions
from mainstem.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_query_sees_each_shipped_message_once_despite_retention(spark: SparkSession, tmp_path: Path) -> None:
    store, checkpoint, table = tmp_path / "store", tmp_path / "checkpoint", str(tmp_path / "table")
    clock = ManualClock(SYSTEM_CLOCK.epoch_ns())
    station = Station(tmp_path / "recorder", clock)
    ship = shipper(station.directory, open_store(store), clock)
    archive_id = ship.identity.id
    for round_number in range(3):
        station.send(payloads(150, seed=round_number, first=len(station.sent)))
        if round_number == 2:
            station.stop()
        ship.drain()
        query = (
            spark.readStream.format("mainstem.recording")
            .load(str(store))
            .select("payload")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(table)
        )
        query.awaitTermination()
        rows = [bytes(row.payload) for row in spark.read.parquet(table).collect()]
        assert sorted(rows) == sorted(station.sent)
        committed = committed_positions(open_store(checkpoint))
        removed = remove(open_store(store), archive_id, before_committed(archive_id, committed), clock.epoch_ns())
        assert removed
        entry = ShippedArchive(open_store(store), archive_id).entry(0)
        assert entry.end - 2 * TERM <= entry.start <= entry.end
    assert entry.start == entry.end  # it has ended, and all of it has been committed
