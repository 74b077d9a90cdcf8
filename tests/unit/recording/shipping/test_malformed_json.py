"""JSON objects in a store that Mainstem did not write: always the same error."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, replace
from typing import Any

import pytest
from tests.support.shipping import MemoryStore

from mainstem.errors import RecordingError
from mainstem.recording.catalog import RecordingDescriptor
from mainstem.recording.shipping.chunks import Chunk
from mainstem.recording.shipping.layout import manifest_name
from mainstem.recording.shipping.manifest import Manifest, ShippedRecording
from mainstem.recording.shipping.page_tree import FANOUT, ChunkTree, PageRef, Pages, _decoded, between
from mainstem.recording.shipping.shipped_archive import ShippedArchive

ARCHIVE = "0123456789abcdef" * 2
WHOLE = Manifest(archive_id=ARCHIVE, number=3).encode()
DESCRIPTOR = RecordingDescriptor(
    recording_id=1, start_timestamp=5, segment_file_length=65536, term_buffer_length=65536, stripped_channel="aeron:ipc"
)
CHUNK = Chunk(0, 1024, "0/0-1.seg", 5, 0, 1, 0, 9, -1, -1)
REF = PageRef(0, 1024, "0/p.page", 5, 1, 0, 1, 0, 9, -1, -1, 1, 2048, 400)


def changed(**values: object) -> bytes:
    """Return a manifest of the version before manifests had checksums, so that nothing but its values can be wrong."""
    members = json.loads(WHOLE) | {"version": 2}
    del members["crc32"]
    return json.dumps(members | values).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b"",
        b"5",
        changed(time_ns=float("inf")),
        changed(number=float("nan")),
        changed(recordings=[{"descriptor": {}}]),
        changed(recordings=5),
        changed(shipper={"id": "x", "other": 1}),
        changed(pages=[5]),
    ],
    ids=["deep", "empty", "number", "infinite", "nan", "no fields", "no list", "other fields", "no object"],
)
def test_an_invalid_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(RecordingError):
        Manifest.decode(data, manifest_name(ARCHIVE, 3))


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b"{}",
        b"[]",
        b'{"level":1,"rows":5}',
        b'{"level":1,"rows":[[]]}',
        json.dumps({"level": "1", "rows": [REF.row()]}).encode(),
    ],
    ids=["deep", "no fields", "no object", "no list", "no fields in a row", "a level that is not a number"],
)
def test_an_invalid_page_is_refused(data: bytes) -> None:
    with pytest.raises(RecordingError):
        _decoded(data, REF)


def entry(**values: object) -> dict[str, Any]:
    return ShippedRecording(DESCRIPTOR, 0, 1 << 20, ChunkTree()).as_json() | values


@pytest.mark.parametrize(
    "values",
    [
        {"number": "3"},
        {"number": 3.0},
        {"number": True},
        {"time_ns": -1},
        {"host": 5},
        {"commit": "x" * 100_000},
        {"shipper": {"id": "x", "host": "h", "pid": "9", "directory": "/d"}},
        {"pages": [{"name": "../x", "crc32": 0, "length": 5}]},
        {"pages": [{"name": "recordings/1.json", "crc32": "0", "length": 5}]},
        {"garbage": [{"name": "garbage/1.json", "crc32": 0, "length": 5, "after_ns": None, "number": 2}]},
        {"recordings": [entry(messages=-1)]},
        {"recordings": [entry(entries=1 << 64)]},
        {"recordings": [entry(end=1 << 63)]},
        {"recordings": [entry(recorded_ns="now")]},
        {"recordings": [entry(descriptor={**asdict(DESCRIPTOR), "segment_file_length": 1 << 62})]},
        {"recordings": [entry(descriptor={**asdict(DESCRIPTOR), "session_id": "7"})]},
        {"recordings": [entry(descriptor={**asdict(DESCRIPTOR), "original_channel": 7})]},
        {"recordings": [entry(tail=[replace(CHUNK, end=1 << 62).row()])]},
        {"recordings": [entry(tail=[CHUNK.row(), CHUNK.row()])]},
        {"recordings": [entry(tail=[replace(CHUNK, end=16).row()])]},
        {"recordings": [entry(levels=[[replace(REF, level=2).row()]])]},
        {"recordings": [entry(levels=[[replace(REF, count=1 << 40).row()]])]},
        {"recordings": [entry(levels=[[REF.row(), REF.row()]])]},
    ],
    ids=repr,
)
def test_a_field_of_another_type_or_range_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(RecordingError):
        Manifest.decode(changed(**values), manifest_name(ARCHIVE, 3))


def stored_page(store: MemoryStore, level: int, rows: list[list[Any]], **values: Any) -> PageRef:
    """Store a page with arbitrary rows and return a reference to it."""
    data = json.dumps({"level": level, "rows": rows}).encode()
    name = f"0/{level}-{len(store.files)}.page"
    store.files[f"{ARCHIVE}/{name}"] = data
    return replace(REF, level=level, name=name, crc32=zlib.crc32(data), page_length=len(data), **values)


def test_overlapping_rows_are_rejected_at_any_size() -> None:
    """If each level referred to the level below a hundred times, every level would multiply the chunks by a hundred."""
    store = MemoryStore()
    ref = stored_page(store, 1, [CHUNK.row()] * FANOUT, count=FANOUT, nbytes=FANOUT * CHUNK.nbytes, end=1 << 20)
    for level in (2, 3):
        ref = stored_page(store, level, [ref.row()] * FANOUT, count=FANOUT**level, nbytes=1 << 20, end=1 << 20)
    shipped = ShippedRecording(DESCRIPTOR, 0, 1 << 20, ChunkTree(((), (), (ref,))))
    manifest = Manifest(ARCHIVE, number=1, recordings={DESCRIPTOR.recording_id: shipped})
    store.files[manifest_name(ARCHIVE, 1)] = manifest.encode()
    archive = ShippedArchive(store, ARCHIVE)
    with pytest.raises(RecordingError):
        list(archive.segments(archive.recordings()[0]))
    with pytest.raises(RecordingError):
        list(between(shipped.tree, 0, 1 << 20, archive.pages))


def test_a_page_that_claims_more_than_it_holds_is_refused() -> None:
    store = MemoryStore()
    chunks = [replace(CHUNK, start=at, end=at + 1024, first_entry=at // 1024) for at in range(0, 4096, 1024)]
    ref = stored_page(
        store,
        1,
        [chunk.row() for chunk in chunks],
        entries=4,
        end=4096,
        count=4,
        nbytes=sum(chunk.nbytes for chunk in chunks),
    )
    assert list(Pages(store, ARCHIVE).read(ref)) == chunks
    for values in ({"end": 8192}, {"count": 5}, {"entries": 3}, {"nbytes": 1 << 30}, {"first_entry": 1}):
        with pytest.raises(RecordingError):
            Pages(store, ARCHIVE).read(replace(ref, **values))


def test_chunks_that_claim_too_many_segments_are_rejected() -> None:
    store = MemoryStore()
    shipped = ShippedRecording(DESCRIPTOR, 0, 1 << 30, ChunkTree(tail=(replace(CHUNK, end=1 << 30),)))
    store.files[manifest_name(ARCHIVE, 1)] = Manifest(
        ARCHIVE, number=1, recordings={DESCRIPTOR.recording_id: shipped}
    ).encode()
    archive = ShippedArchive(store, ARCHIVE)
    with pytest.raises(RecordingError, match="cannot lie in"):
        list(archive.segments(archive.recordings()[0]))


def test_every_flipped_bit_of_a_manifest_is_noticed() -> None:
    """The manifest is the root of all checksums of an archive."""
    recordings = {
        1: ShippedRecording(DESCRIPTOR, 0, 1024, ChunkTree(tail=(CHUNK,)), messages=7, entries=1, recorded_ns=9)
    }
    manifest = Manifest(archive_id=ARCHIVE, number=3, commit="5" * 16, recordings=recordings)
    data, name = manifest.encode(), manifest_name(ARCHIVE, 3)
    assert Manifest.decode(data, name) == manifest
    for at in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(RecordingError):
            Manifest.decode(bytes(flipped), name)
    for end in range(len(data)):
        with pytest.raises(RecordingError):
            Manifest.decode(data[:end], name)


@pytest.mark.parametrize("version", [1, 2])
def test_manifests_of_earlier_versions_are_read_and_continued(version: int) -> None:
    older = Manifest.decode(changed(version=version, commit="5" * 16), manifest_name(ARCHIVE, 3))
    following = older.following(time_ns=1)
    assert Manifest.decode(following.encode(), manifest_name(ARCHIVE, 4)) == following
    assert following.previous == "5" * 16
    with pytest.raises(RecordingError, match="its checksum differs"):
        Manifest.decode(changed(version=3), manifest_name(ARCHIVE, 3))
