"""Across kills and failures, every message is shipped once and in order, and no manifest refers to missing objects."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.case_selection import long_after
from tests.support.shipping import (
    Killed,
    ManualClock,
    MemoryStore,
    Station,
    check_integrity,
    fail,
    payloads,
    shipped,
    shipper,
)

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.recording.shipping.compaction import compact, remove_orphans
from mainstem.recording.shipping.local_retention import LocalRetention
from mainstem.recording.shipping.retrying_store import RetryingStore
from mainstem.recording.shipping.shipped_retention import remove
from mainstem.recording.shipping.status import ShippingStats

if TYPE_CHECKING:
    from mainstem.recording.shipping.shipper import ArchiveShipper

SEEDS = int(os.environ.get("MAINSTEM_SHIPPING_SEEDS", "20"))


class FaultyStore(MemoryStore):
    """A store that fails randomly, before or after an operation, and stops working at a given operation."""

    def __init__(self, files: dict[str, bytes], rng: random.Random, rate: float, dies_at: int | None) -> None:
        super().__init__(files)
        self.rng, self.rate, self.left = rng, rate, dies_at
        self.dead = False
        self._lock = threading.Lock()
        self.fault = self._fault

    def _fault(self, operation: str, name: str, is_before: bool) -> None:
        with self._lock:
            if self.left is not None:
                self.left -= 1
                self.dead = self.dead or self.left < 0
            if self.dead:
                raise Killed
            draw = self.rng.random()
        if draw < self.rate:
            raise fail(f"{operation} {name}: 500" if is_before else f"{operation} {name}: timed out")

    def put(self, name: str, data: bytes | Path) -> None:
        with self._lock:
            draw = self.rng.random()
        if draw < self.rate:
            # Only half of the object is stored, with or without an error.
            content = data.read_bytes() if isinstance(data, Path) else data
            super().put(name, content[: len(content) // 2])
            if draw < self.rate / 2:
                raise fail(f"put {name}: connection reset")
            return
        super().put(name, data)


def retrying(store: MemoryStore, rng: random.Random) -> RetryingStore:
    return RetryingStore(
        store,
        clock=SYSTEM_CLOCK,
        rng=rng,
        counts=ShippingStats(),
        ends=lambda: False,
        first_wait_s=0.0001,
        max_wait_s=0.001,
    )


class World:
    """Two recorders that ship to one store, with faults in an order drawn from a seed."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng, self.clock = random.Random(seed), ManualClock()
        self.files: dict[str, bytes] = {}
        self.stations = [Station(directory / name, self.clock, session_id=i) for i, name in enumerate("ab")]
        self.shippers: list[ArchiveShipper | None] = [None, None]
        self.ids: list[str] = ["", ""]
        self.removed = [False, False]
        self.keeps = self.rng.random() < 0.5
        self.rests: list[list[object]] = [[], []]

    def store(self) -> RetryingStore:
        rng = random.Random(self.rng.random())
        dies_at = rng.randrange(400) if rng.random() < 0.7 else None
        return retrying(FaultyStore(self.files, rng, rng.choice((0.0, 0.1, 0.3)), dies_at), rng)

    def ship(self, i: int) -> None:
        ship = self.shippers[i]
        try:
            if ship is None:
                keep = LocalRetention(age_ns=20_000_000_000) if self.keeps else None
                ship = shipper(self.stations[i].directory, self.store(), self.clock, keep=keep)
                self.shippers[i], self.ids[i] = ship, ship.identity.id
            ship.do_work(drains=self.rng.random() < 0.2)
        except Killed:
            self.kill(i)

    def kill(self, i: int) -> None:
        ship = self.shippers[i]
        if ship is not None:
            store = ship._store.inner  # type: ignore[attr-defined]
            store.dead = True
            ship.close()  # release the lock, as the kernel does
            self.shippers[i] = None

    def maintain(self, i: int) -> None:
        if not self.ids[i]:
            return
        store = self.store()
        try:
            if self.rng.random() < 0.5:
                compact(store, self.ids[i], self.clock.epoch_ns, grace_ns=10**9)
            elif self.rng.random() < 0.5:
                position = self.stations[i].writer.position * self.rng.random()
                remove(store, self.ids[i], lambda entry, pages: int(position), self.clock.epoch_ns(), grace_ns=10**9)
                self.removed[i] = True
            else:
                remove_orphans(store, self.ids[i], self.clock.epoch_ns(), age_ns=0)
        except Killed:
            pass

    def step(self) -> None:
        i = self.rng.randrange(2)
        station = self.stations[i]
        action = self.rng.randrange(10)
        if action < 3:
            station.send(
                payloads(self.rng.randrange(1, 120), seed=self.rng.randrange(1 << 30), first=len(station.sent))
            )
        elif action < 6:
            self.ship(i)
        elif action == 6:
            self.clock.advance(self.rng.choice((1, 5, 11)))
        elif action == 7:
            self.kill(i)
        elif action == 8:
            station.stop()
            if self.rng.random() < 0.5:
                self.ship(i)
            station.restart()
        else:
            self.maintain(i)

    def check(self) -> None:
        store = MemoryStore(self.files)
        for archive_id, station, removed in zip(self.ids, self.stations, self.removed, strict=True):
            if archive_id and any(name.startswith(f"{archive_id}/manifests/") for name in self.files):
                check_integrity(store, archive_id)
                seen = shipped(store, archive_id=archive_id)
                first = station.sent.index(seen[0]) if seen else 0
                assert first == 0 or removed
                assert seen == station.sent[first : first + len(seen)]

    def end(self) -> None:
        store = MemoryStore(self.files)
        for i, station in enumerate(self.stations):
            self.kill(i)
            station.stop()
            with_end = shipper(station.directory, store, self.clock)
            with_end.drain()
            with_end.close()
            self.ids[i] = with_end.identity.id
            seen = shipped(store, archive_id=self.ids[i])
            assert seen[-1:] == station.sent[-1:]
        self.check()


