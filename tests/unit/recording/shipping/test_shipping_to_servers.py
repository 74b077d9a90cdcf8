"""Shipping to S3 and Azure servers: put, commit, compact and remove with the real client."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.support.object_stores import (
    azurite_options,
    azurite_server,
    make_bucket,
    make_container,
    s3_options,
    s3_server,
)
from tests.support.shipping import ManualClock, Station, payloads, shipped, shipper

from mainstem.recording.shipping.compaction import compact
from mainstem.recording.shipping.manifest import CommitConflictError, ManifestLog, collect_garbage
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.shipping.shipped_retention import before_time, remove
from mainstem.recording.shipping.verify_shipped import find_archive_problems
from mainstem.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainstem.store import Store


@pytest.fixture(params=["s3", "azure"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "s3":
        with s3_server() as endpoint:
            yield open_store(f"s3://{make_bucket(endpoint)}/tides", s3_options(endpoint))
    else:
        with azurite_server() as endpoint:
            yield open_store(f"abfs://{make_container(endpoint)}/tides", azurite_options(endpoint))


def test_a_recording_is_shipped_to_a_server_and_maintained_there(tmp_path: Path, store: Store) -> None:
    clock = ManualClock()
    station = Station(tmp_path, clock)
    ship = shipper(tmp_path, store, clock)
    for hour in range(3):
        station.send(payloads(80, seed=hour))
        clock.advance(3600)
        ship.do_work(drains=True)
    assert shipped(store) == station.sent
    archive_id = ship.identity.id
    assert compact(store, archive_id, clock.epoch_ns, grace_ns=0).objects >= 2
    assert shipped(store) == station.sent
    assert remove(store, archive_id, before_time(clock.epoch_ns()), clock.epoch_ns(), grace_ns=0)
    assert collect_garbage(ManifestLog(store, archive_id), clock.epoch_ns())[1] > 0
    seen = shipped(store)
    assert seen == station.sent[-len(seen) :]
    assert list(find_archive_problems(ShippedArchive(store, archive_id), frames=True)) == []
    ship.close()
    # Of two shippers, the one that started first stops.
    stale = ship.manifest
    again = shipper(tmp_path, store, clock)
    again.drain()
    chain = ManifestLog(store, archive_id)
    with suppress(CommitConflictError):
        assert not chain.put(stale.following(clock.epoch_ns()))
    assert shipped(store) == seen
