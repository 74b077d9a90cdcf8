"""Retention, compaction and verification change the archive atomically while shippers and readers run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.shipping import TERM, ManualClock, MemoryStore, Station, check_integrity, payloads, shipped, shipper
from tests.support.streams import Stream

from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording import RecordingReader, open_recording
from mainstem.recording.index import LocalIndex
from mainstem.recording.shipping.compaction import Compacted, compact, remove_orphans
from mainstem.recording.shipping.local_recording import Journal
from mainstem.recording.shipping.local_retention import LocalRetention
from mainstem.recording.shipping.manifest import ManifestLog, collect_garbage
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.shipping.shipped_retention import (
    ConsumedPosition,
    before_committed,
    before_time,
    lowest,
    remove,
)
from mainstem.recording.shipping.verify_shipped import find_archive_problems
from mainstem.spark.sources.offsets import ArchiveOffset, Finished, FinishedPosition, Offset, committed_positions
from mainstem.store import StoredFile, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainstem.recording.shipping.shipper import ArchiveShipper

SEGMENT = 2 * TERM
HOUR_NS = 3600 * 10**9


def hourly(directory: Path, hours: int = 8) -> tuple[ManualClock, MemoryStore, Station, ArchiveShipper]:
    """Record and ship 60 messages per hour for `hours` hours, and leave the recording active."""
    clock, store = ManualClock(), MemoryStore()
    station = Station(directory, clock)
    ship = shipper(directory, store, clock)
    for hour in range(hours):
        station.send(payloads(60, seed=hour, first=len(station.sent)))
        clock.advance(3600)
        ship.do_work(drains=True)
    return clock, store, station, ship


def test_retention_by_time_removes_whole_segments(tmp_path: Path) -> None:
    clock, store, station, ship = hourly(tmp_path)
    archive_id = ship.identity.id
    for hours in (7, 5, 3, 1):
        limit = clock.epoch_ns() - hours * HOUR_NS
        remove(store, archive_id, before_time(limit), clock.epoch_ns())
        archive = ShippedArchive(store, archive_id)
        entry = archive.entry(0)
        assert entry.start % SEGMENT == 0
        with open_recording(tmp_path, 0) as local:
            since = local.stamped_since(limit)
            assert since is not None
            assert since - 2 * SEGMENT < entry.start <= since
        with RecordingReader(archive, archive.recordings()[0]) as reader:
            assert reader.start_position == entry.start
        seen = shipped(store)
        assert seen == station.sent[-len(seen) :]
    assert entry.start >= 2 * SEGMENT
    assert len(seen) >= 60
    check_integrity(store, archive_id)


def test_an_ended_recording_is_shipped_whole_and_may_continue(tmp_path: Path) -> None:
    clock, store, station, ship = hourly(tmp_path, 3)
    station.stop()
    ship.drain()
    remove(store, ship.identity.id, before_time(clock.epoch_ns() + HOUR_NS), clock.epoch_ns())
    assert ShippedArchive(store, ship.identity.id).recordings() == []
    count = len(station.sent)
    station.restart()
    clock.advance(60)
    station.send(payloads(90, seed=99))
    ship.drain()
    assert shipped(store) == station.sent[count:]
    assert list(find_archive_problems(ShippedArchive(store, ship.identity.id), frames=True)) == []


def test_running_readers_get_a_grace_period(tmp_path: Path) -> None:
    clock, store, station, ship = hourly(tmp_path)
    before = ShippedArchive(store, ship.identity.id)
    (descriptor,) = before.recordings()
    with RecordingReader(before, descriptor) as reader:
        remove(store, ship.identity.id, before_time(clock.epoch_ns()), clock.epoch_ns(), grace_ns=HOUR_NS)
        chain = ManifestLog(store, ship.identity.id)
        assert collect_garbage(chain, clock.epoch_ns() + HOUR_NS - 1)[1] == 0
        with open_recording(tmp_path, 0) as local:
            assert reader.checksum(0, SEGMENT) == local.checksum(0, SEGMENT)
    count = len(store.files)
    _, deleted = collect_garbage(chain, clock.epoch_ns() + HOUR_NS)
    assert deleted > 5
    assert len(store.files) < count - deleted
    check_integrity(store, ship.identity.id)
    seen = shipped(store)
    assert seen == station.sent[-len(seen) :]


def test_the_shipper_deletes_removed_objects_after_the_grace_period(tmp_path: Path) -> None:
    clock, store, station, ship = hourly(tmp_path)
    remove(store, ship.identity.id, before_time(clock.epoch_ns()), clock.epoch_ns(), grace_ns=HOUR_NS)
    station.send(payloads(2, seed=50))
    ship.drain()
    assert ship.manifest.garbage
    clock.advance(3601)
    ship.do_work()
    assert not ship.manifest.garbage
    assert not [name for name in store.files if "/garbage/" in name]
    assert shipped(store) == station.sent[-len(shipped(store)) :]


def checkpoint(directory: Path, batches: dict[int, dict[str, object]], commits: int) -> Path:
    (directory / "offsets").mkdir(parents=True)
    (directory / "commits").mkdir()
    for number, offset in batches.items():
        (directory / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset)}\n-\n')
        (directory / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in range(commits):
        (directory / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return directory


def offset_of(ship: ArchiveShipper, position: int, identity: str | None = None) -> dict[str, object]:
    d = ship.manifest.recordings[0].descriptor
    return Offset({ship.identity.id: ArchiveOffset("", {0: position}, {0: identity or str(d.identity)})}).as_json()


def test_retention_does_not_outrun_a_query(tmp_path: Path) -> None:
    clock, store, station, ship = hourly(tmp_path / "recorder")
    batches = {
        0: offset_of(ship, SEGMENT + 4096),
        1: offset_of(ship, 3 * SEGMENT + 64),
        2: offset_of(ship, 5 * SEGMENT),
    }
    directory = checkpoint(tmp_path / "checkpoint", batches, commits=2)
    committed = committed_positions(open_store(directory))
    assert [each.position for each in committed] == [3 * SEGMENT + 64]
    limit = before_committed(ship.identity.id, committed)
    slow = before_committed(ship.identity.id, [ConsumedPosition(0, committed[0].identity, SEGMENT + 32)])
    remove(store, ship.identity.id, lowest([limit, slow]), clock.epoch_ns())
    assert ShippedArchive(store, ship.identity.id).entry(0).start == SEGMENT
    remove(store, ship.identity.id, lowest([limit, before_time(clock.epoch_ns())]), clock.epoch_ns())
    assert ShippedArchive(store, ship.identity.id).entry(0).start == 3 * SEGMENT
    # The positions of other recordings, or of ones that the query has not started, allow no removal.
    for others in (
        [ConsumedPosition(0, "1/2/other", 1 << 40)],
        [ConsumedPosition(1, committed[0].identity, 1 << 40)],
        [],
    ):
        assert remove(store, ship.identity.id, before_committed(ship.identity.id, others), clock.epoch_ns()) == []
    elsewhere = [ConsumedPosition(0, committed[0].identity, 1 << 40, archive_id="f" * 32)]
    assert remove(store, ship.identity.id, before_committed(ship.identity.id, elsewhere), clock.epoch_ns()) == []
    assert shipped(store) == station.sent[-len(shipped(store)) :]


def test_offsets_of_archives_and_of_recordings_that_ended_are_read(tmp_path: Path) -> None:
    clock, store, station, ship = hourly(tmp_path / "recorder")
    station.stop()
    ship.drain()
    archive_id, identity = ship.identity.id, ship.manifest.recordings[0].descriptor.identity
    for i, (archive, end) in enumerate(((archive_id, 2 * SEGMENT), ("/data/tides", 3 * SEGMENT), ("f" * 32, 1 << 40))):
        finished = ArchiveOffset(finished=Finished({0: FinishedPosition(end, identity.checksum)}))
        growing = ArchiveOffset(positions={0: end}, identities={0: str(identity)})
        for kind, offset in (("finished", finished), ("growing", growing)):
            value = Offset({archive: offset}).as_json()
            directory = checkpoint(tmp_path / f"{kind}{i}", {0: value}, commits=1)
            committed = committed_positions(open_store(directory))
            limit = before_committed(archive_id, committed)
            remove(store, archive_id, limit, clock.epoch_ns())
        assert ShippedArchive(store, archive_id).entry(0).start == min(end, 3 * SEGMENT)


def test_a_checkpoint_without_a_commit_allows_nothing_and_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    _, _, _, ship = hourly(tmp_path / "recorder", 2)
    directory = checkpoint(tmp_path / "new", {0: offset_of(ship, SEGMENT)}, commits=0)
    assert committed_positions(open_store(directory)) == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="not a checkpoint"):
        committed_positions(open_store(tmp_path / "empty"))
    foreign = checkpoint(tmp_path / "foreign", {0: {"version": 1, "ends": {}, "identities": {}}}, commits=1)
    with pytest.raises(ConfigurationError, match="no offsets of recordings"):
        committed_positions(open_store(foreign))
    unknown = checkpoint(tmp_path / "unknown", {0: {"version": 9, "archives": {}}}, commits=1)
    with pytest.raises(ConfigurationError, match="version 9"):
        committed_positions(open_store(unknown))
    other = checkpoint(tmp_path / "other", {0: offset_of(ship, SEGMENT)}, commits=1)
    (other / "offsets" / "0").write_text("v9\n{}\n{}")
    with pytest.raises(ConfigurationError, match="format"):
        committed_positions(open_store(other))


def test_compaction_makes_one_object_of_a_segment_and_readers_see_the_same(tmp_path: Path) -> None:
    clock, store, station, ship = hourly(tmp_path)
    archive_id = ship.identity.id
    before = ShippedArchive(store, archive_id)
    chunks = before.entry(0).tree.count
    done = compact(store, archive_id, clock.epoch_ns)
    assert done.objects < done.chunks <= chunks
    after = ShippedArchive(store, archive_id)
    assert after.entry(0).tree.count == chunks - done.chunks + done.objects
    assert shipped(store) == station.sent
    for archive in (before, after):
        assert list(find_archive_problems(archive, frames=True)) == []
        with RecordingReader(archive, archive.recordings()[0]) as reader, open_recording(tmp_path, 0) as local:
            assert reader.index is not None
            assert local.index is not None
            assert reader.index.around(0, 1 << 40) == local.index.around(0, 1 << 40)
    assert compact(store, archive_id, clock.epoch_ns).objects == 0
    # The shipper continues from the manifest that compaction wrote.
    station.send(payloads(100, seed=77))
    ship.drain()
    assert shipped(store) == station.sent
    clock.advance(7200)
    ship.do_work()
    check_integrity(store, archive_id)
    assert shipped(store) == station.sent


@pytest.mark.parametrize(("damage", "problem"), [(-1, "has [0-9]+ bytes, not [0-9]+"), (0, "its checksum differs")])
def test_compaction_merges_no_damaged_object(tmp_path: Path, damage: int, problem: str) -> None:
    clock, store, _, ship = hourly(tmp_path)
    name = next(name for name in sorted(store.files) if name.endswith(".seg"))
    store.files[name] = store.files[name][:damage] if damage else bytes(100) + store.files[name][100:]
    before = dict(store.files)
    with pytest.raises(RecordingError, match=problem):
        compact(store, ship.identity.id, clock.epoch_ns)
    assert store.files == before


def test_a_shipper_that_was_killed_before_it_emptied_its_journal_leaves_what_compaction_dropped(tmp_path: Path) -> None:
    clock, store, station, ship = hourly(tmp_path)
    archive = ShippedArchive(store, ship.identity.id)
    names = [chunk.name for chunk in archive.entry(0).tree.tail]
    ship.close()
    journal = Journal(tmp_path, store.url)
    for name in [*names, "0/00000000000099999968-00000000000099999999-000000000000.seg"]:
        journal.add(name)
    compact(store, ship.identity.id, clock.epoch_ns)
    shipper(tmp_path, store, clock).drain()
    # A reader is still using the previous manifest.
    with RecordingReader(archive, archive.recordings()[0]) as reader:
        assert reader.messages_before(reader.end_position()) == len(station.sent)
        assert list(find_archive_problems(archive)) == []


def test_compaction_counts_only_what_it_has_replaced_itself(tmp_path: Path) -> None:
    clock, store, _, ship = hourly(tmp_path)
    archive_id, others = ship.identity.id, list[Compacted]()

    def now_ns() -> int:
        if not others:
            others.append(compact(store, archive_id, clock.epoch_ns))
        return clock.epoch_ns()

    assert compact(store, archive_id, now_ns) == Compacted()
    assert others[0].objects > 0
    check_integrity(store, archive_id)


def test_compaction_starts_no_segment_after_a_stop_request(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    station = Station(tmp_path, clock)
    for session_id in (77, 78):
        station.identity["session_id"], station.stream = session_id, Stream(term_length=TERM, session_id=session_id)
        station.writer = station.recorder.start(**station.identity, join_position=0)
        station.send(payloads(200, seed=session_id))
    ship = shipper(tmp_path, store, clock)
    ship.drain()
    stops = iter([False, True])
    assert compact(store, ship.identity.id, clock.epoch_ns, stops=lambda: next(stops, False)).objects == 1
    assert compact(store, ship.identity.id, clock.epoch_ns).objects > 1


def test_compaction_stops_at_a_damaged_chunk_and_changes_nothing(tmp_path: Path) -> None:
    clock, store, _, ship = hourly(tmp_path)
    name = min(name for name in store.files if name.endswith(".seg"))
    store.files[name] = store.files[name][:100] + b"!" + store.files[name][101:]
    number = ship.manifest.number
    with pytest.raises(RecordingError, match="corrupt"):
        compact(store, ship.identity.id, clock.epoch_ns)
    assert ManifestLog(store, ship.identity.id).numbers()[-1] == number


def test_verify_finds_missing_and_changed_objects(tmp_path: Path) -> None:
    _, store, _, ship = hourly(tmp_path)
    names = sorted(name for name in store.files if name.endswith(".seg"))
    assert list(find_archive_problems(ShippedArchive(store, ship.identity.id))) == []
    store.files[names[1]] = store.files[names[1]][:-1] + b"\xff"
    store.files[names[2]] = store.files[names[2]][:50]
    del store.files[names[3]]
    problems = list(find_archive_problems(ShippedArchive(store, ship.identity.id)))
    assert [problem.kind for problem in problems] == ["checksum", "missing", "missing"]
    assert [int(name.split("/")[2][:20]) for name in names[1:4]] == [problem.position for problem in problems]


class Aged(MemoryStore):
    """A store that reports objects as written at a time chosen by the test."""

    age: dict[str, int]

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        for file in super().list(prefix, recursive=recursive):
            yield StoredFile(file.name, file.size, self.age.get(file.name, 0))


def test_old_unreferenced_objects_are_removed(tmp_path: Path) -> None:
    clock, files, station, ship = hourly(tmp_path)
    store = Aged(files.files)
    day_ns = 24 * HOUR_NS
    orphans = {f"{ship.identity.id}/0/{i:020d}-{i + 1:020d}-000000000000.seg": b"x" for i in range(5)}
    store.files.update(orphans)
    young = next(iter(orphans))
    store.age = {young: clock.epoch_ns() - day_ns + 1}
    remove(store, ship.identity.id, before_time(clock.epoch_ns() - 4 * HOUR_NS), clock.epoch_ns())
    count = len(store.files)
    assert remove_orphans(store, ship.identity.id, clock.epoch_ns()) == 4
    assert len(store.files) == count - 4
    assert young in store.files
    check_integrity(store, ship.identity.id)
    assert shipped(store) == station.sent[-len(shipped(store)) :]


@pytest.mark.parametrize("removes", [False, True])
def test_the_index_in_a_store_is_searched_as_the_one_on_disk(tmp_path: Path, removes: bool) -> None:
    clock, store, station, ship = hourly(tmp_path, 12)
    if removes:
        remove(store, ship.identity.id, before_time(clock.epoch_ns() - 6 * HOUR_NS), clock.epoch_ns())
    archive = ShippedArchive(store, ship.identity.id)
    (descriptor,) = archive.recordings()
    there = archive.index(descriptor)
    here = LocalIndex(tmp_path, 0)
    assert there is not None
    start, end = archive.entry(0).start, station.writer.position
    assert there.recorded_position == here.recorded_position
    entries = [entry for entry in here.around(0, end) if entry.position >= start]
    assert there.count == len(entries)
    for position in range(start, end + 64, 7 * 32 * 101):
        for a, b in (
            (there.at_or_before(position), here.at_or_before(position)),
            (there.after(position), here.after(position)),
        ):
            assert a == b or (b is not None and b.position < start)
    for time_ns in range(clock.epoch_ns() - 6 * HOUR_NS, clock.epoch_ns(), HOUR_NS // 3):
        assert there.at_time(time_ns) == here.at_time(time_ns)
        b = here.before_time(time_ns)
        assert there.before_time(time_ns) == b or (b is not None and b.position < start)
    for messages in range(0, len(station.sent), 13):
        b = here.within(messages, end)
        assert there.within(messages, end) == b or (b is not None and b.position < start)
    assert there.around(start, end) == entries
    here.close()


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("24h", LocalRetention(age_ns=24 * HOUR_NS)),
        ("7d", LocalRetention(age_ns=168 * HOUR_NS)),
        ("90min", LocalRetention(age_ns=90 * 60 * 10**9)),
        ("30s", LocalRetention(age_ns=30 * 10**9)),
        ("100g", LocalRetention(nbytes=100 << 30)),
        ("512M", LocalRetention(nbytes=512 << 20)),
    ],
)
def test_what_stays_is_a_time_or_a_size(text: str, keep: LocalRetention) -> None:
    assert LocalRetention.parse(text, name="--local-retention") == keep


@pytest.mark.parametrize("text", ["", "h", "24 hours", "-1h", "1w", "g"])
def test_what_stays_is_nothing_else(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--local-retention"):
        LocalRetention.parse(text, name="--local-retention")
