"""Spark's stream reader over ``mainstem serve``, without a JVM: trigger by trigger, across restarts, with a remote tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("pyspark")

from tests.support.recording_server import RunningServer
from tests.support.tiered_archive import Tiers
from tests.unit.serve.conftest import Live

from mainstem.serve.access import Access
from mainstem.spark.sources.features import ReadAllAvailable
from mainstem.spark.sources.options import parse_options
from mainstem.spark.sources.recording import RecordingStreamReader

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {"recording_id": False, "position": False, "payload": False}
TOKEN = "0123456789abcdef-token"


class Query:
    """Runs triggers as Spark does; ``payloads`` collects the messages."""

    def __init__(self, url: str, **options: str) -> None:
        self.reader = RecordingStreamReader(parse_options({"path": url, **options}), NAMES)
        self.offset: dict[str, Any] = self.reader.initialOffset()
        self.payloads: list[bytes] = []

    def trigger(self) -> None:
        end = self.reader.latestOffset(self.offset, ReadAllAvailable())
        for partition in self.reader.partitions(self.offset, end):
            for batch in self.reader.read(partition):
                self.payloads += batch.column("payload").to_pylist()
        self.offset = end


def test_a_live_query_continues_when_the_server_restarts(tmp_path: Path) -> None:
    live = Live(tmp_path / "rec")
    live.add(100)
    with RunningServer(live.path, access=Access((TOKEN,))) as server:
        port = int(server.url.rpartition(":")[2])
        query = Query(server.url, token=TOKEN)
        query.trigger()
    for _ in range(3):
        live.add(100)
        with RunningServer(live.path, port=port, access=Access((TOKEN,))):
            query.trigger()
            live.add(50)
            query.trigger()
    expected = [b"%d" % i + b"x" * 100 for count in (100, 100, 50, 100, 50, 100, 50) for i in range(count)]
    assert query.payloads == expected
    query.reader.stop()
    live.close()


def test_a_live_query_reads_what_was_shipped_from_a_store_and_the_rest_from_a_server(tmp_path: Path) -> None:
    tiers = Tiers(tmp_path)
    tiers.add(1000)
    tiers.ship(purge=True)
    with RunningServer(tiers.tail_path, access=Access((TOKEN,))) as server:
        query = Query(str(tiers.shipped_path), **{"tail": server.url, "tail.token": TOKEN})
        for round_number in range(6):
            query.trigger()
            assert [int(payload[:6]) for payload in query.payloads] == list(range(tiers.count))
            tiers.add(700)
            tiers.ship(purge=round_number % 2 == 0)
        query.trigger()
        assert [int(payload[:6]) for payload in query.payloads] == list(range(tiers.count))
        query.reader.stop()
    tiers.close()
