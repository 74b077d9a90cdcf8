"""Shipping and reading when any request to an S3 server can fail: 500, 503, resets, lost responses, stale listings."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.support.case_selection import long_after
from tests.support.fault_proxy import FaultProxy, is_listing
from tests.support.object_stores import make_bucket, s3_options, s3_server
from tests.support.shipping import ManualClock, Station, payloads, shipped, shipper

from mainstem import open_recordings
from mainstem.recording.shipping.compaction import compact
from mainstem.recording.shipping.manifest import ManifestLog
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.shipping.verify_shipped import find_archive_problems
from mainstem.store import open_store
from mainstem.store import retry as retries
from mainstem.store.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainstem.store import Store

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]
SEEDS = int(os.environ.get("MAINSTEM_SERVER_FAULT_SEEDS", "3"))
ANY = ("slow_down", "internal", "reset", "lost", "cut", "trickle")
FAULTY = 0.12
STALE = 0.3


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def _brief_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the number of attempts, but shorten obstore's waits."""
    monkeypatch.setattr(retries, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(retries, "MAX_WAIT_S", 0.01)


class Way:
    """A path to a server where any request can fail and any listing can be stale."""

    def __init__(self, endpoint: str, bucket: str, seed: int) -> None:
        host, _, port = endpoint.partition(":")
        self._rng = random.Random(seed)
        self.proxy = FaultProxy((host, int(port)), self._draw)
        self._url = f"s3://{bucket}/tides"

    def _draw(self, line: bytes) -> str:
        draw = self._rng.random()
        if draw < FAULTY:
            return self._rng.choice(ANY)
        return "stale" if is_listing(line) and draw < FAULTY + STALE else "pass"

    def open(self) -> Store:
        store = open_store(self._url, s3_options(self.proxy.url))
        store._retry = Retry(sleep=lambda _: None)  # type: ignore[attr-defined]
        return store


@pytest.mark.long
@pytest.mark.parametrize("seed", long_after(1, range(SEEDS)))
def test_each_message_is_shipped_and_read_once_over_a_failing_network(tmp_path: Path, s3: str, seed: int) -> None:
    rng, clock, bucket = random.Random(seed), ManualClock(), make_bucket(s3)
    station, way = Station(tmp_path, clock), Way(s3, bucket, seed)
    with way.proxy:
        ship = shipper(tmp_path, way.open(), clock)
        for round_number in range(8):
            station.send(payloads(60, seed=100 * seed + round_number, first=len(station.sent)))
            clock.advance(20)
            ship.do_work(drains=True)
            if rng.random() < 0.4:
                # The shipper dies silently, and a new one continues from the manifest.
                ship.close()
                ship = shipper(tmp_path, way.open(), clock)
            if rng.random() < 0.4:
                compact(way.open(), ship.identity.id, clock.epoch_ns)
            # A stale listing shows an older manifest: fewer messages, but never wrong or duplicate ones.
            seen = shipped(way.open(), archive_id=ship.identity.id)
            assert seen == station.sent[: len(seen)]
        station.stop()
        ship.drain()
        ship.close()
    # Read the final state over a fault-free connection.
    clean = open_store(f"s3://{bucket}/tides", s3_options(s3))
    assert shipped(clean) == station.sent
    assert not list(find_archive_problems(ShippedArchive(clean, ship.identity.id), frames=True))
    assert ManifestLog(clean, ship.identity.id).latest() is not None
    with open_recordings(f"s3://{bucket}/tides", s3_options(s3)) as recordings:
        assert [bytes(value.as_py()) for value in recordings.scan().to_arrow()["payload"]] == station.sent
    assert way.proxy.injected["stale"]
    assert len(way.proxy.injected) >= 5, way.proxy.injected
