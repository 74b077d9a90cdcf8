"""A recording stays the same when an archive extends it, and each of its rows has the session that published it."""

from __future__ import annotations

import shutil
import zlib
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from tests.support.extended_recordings import SEGMENT, ExtendedRecording
from tests.support.shipping import ManualClock, MemoryStore, shipper
from tests.support.tiered_archive import Away
from tests.support.waiting import wait_for

from mainstem._core.log.checksums import CRC32C, FrameChecksum
from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.recording import RecordingReader, find_problems, messages, open_recordings
from mainstem.recording.archive import local_archive
from mainstem.recording.catalog import Catalog
from mainstem.recording.identity import is_stored_identity
from mainstem.recording.offline_maintenance import Maintenance
from mainstem.recording.recordings import Recordings
from mainstem.recording.sessions import has_one_session, sessions_at
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.tiered_archive import TieredArchive
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.recording.archive import Archive

FIRST = [b"a%05d" % i * (1 + i % 300) for i in range(300)]
SECOND = [b"b%05d" % i * (1 + i % 200) for i in range(100)]
THIRD = [b"c%05d" % i for i in range(10)]

both = pytest.mark.parametrize("is_aeron", [False, True], ids=["mainstem", "aeron"])


@pytest.fixture
def extended(tmp_path: Path, is_aeron: bool) -> ExtendedRecording:
    """A recording of three sessions, the last of which is the first one again."""
    recording = ExtendedRecording(tmp_path / "archive", is_aeron=is_aeron)
    recording.record(77, FIRST)
    recording.record(-8, SECOND)
    recording.record(77, THIRD)
    return recording


def rows(archive: Archive, **options: Any) -> list[tuple[int, bytes]]:
    readers = [RecordingReader(archive, each) for each in archive.recordings()]
    with Recordings(readers, [archive]) as recordings:
        table = recordings.scan(["session_id", "payload"], **options).to_arrow()
    return list(zip(table["session_id"].to_pylist(), table["payload"].to_pylist(), strict=True))


@both
def test_rows_have_the_session_of_their_range(extended: ExtendedRecording) -> None:
    archive = local_archive(extended.directory)
    assert rows(archive) == extended.sent
    assert [session for session, _ in rows(archive, frames=True)][: len(FIRST)] == [77] * len(FIRST)
    for chosen in ([77], [-8], [-8, 77], [9]):
        found = rows(archive, where=[("session_id", "in", chosen)])
        assert found == [row for row in extended.sent if row[0] in chosen]


@both
def test_a_filter_on_sessions_reads_only_their_ranges(extended: ExtendedRecording) -> None:
    with open_recordings(extended.directory) as recordings:
        first, second = extended_at(recordings[0])
        end = recordings[0].end_position()
        assert [span[1:] for span in recordings.spans([("session_id", "=", -8)])] == [(first, second)]
        assert [span[1:] for span in recordings.spans([("session_id", "=", 77)])] == [(0, first), (second, end)]
        assert not has_one_session(recordings[0])
        assert sessions_at(recordings[0], first) == (77, -8)
        assert sessions_at(recordings[0], first - 32) in ((77, 77), (77, 77))
        assert sessions_at(recordings[0], end) == (77, None)
        assert sessions_at(recordings[0], 0) == (None, 77)


def extended_at(reader: RecordingReader) -> tuple[int, int]:
    ends = [position for position, _ in messages(reader, 0, reader.end_position())]
    return ends[len(FIRST) - 1], ends[len(FIRST) + len(SECOND) - 1]


@both
def test_a_recording_that_was_not_extended_has_one_session(tmp_path: Path, is_aeron: bool) -> None:
    ExtendedRecording(tmp_path, is_aeron=is_aeron).record(77, FIRST)
    with open_recordings(tmp_path) as recordings:
        assert has_one_session(recordings[0])
        assert list(recordings.spans([("session_id", "=", 78)])) == []


@both
def test_checksums_in_place_of_session_ids_are_not_sessions(extended: ExtendedRecording) -> None:
    with Maintenance(extended.directory) as maintenance:
        maintenance.store_checksums(extended.descriptor, FrameChecksum(CRC32C), everywhere=True)
    found = rows(local_archive(extended.directory))
    # Aeron's files then say nothing about earlier sessions.
    assert found == [(77 if extended.is_aeron else session, payload) for session, payload in extended.sent]