@pytest.mark.parametrize("seed", long_after(4, range(SEEDS)))
def test_each_message_is_shipped_once_across_kills_and_failures(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    for _ in range(60):
        world.step()
        world.check()
    world.end()


def operations_of_a_round(directory: Path) -> int:
    clock, store = ManualClock(), MemoryStore()
    station = Station(directory, clock)
    station.send(payloads(150))
    ship = shipper(directory, store, clock)
    ship.drain()
    station.send(payloads(150, seed=2))
    ship.drain()
    ship.close()
    station.stop()
    return 2 * len(store.operations)


def test_a_kill_at_any_operation_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    count = operations_of_a_round(tmp_path / "count")
    assert count > 40
    for at in range(count):
        clock, files = ManualClock(), dict[str, bytes]()
        station = Station(tmp_path / str(at), clock)
        store = FaultyStore(files, random.Random(at), 0.0, at)
        ship = None
        station.send(payloads(150))
        try:
            ship = shipper(station.directory, store, clock, uploads=1)
            ship.drain()
            station.send(payloads(150, seed=2))
            ship.drain()
        except Killed:
            pass
        assert ship is not None
        assert store.dead or at > count // 2
        ship.close()
        station.send(payloads(30, seed=3))
        rest = MemoryStore(files)
        again = shipper(station.directory, rest, clock, uploads=1)
        again.drain()
        check_integrity(rest, again.identity.id)
        assert shipped(rest) == station.sent
        # No unreferenced segment objects remain; pages and lists of a failed attempt may.
        names = {name.partition("/")[2] for name in files}
        referred = {chunk.name for chunk in again.manifest.recordings[0].tree.tail}
        assert {name for name in names if name.endswith(".seg")} == referred
        again.close()
        station.stop()
