"""Shipped directories are readable from the store, and only recorded, due and complete data is shipped."""

from __future__ import annotations

import gc
import json
import logging
import random
import shutil
import threading
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.shipping import (
    STREAM,
    TERM,
    ManualClock,
    MemoryStore,
    Station,
    check_integrity,
    fail,
    payloads,
    shipped,
    shipper,
)
from tests.support.waiting import STALL_S

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.errors import RecordingError, StoreError
from mainstem.recording import Recorder, RecordingReader, open_recording, open_recordings, read_catalog
from mainstem.recording.archive import IDENTITY_FILE, local_archive
from mainstem.recording.index import index_file
from mainstem.recording.segments import segment_name, segments_of
from mainstem.recording.shipping import local_retention
from mainstem.recording.shipping.layout import archive_ids
from mainstem.recording.shipping.local_retention import LocalRetention
from mainstem.recording.shipping.manifest import CommitConflictError, ManifestLog
from mainstem.recording.shipping.page_tree import Pages, between
from mainstem.recording.shipping.retrying_store import RetryingStore, ShippingEnded
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.shipping.status import ShippingStats
from mainstem.store import StoredFile, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_recordings_are_read_back_from_the_store(tmp_path: Path) -> None:
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
    (descriptor,) = ShippedArchive(store, ship.identity.id).recordings()
    assert descriptor == read_catalog(tmp_path)[0]
    check_integrity(store, ship.identity.id)
    assert ship.do_work() == 0
    ship.close()


def test_a_local_store_is_read_by_url_and_mapped(tmp_path: Path) -> None:
    clock, store = ManualClock(), tmp_path / "store"
    station = Station(tmp_path / "recorder", clock)
    station.send(payloads(300))
    station.stop()
    ship = shipper(station.directory, open_store(store), clock, chunk_size=1 << 20)
    ship.drain()
    for url in (str(store), store.as_uri(), str(store / ship.identity.id)):
        (reader,) = open_recordings(url)
        with reader, RecordingReader(local_archive(station.directory), reader.descriptor) as local:
            assert reader.messages_before(reader.end_position()) == 300
            for start, end in local.cuts(0, local.end_position(), 7):
                assert reader.checksum(start, end) == local.checksum(start, end)
    with open_recording(store, 0) as reader:
        assert reader.messages_before(reader.end_position()) == 300


