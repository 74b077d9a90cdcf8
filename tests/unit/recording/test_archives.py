"""Remote recordings: the same rows, positions, times and problems as a mapped directory."""

from __future__ import annotations

import os
import random
import resource
import threading
from concurrent.futures import wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.support.remote_store import RemoteStore
from tests.support.streams import Stream, record
from tests.support.waiting import STALL_S

from mainstem.errors import ConfigurationError, RecordingError, StoreError
from mainstem.recording import (
    Recorder,
    RecordingReader,
    batches,
    fetching,
    find_problems,
    messages,
    open_recording,
    open_recordings,
    read_catalog,
)
from mainstem.recording import (
    open_archives as opening,
)
from mainstem.recording.archive import IDENTITY_FILE, DirectoryArchive, find_end, local_archive
from mainstem.recording.index import BLOCK_LENGTH
from mainstem.recording.open_archives import ReadOptions, open_archives

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainstem.store import Store

TERM = 65536
STREAM = {"stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}
SECOND = 1_000_000_000


def recorded(path: Path, count: int = 400, *, sessions: int = 2, stopped: bool = True) -> None:
    """Write recordings with messages of many lengths that span several segments, terms and padding frames."""
    rng = random.Random(5)
    recorder = Recorder(path, segment_length=4 * TERM)
    for session in range(sessions):
        writer = recorder.start(**STREAM, session_id=session, join_position=0)
        payloads = [rng.randbytes(rng.choice([1, 100, 1300, 4000, 7000])) for _ in range(count)]
        record(writer, Stream(session_id=session), payloads, time_ns=SECOND, step_ns=SECOND // 50)
    if stopped:
        recorder.close()


@pytest.fixture(params=[TERM, TERM - 1], ids=["whole terms", "whole frames"])
def small_ranges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ranges that end inside frames and padding, with terms short enough to wait for and with terms too long for it."""
    monkeypatch.setattr(fetching, "MAX_TERM_WAITED_FOR", request.param)
    monkeypatch.setattr(fetching, "FIRST_RANGE_BYTES", 4096)
    monkeypatch.setattr(fetching, "RANGE_BYTES", 12_288)


@pytest.fixture
def pair(tmp_path: Path, small_ranges: None) -> Iterator[tuple[list[RecordingReader], list[RecordingReader]]]:
    """Readers of the same recordings, mapped and remote."""
    recorded(tmp_path / "rec")
    archive = DirectoryArchive(RemoteStore(tmp_path / "rec"))
    here = list(open_recordings(tmp_path / "rec"))
    there = [RecordingReader(archive, descriptor) for descriptor in archive.recordings()]
    yield here, there
    for reader in [*here, *there]:
        reader.close()


def test_a_remote_recording_has_the_rows_of_a_mapped_one(
    pair: tuple[list[RecordingReader], list[RecordingReader]],
) -> None:
    for here, there in zip(*pair, strict=True):
        assert (there.start_position, there.end_position()) == (here.start_position, here.end_position())
        begin, end = here.start_position, here.end_position()
        assert list(messages(there, begin, end)) == list(messages(here, begin, end))
        for frames in (False, True):
            rows = [
                [
                    ({k: bytes(v) for k, v in columns.items()}, n)
                    for columns, n in batches(reader, begin, end, frames=frames, rows=97)
                ]
                for reader in (here, there)
            ]
            assert [n for _, n in rows[0]] == [n for _, n in rows[1]]
            assert [c["payload"] for c, _ in rows[0]] == [c["payload"] for c, _ in rows[1]]
            assert [c["position"] for c, _ in rows[0]] == [c["position"] for c, _ in rows[1]]


def test_positions_times_and_cuts_are_those_of_a_mapped_one(
    pair: tuple[list[RecordingReader], list[RecordingReader]],
) -> None:
    here, there = pair[0][0], pair[1][0]
    end = here.end_position()
    assert there.cuts(0, end, 7) == here.cuts(0, end, 7)
    assert there.messages_before(end) == here.messages_before(end)
    assert there.advance(0, end, max_messages=123) == here.advance(0, end, max_messages=123)
    for time_ns in range(SECOND, 12 * SECOND, SECOND):
        assert there.position_at_time(time_ns) == here.position_at_time(time_ns)
        assert there.stamped_since(time_ns) == here.stamped_since(time_ns)
    assert there.recorded_time_ns(end) == here.recorded_time_ns(end)


def test_a_changed_byte_and_a_missing_segment_are_faults(tmp_path: Path, small_ranges: None) -> None:
    recorded(tmp_path / "rec", sessions=1)
    archive = DirectoryArchive(RemoteStore(tmp_path / "rec"))
    (descriptor,) = archive.recordings()
    bases = list(archive.segments(descriptor))
    with (tmp_path / "rec" / f"0-{bases[0]}.rec").open("r+b") as file:
        file.seek(20_000)
        byte = file.read(1)
        file.seek(20_000)
        file.write(bytes([byte[0] ^ 1]))
    (tmp_path / "rec" / f"0-{bases[1]}.rec").unlink()
    archive.refresh()
    with (
        RecordingReader(archive, descriptor) as there,
        RecordingReader(local_archive(tmp_path / "rec"), descriptor) as here,
    ):
        end = there.end_position()
        kinds = [(problem.kind, problem.position) for problem in find_problems(there, 0, end)]
        assert kinds == [(problem.kind, problem.position) for problem in find_problems(here, 0, end)]
        assert {"checksum", "missing"} <= {kind for kind, _ in kinds}
        with pytest.raises(RecordingError, match=r"segment remote://rec/0-\d+\.rec is missing"):
            list(messages(there, 0, end))
        assert list(batches(there, 0, end, strict=False))


def test_a_corrupt_frame_is_reported_at_its_position(tmp_path: Path, small_ranges: None) -> None:
    recorded(tmp_path / "rec", sessions=1)
    archive = DirectoryArchive(RemoteStore(tmp_path / "rec"))
    (descriptor,) = archive.recordings()
    with RecordingReader(archive, descriptor) as reader:
        at = reader.advance(0, reader.end_position(), max_bytes=30_000)
    with (tmp_path / "rec" / "0-0.rec").open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 32)
    with (
        RecordingReader(archive, descriptor) as there,
        RecordingReader(local_archive(tmp_path / "rec"), descriptor) as here,
    ):
        found = [next(find_problems(reader, 0, reader.end_position(), checksums=False)) for reader in (here, there)]
    assert (found[0].kind, found[0].position) == (found[1].kind, found[1].position)
    assert found[1].position == at


def test_the_end_of_an_unindexed_recording_is_found_by_ranges(tmp_path: Path, small_ranges: None) -> None:
    recorded(tmp_path / "rec", sessions=1, stopped=False)
    (tmp_path / "rec" / "0.mainstem-positions").unlink()
    (descriptor,) = read_catalog(tmp_path / "rec")
    archive = DirectoryArchive(RemoteStore(tmp_path / "rec"))
    assert find_end(archive, descriptor) == find_end(local_archive(tmp_path / "rec"), descriptor)
    with (
        RecordingReader(archive, descriptor) as there,
        RecordingReader(local_archive(tmp_path / "rec"), descriptor) as here,
    ):
        assert there.end_position() == here.end_position() > 0


def test_a_growing_remote_recording_is_followed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "rec", segment_length=4 * TERM)
    stream = Stream(session_id=7)
    writer = recorder.start(**STREAM, session_id=7, join_position=0)
    archive = DirectoryArchive(RemoteStore(tmp_path / "rec"))
    record(writer, stream, [bytes(100)] * 10)
    (descriptor,) = archive.recordings()
    with RecordingReader(archive, descriptor) as reader:
        first = reader.end_position()
        assert reader.messages_before(first) == 10
        record(writer, stream, [bytes(1000)] * 1000)
        assert reader.end_position() > first
        archive.refresh()
        assert reader.walk(0, reader.end_position()).messages == 1010
    recorder.close()


def test_a_lookup_fetches_little_of_a_long_segment(tmp_path: Path) -> None:
    with Recorder(tmp_path / "rec", segment_length=512 * TERM) as recorder:
        writer = recorder.start(**STREAM, session_id=7, join_position=0)
        record(writer, Stream(session_id=7), [bytes(1300)] * 20_000)
    store = RemoteStore(tmp_path / "rec")
    archive = DirectoryArchive(store)
    (descriptor,) = archive.recordings()
    store.reads.clear()
    with RecordingReader(archive, descriptor) as reader:
        reader.advance(0, reader.end_position(), max_bytes=10_000_000)
    assert sum(min(end, store.size(name)) - start for name, start, end in store.reads) < 2 * BLOCK_LENGTH + (512 << 10)


def test_a_long_segment_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "RANGE_BYTES", 1 << 20)
    with Recorder(tmp_path / "rec", segment_length=2048 * TERM) as recorder:
        writer = recorder.start(**STREAM, session_id=7, join_position=0)
        block = [os.urandom(1300)] * 48
        for _ in range(1500):
            record(writer, _again(writer.position), block)
    archive = DirectoryArchive(RemoteStore(tmp_path / "rec"))
    (descriptor,) = archive.recordings()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with RecordingReader(archive, descriptor) as reader:
        assert reader.walk(0, reader.end_position()).messages == 1500 * 48
    # `ru_maxrss` is in kilobytes; the segment has 100 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000


def _again(position: int) -> Stream:
    return Stream(session_id=7, position=position)


def test_one_listing_serves_until_it_is_refreshed(tmp_path: Path) -> None:
    recorded(tmp_path / "rec", count=5, sessions=3)
    store = RemoteStore(tmp_path / "rec")
    archive = DirectoryArchive(store)
    for descriptor in archive.recordings():
        assert list(archive.segments(descriptor)) == [0]
    assert store.lists == 1
    archive.refresh()
    assert archive.segments(archive.recordings()[0]) == {0: 4 * TERM}
    assert store.lists == 2


def test_an_archive_has_the_identity_in_its_file(tmp_path: Path) -> None:
    recorded(tmp_path / "rec", count=1)
    archive = local_archive(tmp_path / "rec")
    assert (archive.archive_id, archive.host) == (str(tmp_path / "rec"), "")
    (tmp_path / "rec" / IDENTITY_FILE).write_text('{"id": "7f3a", "host": "north"}')
    archive = local_archive(tmp_path / "rec")
    assert (archive.archive_id, archive.host) == ("7f3a", "north")
    (tmp_path / "rec" / IDENTITY_FILE).write_text("[]")
    with pytest.raises(RecordingError, match="not a JSON object"):
        _ = local_archive(tmp_path / "rec").archive_id


def test_only_changed_entries_of_a_catalog_are_decoded(tmp_path: Path) -> None:
    recorded(tmp_path / "rec", count=1, sessions=3)
    archive = DirectoryArchive(RemoteStore(tmp_path / "rec"))
    before = archive.recordings()
    assert archive.recordings() is before
    with Recorder(tmp_path / "rec", segment_length=4 * TERM) as recorder:
        recorder.start(**STREAM, session_id=9, join_position=0)
        after = archive.recordings()
    assert [each.session_id for each in after] == [0, 1, 2, 9]
    assert all(old is new for old, new in zip(before, after, strict=False))
    assert after == read_catalog(tmp_path / "rec")[:3] + after[3:]


def test_a_location_without_a_catalog_holds_no_recordings(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="remote://none holds no recordings"):
        DirectoryArchive(RemoteStore(tmp_path / "none")).recordings()


class Counted(DirectoryArchive):
    """An archive that tracks which instances are open."""

    opened: ClassVar[list[Counted]] = []

    def __init__(self, store: Store, *, keep_listing: bool = False) -> None:
        super().__init__(store, keep_listing=keep_listing)
        self.opened.append(self)

    def close(self) -> None:
        super().close()
        if self in self.opened:
            self.opened.remove(self)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    """The archives that are currently open."""
    monkeypatch.setattr(opening, "DirectoryArchive", Counted)
    monkeypatch.setattr(Counted, "opened", [])
    return Counted.opened


def test_a_failed_open_leaves_nothing_open(tmp_path: Path, counted: list[Counted]) -> None:
    recorded(tmp_path / "rec", 10)
    with open_recordings(tmp_path / "rec") as recordings:
        assert (len(recordings), len(counted)) == (2, 1)
    assert not counted
    with pytest.raises(RecordingError, match="has no recording 7"):
        open_recording(tmp_path / "rec", 7)
    assert not counted
    with pytest.raises(RecordingError, match="holds no recordings"):
        open_recordings(tmp_path / "none")
    assert not counted
    # An index is opened when it is needed to read its recording.
    (tmp_path / "rec" / "1.mainstem-positions").unlink()
    (tmp_path / "rec" / "1.mainstem-positions").mkdir()
    with open_recordings(tmp_path / "rec") as recordings, pytest.raises(RecordingError, match="not a regular file"):
        recordings.scan().to_arrow()
    assert not counted


def test_a_tail_is_opened_for_an_archive_that_is_there(tmp_path: Path, counted: list[Counted]) -> None:
    recorded(tmp_path / "rec", 10)
    options = ReadOptions.parse({"tail": "http://127.0.0.1:1", "tail.none": "1"})
    assert open_archives(tmp_path / "none", replace(options, allow_missing=True)) == []
    with pytest.raises(ConfigurationError, match="no option"):
        open_archives(tmp_path / "rec", options)
    assert not counted
    (archive,) = open_archives(tmp_path / "rec", ReadOptions.parse({"tail": str(tmp_path / "rec")}))
    assert len(counted) == 2
    archive.close()
    assert not counted


def test_a_long_segment_is_read_through_one_ring_which_is_kept(tmp_path: Path, small_ranges: None) -> None:
    length = 64 * TERM
    with Recorder(tmp_path, segment_length=length) as recorder:
        writer = recorder.start(**STREAM, session_id=1, join_position=0)
        rng = random.Random(2)
        payloads = [rng.randbytes(rng.choice([1, 100, 7000])) for _ in range(1500)]
        record(writer, Stream(session_id=1), payloads)
    archive = DirectoryArchive(RemoteStore(tmp_path))
    (descriptor,) = archive.recordings()
    memories = set()
    for _ in range(2):
        with RecordingReader(archive, descriptor) as reader:
            read = []
            for run in reader.ranges(0, reader.end_position()):
                memories.add(id(run.memory))
                assert len(run.memory) < length // 10
                # The offset within the term is the same in memory and in the file.
                assert (run.offset - run.position) % TERM == 0
                read.append(bytes(run.memory[run.offset : run.limit]))
    assert len(memories) == 1
    assert b"".join(read) == (tmp_path / "0-0.rec").read_bytes()[: descriptor.stop_position]


def test_a_ring_of_which_a_view_is_left_does_not_break_the_next_reader(tmp_path: Path, small_ranges: None) -> None:
    recorded(tmp_path)
    archive = DirectoryArchive(RemoteStore(tmp_path))
    segment = archive.segment(archive.recordings()[0], 0)
    left = memoryview(segment.memory)
    segment.close()
    other = fetching.FetchedSegment("other", len(left) // 2, lambda start, end: bytes(end - start), term_mask=TERM - 1)
    assert len(other.memory) == len(left) // 2
    other.close()
    left.release()


def test_no_headers_are_read_to_find_the_last_frame_but_those_of_the_first_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "FIRST_RANGE_BYTES", 4096)
    monkeypatch.setattr(fetching, "RANGE_BYTES", 12_288)
    recorded(tmp_path, sessions=1)
    walked: list[int] = []
    boundary = fetching.FetchedSegment._boundary

    def counted(self: Any, memory: Any, begin: int, limit: int) -> int:
        walked.append(limit - begin)
        return boundary(self, memory, begin, limit)

    monkeypatch.setattr(fetching.FetchedSegment, "_boundary", counted)
    archive = DirectoryArchive(RemoteStore(tmp_path))
    (descriptor,) = archive.recordings()
    with RecordingReader(archive, descriptor) as reader:
        ends = [run.position + run.limit - run.offset for run in reader.ranges(0, reader.end_position())]
        segments = -(-ends[-1] // descriptor.segment_file_length)
    assert walked == [4096] * segments
    assert len(ends) > 3 * segments
    assert sum(end % TERM != 0 for end in ends) <= segments + 1


def test_a_ring_that_is_being_written_is_not_used_again(tmp_path: Path, small_ranges: None) -> None:
    recorded(tmp_path, sessions=1)
    data = (tmp_path / "0-0.rec").read_bytes()
    late, under_way = threading.Event(), threading.Event()

    def fetch_into(start: int, buffer: memoryview) -> int:
        if start > 20_000:
            under_way.set()
            assert late.wait(STALL_S)
        elif start:
            assert under_way.wait(STALL_S)
            raise StoreError("remote://rec", "away")
        buffer[:] = data[start : start + len(buffer)]
        return len(buffer)

    def fetch(start: int, end: int) -> bytes:
        return data[start:end]

    for is_late in (True, False):
        segment = fetching.FetchedSegment("0-0.rec", len(data), fetch, term_mask=TERM - 1, fetch_into=fetch_into)
        memory, chunks = segment.memory, segment.chunks(0, len(data))
        next(chunks)
        with pytest.raises(StoreError, match="away"):
            next(chunks)
        if not is_late:
            late.set()
            for future in segment._running:
                wait([future], STALL_S)
        segment.close()
        assert any(memory is each for each in fetching._kept) is not is_late


@pytest.mark.parametrize("stopped", [True, False])
def test_a_segment_that_is_replaced_while_it_is_read_ends_the_scan(
    stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two archives with equal ids, a reader never gets rows of both, nor a message with bytes of both."""
    monkeypatch.setattr(fetching, "FIRST_RANGE_BYTES", 4096)
    monkeypatch.setattr(fetching, "RANGE_BYTES", 4096)
    recorded(tmp_path / "a", sessions=1, stopped=stopped)
    recorded(tmp_path / "b", sessions=1)
    name = "0-0.rec"

    class Replaced(RemoteStore):
        def read(self, file: str, start: int, end: int) -> bytes:
            if file == name and start == TERM:
                os.replace(tmp_path / "b" / name, tmp_path / "a" / name)
            return super().read(file, start, end)

    archive = DirectoryArchive(Replaced(tmp_path / "a"))
    (descriptor,) = archive.recordings()
    with (
        RecordingReader(archive, descriptor) as reader,
        pytest.raises(StoreError, match=f"{name} was replaced or changed while it was read"),
    ):
        list(messages(reader, 0, reader.end_position()))
