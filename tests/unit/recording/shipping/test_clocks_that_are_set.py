"""Setting the wall clock neither stops shipping nor changes the lag: durations are measured with the monotonic clock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support.shipping import TERM, ManualClock, MemoryStore, Station, payloads, shipped, shipper

from mainstem.recording import read_catalog
from mainstem.recording.index import LocalIndex
from mainstem.recording.segments import segment_name, segments_of
from mainstem.recording.shipping.layout import archive_ids
from mainstem.recording.shipping.local_retention import LocalRetention
from mainstem.recording.shipping.manifest import ManifestLog
from mainstem.recording.shipping.shipped_retention import before_time, remove

if TYPE_CHECKING:
    from pathlib import Path

HOUR_S = 3600
either_way = pytest.mark.parametrize("set_by", [-HOUR_S, HOUR_S], ids=["back", "forward"])


@either_way
def test_the_rest_is_shipped_in_time_and_the_lag_stays_right(tmp_path: Path, set_by: int) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    ship = shipper(tmp_path, store, clock)
    station.send(payloads(3))
    ship.drain()
    clock.advance(1)
    ship.do_work()
    station.send(payloads(3, seed=2))
    ship.do_work()  # the bytes wait from here on
    clock.set_by(set_by)
    clock.advance(2)
    assert ship.status().lag_seconds == pytest.approx(2)
    ship.do_work()
    clock.advance(9)
    ship.do_work()
    assert shipped(store) == station.sent
    ship.close()


@either_way
def test_bytes_recorded_after_the_clock_was_set_are_shipped_in_time(tmp_path: Path, set_by: int) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    ship = shipper(tmp_path, store, clock)
    station.send(payloads(3))
    ship.drain()
    clock.set_by(set_by)
    for round_number in range(3):
        ship.do_work()
        station.send(payloads(3, seed=round_number + 2))
        ship.do_work()
        clock.advance(4)
        assert ship.status().lag_seconds == pytest.approx(4)
        clock.advance(6)
        ship.do_work()
        assert shipped(store) == station.sent
    ship.close()


def test_a_shipper_that_starts_after_the_clock_was_set_back_ships_in_time(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    station.send(payloads(3))
    clock.set_by(-HOUR_S)
    ship = shipper(tmp_path, store, clock)
    ship.do_work()
    clock.advance(10)
    assert ship.status().lag_seconds == pytest.approx(10)
    ship.do_work()
    assert shipped(store) == station.sent
    ship.close()


@either_way
def test_segments_stay_and_go_at_their_age(tmp_path: Path, set_by: int) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock, segment_length=TERM)
    station.send(payloads(150))
    (descriptor,) = read_catalog(tmp_path)
    bases = segments_of(tmp_path, descriptor)
    for base in bases:
        os.utime(tmp_path / segment_name(0, base), ns=(clock.epoch_ns(), clock.epoch_ns()))
    ship = shipper(tmp_path, store, clock, keep=LocalRetention(age_ns=600 * 10**9))
    ship.drain()
    clock.set_by(set_by)
    clock.advance(590)
    ship.do_work()
    assert segments_of(tmp_path, descriptor) == bases
    clock.advance(20)
    ship.do_work()
    assert segments_of(tmp_path, descriptor) == bases[-1:]
    ship.close()


@either_way
def test_removed_objects_stay_for_their_grace_period(tmp_path: Path, set_by: int) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    station.send(payloads(150))
    ship = shipper(tmp_path, store, clock)
    ship.drain()
    clock.advance(1)
    remove(store, archive_ids(store)[0], before_time(clock.epoch_ns()), clock.epoch_ns(), grace_ns=600 * 10**9)
    station.send(payloads(2, seed=2))
    ship.drain()
    assert ship.manifest.garbage
    clock.set_by(set_by)
    clock.advance(590)
    ship.do_work()
    assert ship.manifest.garbage
    clock.advance(20)
    ship.do_work()
    assert not ship.manifest.garbage
    assert not ManifestLog(store, archive_ids(store)[0]).latest().garbage  # type: ignore[union-attr]
    ship.close()


def test_the_recorded_time_does_not_decrease(tmp_path: Path) -> None:
    clock = ManualClock()
    station = Station(tmp_path, clock)
    station.send(payloads(3))
    before_ns = clock.epoch_ns()
    clock.set_by(-HOUR_S)
    station.send(payloads(3, seed=2))
    index = LocalIndex(tmp_path, 0)
    assert index.recorded_time_ns == before_ns
    index.close()
    station.stop()