def test_a_full_chunk_is_shipped_at_once_and_the_rest_after_roll_after(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    ship = shipper(tmp_path, store, clock)
    station.send(payloads(1))
    ship.do_work()  # the recording exists, but none of it is due
    assert shipped(store) == []
    while station.writer.position < 45_000:
        station.send(payloads(1, first=len(station.sent)))
    ship.do_work()
    first = shipped(store)
    assert 0 < len(first) < len(station.sent)
    waited = 0
    while shipped(store) != station.sent:
        assert waited <= 10
        clock.advance(1)
        waited += 1
        ship.do_work()
    assert waited >= 4
    station.stop()
    ship.do_work()  # the end of a recording is shipped without waiting
    (descriptor,) = ShippedArchive(store, ship.identity.id).recordings()
    assert descriptor.stop_position == station.writer.position


def test_a_message_of_which_only_a_part_is_recorded_is_read_once_it_is_whole(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    station.send(payloads(3))
    rest = station.send_part(b"x" * 5000)
    ship = shipper(tmp_path, store, clock)
    ship.drain()
    assert shipped(store) == station.sent
    rest()
    ship.drain()
    assert shipped(store) == station.sent
    assert station.sent[-1] == b"x" * 5000


def test_a_recording_that_stops_and_is_extended_is_one_recording(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    ship = shipper(tmp_path, store, clock)
    for i in range(3):
        station.send(payloads(40, seed=i))
        station.stop()
        ship.do_work()
        (descriptor,) = ShippedArchive(store, ship.identity.id).recordings()
        assert descriptor.stop_position == station.writer.position
        station.restart()
        clock.advance(11)
        ship.do_work()
        (descriptor,) = ShippedArchive(store, ship.identity.id).recordings()
        assert descriptor.stop_position == -1
    ship.drain()
    assert shipped(store) == station.sent


def test_many_recordings_of_two_recorders_go_to_one_place(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    sent: dict[tuple[str, int], list[bytes]] = {}
    for name in ("a", "b"):
        with Recorder(tmp_path / name, segment_length=2 * TERM, clock=clock) as recorder:
            for session in range(300):
                recorder.start(**(STREAM | {"session_id": session}), join_position=0)
        station = Station(tmp_path / name, clock, session_id=7)
        station.send(payloads(20, seed=ord(name)))
        station.stop()
        ship = shipper(tmp_path / name, store, clock)
        ship.drain()
        sent[ship.identity.id, 7] = station.sent
        assert len(ship.manifest.pages) == 1  # ended recordings are in a page
        ship.close()
    assert len(archive_ids(store)) == 2
    for (archive_id, recording_id), messages in sent.items():
        assert shipped(store, recording_id, archive_id) == messages
        assert len(ShippedArchive(store, archive_id).recordings()) == 300
    # A recording that is in a page continues.
    station = Station(tmp_path / "a", clock, session_id=7)
    station.stream.position = station.writer.position
    station.send(payloads(5))
    again = shipper(tmp_path / "a", store, clock)
    again.drain()
    assert shipped(store, 7, again.identity.id) == sent[again.identity.id, 7] + station.sent
    check_integrity(store, again.identity.id)


def test_a_recording_of_aeron_archive_without_an_index_is_shipped(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    station.send(payloads(200))
    station.stop()
    index_file(tmp_path, 0).unlink()
    ship = shipper(tmp_path, store, clock)
    ship.drain()
    assert shipped(store) == station.sent
    archive = ShippedArchive(store, ship.identity.id)
    with RecordingReader(archive, archive.recordings()[0]) as reader:
        assert not reader.has_times


def test_segments_deleted_before_shipping_are_counted_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    station.send(payloads(30))
    ship = shipper(tmp_path, store, clock)
    ship.drain()
    end = station.writer.position
    station.send(payloads(300, seed=2))
    (descriptor,) = read_catalog(tmp_path)
    for base in segments_of(tmp_path, descriptor)[:2]:
        (tmp_path / segment_name(0, base)).unlink()
    with caplog.at_level(logging.WARNING):
        ship.drain()
    assert ship.counts.lost_bytes == 4 * TERM - end
    assert "were deleted before they were shipped" in caplog.text
    archive = ShippedArchive(store, ship.identity.id)
    entry = archive.entry(0)
    assert entry.end == station.writer.position
    with RecordingReader(archive, archive.recordings()[0]) as reader, open_recording(tmp_path, 0) as local:
        assert reader.checksum(4 * TERM, entry.end) == local.checksum(4 * TERM, entry.end)
        with pytest.raises(RecordingError, match=r"ends at .* bytes, before position"):
            reader.checksum(0, entry.end)
        assert reader.boundary_after(end, entry.end) == 4 * TERM


def test_two_shippers_of_one_directory_exclude_each_other(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    Station(tmp_path, clock).stop()
    first = shipper(tmp_path, store, clock)
    with pytest.raises(RecordingError, match=r"is already being shipped by process \d+ on "):
        shipper(tmp_path, store, clock)
    first.close()
    shipper(tmp_path, store, clock).close()


def test_the_shipper_of_a_copied_directory_takes_over_and_the_other_ends_with_both_names(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path / "a", clock)
    station.send(payloads(50))
    first = shipper(tmp_path / "a", store, clock)
    first.drain()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    second = shipper(tmp_path / "b", store, clock)
    second.drain()
    station.send(payloads(50, seed=2))
    with pytest.raises(CommitConflictError) as lost:
        first.drain()
    assert str(tmp_path / "a") in str(lost.value)
    assert str(tmp_path / "b") in str(lost.value)
    assert shipped(store) == station.sent[:50]


def test_a_directory_with_different_content_is_not_shipped_further(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    for name, seed in (("a", 1), ("b", 2)):
        station = Station(tmp_path / name, clock)
        station.send(payloads(50, seed=seed))
        if name == "b":
            shutil.copy(tmp_path / "a" / IDENTITY_FILE, tmp_path / "b" / IDENTITY_FILE)
            station.send(payloads(50, seed=3))
        ship = shipper(tmp_path / name, store, clock)
        ship.drain()
        if name == "a":
            sent = station.sent
    assert "positions" in ship.blocked[0]
    assert "differ" in ship.blocked[0]
    assert shipped(store) == sent
    assert ship.counts.errors > 0


def test_a_directory_recreated_under_the_same_id_is_refused(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path / "a", clock)
    station.send(payloads(50))
    ship = shipper(tmp_path / "a", store, clock)
    ship.drain()
    clock.advance(1)
    other = Station(tmp_path / "b", clock)
    other.send(payloads(80))
    shutil.copy(tmp_path / "a" / IDENTITY_FILE, tmp_path / "b" / IDENTITY_FILE)
    ship = shipper(tmp_path / "b", store, clock)
    ship.drain()
    assert "is not the one that was shipped" in ship.blocked[0]
    assert shipped(store) == station.sent


def test_an_invalid_identity_is_an_error(tmp_path: Path) -> None:
    Station(tmp_path, ManualClock()).stop()
    (tmp_path / IDENTITY_FILE).write_text(json.dumps({"id": "../..", "host": "x"}))
    with pytest.raises(RecordingError, match="not an archive id"):
        shipper(tmp_path, MemoryStore(), ManualClock())


class LateListing(MemoryStore):
    """A store whose listings omit the newest objects."""

    late = 0

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        files = list(super().list(prefix, recursive=recursive))
        return iter(files[: len(files) - self.late])


def test_a_shipper_that_begins_sees_commits_that_no_listing_shows_yet(tmp_path: Path) -> None:
    clock, store = ManualClock(), LateListing()
    station = Station(tmp_path, clock)
    ship = shipper(tmp_path, store, clock)
    for i in range(5):
        station.send(payloads(20, seed=i))
        ship.drain()
    ship.close()
    store.late = 3
    station.send(payloads(20, seed=9))
    again = shipper(tmp_path, store, clock)
    again.drain()
    store.late = 0
    assert shipped(store) == station.sent
    check_integrity(store, again.identity.id)


def test_a_writer_that_fills_a_gap_far_below_the_present_has_lost(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    ship = shipper(tmp_path, store, clock)
    ship.drain()
    stale = ship.manifest
    for i in range(40):
        station.send(payloads(2, seed=i))
        ship.drain()
    chain = ManifestLog(store, ship.identity.id)
    assert len(chain.numbers()) == 32
    with pytest.raises(CommitConflictError, match="too late"):
        chain.put(stale.following(clock.epoch_ns()))
    assert shipped(store) == station.sent


def test_segments_are_deleted_only_when_they_are_shipped_old_and_not_read(tmp_path: Path) -> None:
    clock, store = ManualClock(SYSTEM_CLOCK.epoch_ns()), MemoryStore()
    station = Station(tmp_path, clock)
    station.send(payloads(300))
    (descriptor,) = read_catalog(tmp_path)
    bases = segments_of(tmp_path, descriptor)
    ship = shipper(tmp_path, store, clock, keep=LocalRetention(age_ns=3600 * 10**9))
    ship.drain()
    assert segments_of(tmp_path, descriptor) == bases
    clock.advance(7200)
    with open_recording(tmp_path, 0) as reader:
        runs = reader.ranges(bases[1], bases[2])
        next(runs)
        ship.do_work()
        # The first segment is deleted. The second is being read, so the third stays too.
        assert segments_of(tmp_path, descriptor) == bases[1:]
    del runs
    gc.collect()
    clock.advance(11)
    ship.do_work()
    assert segments_of(tmp_path, descriptor) == bases[-1:]
    assert ship.counts.segments_deleted == len(bases) - 1
    # Unshipped segments stay, however old they are.
    count = len(station.sent)
    station.send(payloads(200, seed=4))
    store.fault = lambda operation, name, is_before: (_ for _ in ()).throw(fail("away"))
    clock.advance(7200)
    with pytest.raises(Exception, match="away"):
        ship.do_work()
    assert len(segments_of(tmp_path, descriptor)) > 2
    store.fault = lambda operation, name, is_before: None
    ship.drain()
    assert shipped(store) == station.sent
    assert len(station.sent) == count + 200
    station.stop()
    # The recorder continues a recording that has only its last segment left.
    station.restart()
    station.send(payloads(20, seed=5))
    ship.drain()
    assert shipped(store) == station.sent


def test_the_youngest_segments_stay_up_to_a_size(tmp_path: Path) -> None:
    clock, store = ManualClock(SYSTEM_CLOCK.epoch_ns()), MemoryStore()
    station = Station(tmp_path, clock)
    station.send(payloads(500))
    (descriptor,) = read_catalog(tmp_path)
    bases = segments_of(tmp_path, descriptor)
    ship = shipper(tmp_path, store, clock, keep=LocalRetention(nbytes=5 * TERM))
    ship.drain()
    left = segments_of(tmp_path, descriptor)
    assert left == bases[-len(left) :]
    assert sum((tmp_path / segment_name(0, base)).stat().st_blocks * 512 for base in left) <= 5 * TERM
    assert shipped(store) == station.sent


def test_local_retention_counts_segments_that_are_not_shipped_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    station = Station(tmp_path, ManualClock())
    station.send(payloads(800))
    (descriptor,) = read_catalog(tmp_path)
    bases = segments_of(tmp_path, descriptor)
    sizes = [(tmp_path / segment_name(0, base)).stat().st_blocks * 512 for base in bases]
    assert len(bases) > 5
    monkeypatch.setattr(local_retention, "_is_shipped", lambda _, __, base, ___: base <= bases[2])
    keep = LocalRetention(nbytes=sum(sizes[2:]))
    times = local_retention.KnownTimes(ManualClock())
    deleted = local_retention.delete_shipped(tmp_path, [(descriptor, None)], keep, None, times)  # type: ignore[list-item, arg-type]
    assert deleted == (2, sum(sizes[:2]))


def test_bandwidth_is_bounded(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    station.send(payloads(400))
    begin_ns = clock.now_ns
    ship = shipper(tmp_path, store, clock, bytes_per_second=100_000, roll_after_ns=10**12)
    ship.drain()
    seconds = (clock.now_ns - begin_ns) / 1e9
    assert ship.counts.bytes_shipped / seconds < 1.1 * 100_000
    assert shipped(store) == station.sent


@pytest.mark.long
def test_memory_stays_flat_while_the_store_is_unreachable(tmp_path: Path) -> None:
    clock, store, counts = ManualClock(), MemoryStore(), ShippingStats()
    retry_count = 0

    def away(operation: str, name: str, is_before: bool) -> None:
        raise fail("connection refused")

    def is_over() -> bool:
        return counts.retries >= retry_count

    station = Station(tmp_path, clock)
    retrying = RetryingStore(
        store,
        clock=SYSTEM_CLOCK,
        rng=random.Random(1),
        counts=counts,
        ends=is_over,
        first_wait_s=0.0,
        max_wait_s=0.0,
    )
    retry_count = 1 << 60
    ship = shipper(tmp_path, retrying, clock, counts=counts)
    ship.drain()
    store.fault = away
    peaks = []
    tracemalloc.start()
    try:
        for i in range(6):
            # Each outage lasts hundreds of attempts, and each time about one more segment is recorded.
            station.send(payloads(150, seed=i))
            retry_count = counts.retries + 300
            gc.collect()
            tracemalloc.reset_peak()
            base = tracemalloc.get_traced_memory()[0]
            with pytest.raises(ShippingEnded):
                ship.do_work(drains=True)
            peaks.append(tracemalloc.get_traced_memory()[1] - base)
    finally:
        tracemalloc.stop()
    assert max(peaks[3:]) < 1.3 * max(peaks[:2]) + 100_000
    store.fault = lambda operation, name, is_before: None
    retry_count = 1 << 60
    ship.drain()
    assert shipped(store) == station.sent


def test_a_refusing_store_is_retried_a_limited_number_of_times(tmp_path: Path) -> None:
    clock, store, counts = ManualClock(), MemoryStore(), ShippingStats()

    def refuses(operation: str, name: str, is_before: bool) -> None:
        if operation == "put":
            raise StoreError(store.url, "access denied")

    store.fault = refuses
    station = Station(tmp_path, clock)
    station.send(payloads(1))
    arguments: dict[str, Any] = {"rng": random.Random(1), "counts": counts, "ends": lambda: False, "first_wait_s": 0}
    ship = shipper(tmp_path, RetryingStore(store, clock=SYSTEM_CLOCK, attempts=3, **arguments), clock, counts=counts)
    with pytest.raises(StoreError, match=r"^memory://store: access denied$"):
        ship.drain()
    assert (counts.errors, counts.retries) == (3, 2)


def test_the_status_shows_how_long_a_store_has_failed(tmp_path: Path) -> None:
    clock, store, counts = ManualClock(), MemoryStore(), ShippingStats()
    attempts: list[float] = []

    def refuses(operation: str, name: str, is_before: bool) -> None:
        if is_before and operation.startswith("put") and len(attempts) < 5:
            attempts.append(ship.status().store_failing_seconds)
            clock.advance(60)
            raise StoreError(store.url, "access denied")

    station = Station(tmp_path, clock)
    station.send(payloads(1))
    arguments: dict[str, Any] = {"rng": random.Random(1), "counts": counts, "ends": lambda: False}
    retrying = RetryingStore(store, clock=clock, first_wait_s=0, max_wait_s=0, timeout_s=3600, **arguments)
    ship = shipper(tmp_path, retrying, clock, counts=counts)
    store.fault = refuses
    ship.drain()
    assert attempts == [0, 0, 60, 120, 180]
    assert ship.status().store_failing_seconds == 0
    assert shipped(store) == station.sent


def test_a_call_that_never_returns_is_abandoned(tmp_path: Path) -> None:
    clock, counts = ManualClock(), ShippingStats()
    hangs, release = threading.Event(), threading.Event()

    class Hanging(MemoryStore):
        def put(self, name: str, data: bytes | Path) -> None:
            if not hangs.is_set():
                hangs.set()
                release.wait(STALL_S)
            super().put(name, data)

    store = Hanging()
    station = Station(tmp_path, clock)
    station.send(payloads(50))
    retrying = RetryingStore(
        store,
        clock=SYSTEM_CLOCK,
        rng=random.Random(1),
        counts=counts,
        ends=lambda: False,
        timeout_s=0.2,
        first_wait_s=0,
    )
    ship = shipper(tmp_path, retrying, clock, counts=counts)
    ship.drain()
    assert shipped(store) == station.sent
    assert "has not returned" in counts.last_error
    release.set()


def test_lag_is_recorded_but_unshipped_data(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    station.send(payloads(20))
    ship = shipper(tmp_path, store, clock)
    ship.drain()
    assert (ship.status().lag_bytes, ship.status().lag_seconds) == (0, 0.0)
    shipped_position = station.writer.position
    clock.advance(3)
    station.send(payloads(2, seed=2))
    clock.advance(4)
    (lag,) = ship.status().recordings
    assert (lag.shipped_position, lag.recorded_position) == (shipped_position, station.writer.position)
    assert lag.lag_seconds == pytest.approx(4)


def test_manifest_names_outside_the_archive_are_rejected(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    station.send(payloads(50))
    ship = shipper(tmp_path, store, clock)
    ship.drain()
    (name,) = [max(each for each in store.files if "/manifests/" in each)]
    entry = ship.manifest.recordings[0]
    chunks = list(between(entry.tree, 0, entry.end, Pages(store, ship.identity.id)))
    forged, _, _ = store.files[name].replace(chunks[0].name.encode(), b"../../etc/passwd").rpartition(b',"crc32":')
    store.files[name] = forged + b',"crc32":"%08x"}' % zlib.crc32(forged)
    with pytest.raises(RecordingError, match="not a name of an archive's object"):
        shipped(store)
    for damage in (b"", b"{}", b"[1]", store.files[name][:100], b"\xff\xfe"):
        store.files[name] = damage
        with pytest.raises(RecordingError):
            shipped(store)
