"""A reader of a store and its tail while segments are shipped, compacted and deleted, and the recorder ends and starts again."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.support.shipping import TERM, ManualClock, MemoryStore, Station, payloads, shipper

from mainstem.errors import RecordingError, StoreError
from mainstem.recording import RecordingReader, messages
from mainstem.recording.archive import local_archive
from mainstem.recording.shipping.compaction import compact
from mainstem.recording.shipping.local_retention import LocalRetention
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.tiered_archive import TieredArchive

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("seed", range(4))
def test_every_message_is_read_once_and_in_order(tmp_path: Path, seed: int) -> None:
    rng, clock, store = random.Random(seed), ManualClock(), MemoryStore()
    station = Station(tmp_path, clock, segment_length=TERM)
    ship = shipper(tmp_path, store, clock, keep=LocalRetention(nbytes=3 * TERM))
    station.send(payloads(60, seed=seed))
    ship.drain()

    def send() -> None:
        station.send(payloads(rng.randrange(1, 60), seed=rng.randrange(1 << 30), first=len(station.sent)))

    def put() -> None:
        clock.advance(20)
        ship.do_work(drains=rng.random() < 0.5)

    def merge() -> None:
        compact(store, ship.identity.id, clock.epoch_ns)

    def collect() -> None:
        clock.advance(4000)
        ship.do_work()

    def restart() -> None:
        if rng.random() < 0.5:
            station.stop()
        else:
            os.close(station.recorder._directory._lock)  # killed: nothing else is closed
        station.restart()
        station.stream.position = station.writer.position

    changes = [send, send, put, put, merge, collect, restart]
    archive = TieredArchive(ShippedArchive(store, ship.identity.id, clock=clock), local_archive(tmp_path))
    seen: list[bytes] = []
    errors, position = 0, 0
    for _ in range(40):
        archive.refresh()
        (descriptor,) = archive.recordings()
        with RecordingReader(archive, descriptor) as reader:
            end = reader.end_position()
            assert end == station.writer.position
            rows: list[bytes] = []
            try:
                for number, (_, payload) in enumerate(messages(reader, position, end)):
                    rows.append(payload)
                    if number == 5:
                        rng.choice(changes)()
            except (RecordingError, StoreError):
                errors += 1
                continue
        seen += rows
        position = end
        # Whatever changes meanwhile, a range that was read without an error is complete.
        assert seen == station.sent[: len(seen)]
        for _ in range(rng.randrange(4)):
            rng.choice(changes)()
    assert len(seen) > 100
    assert errors < 20
    assert ship.counts.segments_deleted
    station.stop()
    ship.close()
