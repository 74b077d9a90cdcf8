"""Shipped data is read unchanged or raises an error, whichever byte of an object changes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.shipping import TERM, ManualClock, MemoryStore, Station, payloads, shipped, shipper

from mainstem.errors import RecordingError
from mainstem.recording import RecordingReader, SkippedRange, batches, messages
from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.fetching import CorruptRangeError
from mainstem.recording.shipping import chunk_reader, chunks
from mainstem.recording.shipping.chunk_reader import ChunkReader, MappedChunk
from mainstem.recording.shipping.chunks import BLOCK, UNKNOWN, BlockSums, Chunk, sums_of, table_length
from mainstem.recording.shipping.compaction import compact
from mainstem.recording.shipping.page_tree import between
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.shipping.verify_shipped import find_archive_problems
from mainstem.recording.tiered_archive import TieredArchive
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.store import Store

SEGMENT = 8 * TERM


class Shipped:
    """A recording of two segments and its shipped objects."""

    def __init__(self, path: Path, store: Store, *, chunk_size: int = 300_000, compacted: bool = False) -> None:
        self.clock, self.store, self.directory = ManualClock(), store, path / "dir"
        station = Station(self.directory, self.clock, segment_length=SEGMENT)
        station.send(payloads(600))
        station.stop()
        self.sent = station.sent
        ship = shipper(self.directory, store, self.clock, chunk_size=chunk_size)
        ship.drain()
        ship.close()
        self.archive_id = ship.identity.id
        if compacted:
            compact(store, self.archive_id, self.clock.epoch_ns)

    @property
    def archive(self) -> ShippedArchive:
        return ShippedArchive(self.store, self.archive_id)

    def chunks(self) -> list[Chunk]:
        archive = self.archive
        entry = archive.entry(0)
        return list(between(entry.tree, entry.start, entry.end, archive.pages))

    def name(self, chunk: Chunk) -> str:
        return f"{self.archive_id}/{chunk.name}"

    def read(self, *, strict: bool = True, skipped: list[SkippedRange] | None = None) -> list[bytes]:
        (descriptor,) = (archive := self.archive).recordings()
        with RecordingReader(archive, descriptor) as reader:
            found = []
            on_skip = None if skipped is None else skipped.append
            for columns, rows in batches(reader, 0, reader.end_position(), strict=strict, on_skip=on_skip):
                payload, lengths = bytes(columns["payload"]), memoryview(columns["payload_offsets"]).cast("i")
                found += [payload[lengths[i] : lengths[i + 1]] for i in range(rows)]
            return found


@pytest.fixture(params=["chunks", "compacted", "local", "local and compacted"])
def some(request: pytest.FixtureRequest, tmp_path: Path) -> Shipped:
    store: Any = MemoryStore() if "local" not in request.param else LocalStore(tmp_path / "store")
    return Shipped(tmp_path, store, compacted="compacted" in request.param)


def changed(store: Store, name: str, at: int) -> bytes:
    """Change a byte of an object and return the original content."""
    data = store.read(name, 0, store.size(name))
    store.put(name, data[:at] + bytes([data[at] ^ 0x11]) + data[at + 1 :])
    return data


def read_all_of(some: Shipped) -> None:
    """Read all messages and every part of the index, and check each message against the one that was sent."""
    (descriptor,) = (archive := some.archive).recordings()
    with RecordingReader(archive, descriptor) as reader:
        for number, (_, payload) in enumerate(messages(reader, 0, reader.end_position())):
            assert payload == some.sent[number]
        assert number + 1 == len(some.sent)
        for chunk in some.chunks():
            reader.recorded_time_ns(chunk.end - 32)


def test_a_changed_byte_is_an_error_and_never_data(some: Shipped) -> None:
    read_all_of(some)
    rng = random.Random(7)
    for chunk in some.chunks():
        assert chunk.checksums != UNKNOWN
        for at in [rng.randrange(chunk.size) for _ in range(6)] + [0, chunk.length, chunk.nbytes - 1, chunk.size - 1]:
            before = changed(some.store, some.name(chunk), at)
            with pytest.raises(RecordingError, match="is corrupt: the checksum of"):
                read_all_of(some)
            some.store.put(some.name(chunk), before)
    read_all_of(some)


def test_everything_around_a_damaged_block_is_read(some: Shipped) -> None:
    chunk = max(some.chunks(), key=lambda each: each.length)
    changed(some.store, some.name(chunk), 2 * BLOCK + 100)
    with pytest.raises(CorruptRangeError, match=f"positions {chunk.start + 2 * BLOCK} to {chunk.start + 3 * BLOCK}"):
        some.read()
    skipped: list[SkippedRange] = []
    found = some.read(strict=False, skipped=skipped)
    lost = [payload for payload in some.sent if payload not in set(found)]
    assert set(found) <= set(some.sent)
    # The corrupt block, and the rest of the index intervals that it overlaps.
    assert 0 < sum(map(len, lost)) < 4 * BLOCK
    assert skipped[0].start <= chunk.start + 2 * BLOCK + 100 < skipped[-1].end
    assert "is corrupt" in skipped[0].reason


def test_verify_names_the_positions_that_changed(some: Shipped) -> None:
    chunk, *_ = some.chunks()
    for at in (BLOCK, 2 * BLOCK + 5, 4 * BLOCK - 1):
        changed(some.store, some.name(chunk), at)
    problems = list(find_archive_problems(some.archive))
    assert [(problem.kind, problem.position) for problem in problems] == [("checksum", chunk.start + BLOCK)]
    assert f"positions {chunk.start + BLOCK} to {chunk.start + 4 * BLOCK}" in problems[0].text
    assert {problem.kind for problem in find_archive_problems(some.archive, frames=True)} == {"checksum"}


def test_verify_finds_a_damaged_table_and_a_damaged_index(some: Shipped) -> None:
    first, second, *_ = some.chunks()
    changed(some.store, some.name(first), first.size - 1)
    changed(some.store, some.name(second), second.length)
    problems = list(find_archive_problems(some.archive))
    assert [problem.kind for problem in problems] == ["checksum", "checksum"]
    assert problems[0].position == first.start
    assert second.start <= problems[1].position < second.end
    assert "its table of checksums" in problems[0].text


def test_a_damaged_range_is_read_from_where_it_was_recorded(tmp_path: Path) -> None:
    some = Shipped(tmp_path, MemoryStore())
    for chunk in some.chunks():
        changed(some.store, some.name(chunk), 100)
    archive = TieredArchive(some.archive, DirectoryArchive(LocalStore(some.directory)))
    (descriptor,) = archive.recordings()
    with RecordingReader(archive, descriptor) as reader:
        assert [payload for _, payload in messages(reader, 0, reader.end_position())] == some.sent


@pytest.mark.parametrize("compacted", [False, True])
def test_archives_of_earlier_releases_are_read_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    monkeypatch.setattr(BlockSums, "table", lambda _: b"")
    monkeypatch.setattr(Chunk, "row", lambda self: [getattr(self, name) for name in Chunk.__slots__[:10]])
    for store in (MemoryStore(), LocalStore(tmp_path / "store")):
        some = Shipped(tmp_path / type(store).__name__, store, chunk_size=200_000, compacted=compacted)
        assert {chunk.checksums for chunk in some.chunks()} == {UNKNOWN}
        assert some.read() == some.sent
        chunk = some.chunks()[-1]
        changed(store, some.name(chunk), 40)
        if isinstance(store, LocalStore) or not compacted:
            # Part of a long chunk cannot be verified on its own, but a mapped chunk is read as a whole.
            with pytest.raises(RecordingError, match="is corrupt"):
                some.read()
        assert [problem.kind for problem in find_archive_problems(some.archive)] == ["checksum"]


def test_a_range_costs_its_blocks_and_the_table_of_its_chunk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_reader, "NEAR_BYTES", 0)
    some = Shipped(tmp_path, store := MemoryStore())
    chunk = max(some.chunks(), key=lambda each: each.length)
    reader = ChunkReader(store, some.archive_id)
    content = store.files[some.name(chunk)]
    store.operations.clear()
    store.read_bytes = 0
    assert reader.read(chunk, BLOCK + 10, BLOCK + 20) == content[BLOCK + 10 : BLOCK + 20]
    assert store.read_bytes == BLOCK + table_length(chunk.nbytes)
    assert reader.read(chunk, 10, 20) == content[10:20]
    assert store.read_bytes == 2 * BLOCK + table_length(chunk.nbytes)
    assert len(store.operations) == 3
    monkeypatch.undo()
    # Near the end of the chunk, one request returns the range and the table.
    other = ChunkReader(store, some.archive_id)
    store.operations.clear()
    assert other.read(chunk, 10, chunk.nbytes) == content[10 : chunk.nbytes]
    assert len(store.operations) == 1


def test_a_range_request_ends_with_its_chunk(tmp_path: Path) -> None:
    some = Shipped(tmp_path, store := MemoryStore(), chunk_size=100_000)
    store.operations.clear()
    assert shipped(store) == some.sent
    reads = [name for operation, name in store.operations if operation == "read" and name.endswith(".seg")]
    # One request per chunk, and one for the index of the last.
    assert len(reads) <= len(some.chunks()) + 3


def test_a_mapped_chunk_is_checked_once(tmp_path: Path) -> None:
    some = Shipped(tmp_path, LocalStore(tmp_path / "store"), compacted=True)
    archive = some.archive
    (descriptor,) = archive.recordings()
    segment = archive.segment(descriptor, 0)
    assert isinstance(segment, MappedChunk)
    assert list(segment.chunks(0, SEGMENT)) == [(0, SEGMENT)]
    path = some.store.local_path(some.name(some.chunks()[0]))
    assert path is not None
    with path.open("r+b") as file:
        file.write(b"\xff")
    assert list(segment.chunks(0, SEGMENT)) == [(0, SEGMENT)]
    segment.close()
    with path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(RecordingError, match="too early"):
        archive.segment(descriptor, 0)


@pytest.mark.parametrize("length", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 7])
def test_a_table_does_not_depend_on_how_its_bytes_arrive(length: int) -> None:
    data = random.Random(length).randbytes(length)
    whole, parts = BlockSums(), BlockSums()
    whole.add(data)
    rng = random.Random(1)
    at = 0
    while at < length:
        step = rng.randrange(1, 50_000)
        parts.add(data[at : at + step])
        at += step
    assert whole.table() == parts.table()
    assert len(whole.table()) == table_length(length)
    assert len(sums_of(whole.table())) == (-(-length // BLOCK) if length > BLOCK else 0)


def test_rows_of_earlier_releases_have_no_checksums() -> None:
    row = [0, 1024, "0/0-1.seg", 5, 0, 1, 0, 9, -1, -1]
    assert chunks.Chunk.of(row).checksums == UNKNOWN
    assert chunks.Chunk.of([*row, 77]).row() == [*row, 77]
    for wrong in (row[:9], [*row, 77, 78], [*row, -2], [*row, "x"]):
        with pytest.raises(RecordingError):
            chunks.Chunk.of(wrong)
