"""A directory that is shipped is read back from the store, whatever happens to recorder, shipper and store meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.shipping import ManualClock, MemoryStore, Station, check_integrity, payloads, shipped, shipper

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_recorded_is_read_back_from_the_store(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    ship = shipper(tmp_path, store, clock)
    for round_number in range(5):
        station.send(payloads(100, seed=round_number))
        clock.advance(11)
        assert ship.do_work() > 0
        assert shipped(store) == station.sent
    station.stop()
    ship.do_work()
    assert shipped(store) == station.sent
    check_integrity(store, ship.identity.id)
    assert ship.do_work() == 0
    ship.close()