@both
def test_an_extended_recording_is_shipped_and_its_tail_is_the_same(tmp_path: Path, is_aeron: bool) -> None:
    directory = tmp_path / "archive"
    recording = ExtendedRecording(directory, is_aeron=is_aeron)
    recording.record(77, FIRST)
    store, clock = MemoryStore(), ManualClock()
    ship = shipper(directory, store, clock)
    ship.drain()
    recording.record(-8, SECOND, stops=False)
    tiered = TieredArchive(ShippedArchive(store, ship.identity.id), local_archive(directory))
    assert rows(tiered) == recording.sent
    ship.drain()
    assert rows(ShippedArchive(store, ship.identity.id)) == recording.sent
    ship.close()
    recording.record(9, THIRD)
    ship = shipper(directory, store, clock)
    ship.drain()
    ship.close()
    for archive in (ShippedArchive(store, ship.identity.id), tiered):
        archive.refresh()
        assert rows(archive) == recording.sent
        for chosen in (77, -8, 9):
            found = rows(archive, where=[("session_id", "=", chosen)])
            assert found == [row for row in recording.sent if row[0] == chosen]
        (descriptor,) = archive.recordings()
        with RecordingReader(archive, descriptor) as reader:
            assert list(find_problems(reader, 0, reader.end_position())) == []


@both
def test_a_shipped_recording_that_was_truncated_and_then_extended_is_refused(tmp_path: Path, is_aeron: bool) -> None:
    recording = ExtendedRecording(tmp_path / "archive", is_aeron=is_aeron)
    recording.record(77, FIRST)
    store, clock = MemoryStore(), ManualClock()
    ship = shipper(recording.directory, store, clock)
    ship.drain()
    recording.record(77, SECOND)
    ship.drain()
    shipped = rows(ShippedArchive(store, ship.identity.id))
    recording.truncate(20)
    recording.record(-8, FIRST)
    ship.drain()
    ship.close()
    (text,) = ship.blocked
    assert "is not the one that was shipped: positions" in text
    assert rows(ShippedArchive(store, ship.identity.id)) == shipped


def test_a_tail_that_is_away_keeps_what_it_had_after_an_extension(tmp_path: Path) -> None:
    recording = ExtendedRecording(tmp_path / "archive", is_aeron=False)
    recording.record(77, FIRST)
    store = MemoryStore()
    ship = shipper(recording.directory, store, ManualClock())
    ship.drain()
    ship.close()
    recording.record(-8, SECOND, stops=False)
    tail = Away(LocalStore(recording.directory))
    tiered = TieredArchive(ShippedArchive(store, ship.identity.id), tail)
    (descriptor,) = tiered.recordings()
    (end,) = tiered.recorded_positions([descriptor])
    tail.is_away = True
    tiered.refresh()
    (descriptor,) = tiered.recordings()
    assert descriptor.stop_position == -1
    assert tiered.recorded_positions([descriptor]) == [end]


# -- another recording with the same id --------------------------------------------------------------------------------


@both
def test_an_extension_keeps_the_identity_and_another_recording_has_another(tmp_path: Path, is_aeron: bool) -> None:
    recording = ExtendedRecording(tmp_path / "archive", is_aeron=is_aeron)
    recording.record(77, FIRST)
    first = recording.descriptor
    recording.record(-8, SECOND)
    extended = recording.descriptor
    assert extended.session_id == -8
    assert extended.identity == first.identity
    with closing(Catalog(recording.directory)) as catalog:
        catalog.set_start(extended, SEGMENT)
        at = catalog.recordings()[0].entry_offset
        for _ in catalog.replace_entry(
            lambda: at, lambda now: replace(now, original_channel="aeron:ipc?alias=two"), lambda *_: None
        ):
            pass
    assert recording.descriptor.identity == first.identity, "purging and another channel leave the recording the same"
    shutil.rmtree(recording.directory)
    wait_for(lambda: SYSTEM_CLOCK.epoch_ms() > first.start_timestamp, "a later start")
    again = ExtendedRecording(recording.directory, is_aeron=is_aeron)
    again.record(77, FIRST)
    assert again.descriptor.identity != first.identity
    for change in ({"initial_term_id": 9}, {"stream_id": 9}, {"start_timestamp": 9}, {"term_buffer_length": 1 << 20}):
        assert replace(first, **change).identity != first.identity


def test_identities_of_earlier_releases_are_recognized(tmp_path: Path) -> None:
    recording = ExtendedRecording(tmp_path / "archive", is_aeron=True)
    recording.record(77, FIRST)
    start = recording.descriptor.start_timestamp
    before = f"{start}/77/aeron:ipc"
    recording.record(-8, SECOND)
    d = recording.descriptor
    assert is_stored_identity(before, d)
    assert is_stored_identity(str(d.identity), d)
    assert is_stored_identity(d.identity.checksum, d)
    # The checksum covers the session, so it takes the one that the frames have.
    assert is_stored_identity(zlib.crc32(f"{start}/-8/aeron:ipc".encode()), d)
    assert not is_stored_identity(zlib.crc32(before.encode()), d)
    assert is_stored_identity(zlib.crc32(before.encode()), d, [77])
    for other in (f"{start + 1}/77/aeron:ipc", f"{start}/77/aeron:udp", "", "1/2", 7):
        assert not is_stored_identity(other, d, [77])
