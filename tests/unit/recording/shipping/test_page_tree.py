"""The chunk tree behaves like a list of chunks under any additions and removals, and a lookup reads only the pages it needs."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from functools import partial

import pytest
from tests.support.case_selection import long_after
from tests.support.shipping import STREAM, MemoryStore

from mainstem.errors import RecordingError
from mainstem.recording.catalog import RecordingDescriptor
from mainstem.recording.shipping.chunks import Chunk
from mainstem.recording.shipping.layout import nonce
from mainstem.recording.shipping.manifest import Manifest, ManifestLog, ShippedRecording
from mainstem.recording.shipping.page_tree import (
    FANOUT,
    ChunkTree,
    PageRef,
    Pages,
    appended,
    between,
    last_where,
    spliced,
)
from mainstem.recording.shipping.shipped_archive import ShippedArchive

SEGMENT = 131072
ARCHIVE = "0123456789abcdef" * 2


def chunks_from(start: int, count: int, length: int = 1024) -> list[Chunk]:
    return [
        Chunk(
            start=at,
            end=at + length,
            name=f"0/{at}.seg",
            crc32=at % 1000,
            first_entry=at // length,
            entries=1,
            before=at // length * 3,
            messages=3,
            first_ns=at,
            last_ns=at + length,
        )
        for at in range(start, start + count * length, length)
    ]


def begins_by(position: int, item: Chunk | PageRef) -> bool:
    return item.start <= position


@pytest.mark.parametrize("seed", long_after(4, range(10)))
def test_a_tree_is_the_list_of_its_chunks(seed: int) -> None:
    rng, store = random.Random(seed), MemoryStore()
    pages, tree, model = Pages(store, ARCHIVE), ChunkTree(), list[Chunk]()
    for _ in range(60):
        action = rng.randrange(4)
        if action < 2:
            fresh = chunks_from(model[-1].end if model else 0, rng.randrange(1, 3 * FANOUT))
            tree, model = appended(tree, 0, fresh, pages, rng.choice((16, FANOUT))), model + fresh
        elif model:
            first = rng.randrange(len(model))
            last = first + rng.randrange(1, 2 + len(model) // 3) if action == 2 else len(model) // 3
            first = first if action == 2 else 0
            gone = model[first:last]
            if not gone:
                continue
            merged = [replace(gone[0], end=gone[-1].end, name="0/merged.seg")] if action == 2 else []
            splice = spliced(tree, 0, gone[0].start, gone[-1].end, merged, pages)
            assert splice.chunks == gone
            tree, model = splice.tree, model[:first] + merged + model[last:]
        fresh_pages = Pages(store, ARCHIVE)
        decoded = ChunkTree.of(tree.as_json())
        assert list(between(decoded, 0, 1 << 60, fresh_pages)) == model
        assert tree.count == len(model)
        assert tree.nbytes == sum(chunk.nbytes for chunk in model)
        if model:
            a, b = sorted(rng.randrange(model[-1].end + 1) for _ in range(2))
            expected = [chunk for chunk in model if chunk.end > a and chunk.start < b]
            assert list(between(tree, a, b, fresh_pages)) == expected
            before = [chunk for chunk in model if chunk.start <= a]
            last = last_where(tree, partial(begins_by, a), fresh_pages)
            assert last == (before[-1] if before else None)


def test_many_chunks_cost_a_query_and_a_commit_a_few_pages() -> None:
    """The default count makes the tree as deep as a million chunks do; MAINSTEM_SHIPPING_CHUNKS=1000000 uses a million."""
    store, count = MemoryStore(), int(os.environ.get("MAINSTEM_SHIPPING_CHUNKS", "40000"))
    pages, tree = Pages(store, ARCHIVE), ChunkTree()
    for start in range(0, count, 2000):
        tree = appended(tree, 0, chunks_from(start * 1024, 2000), pages)
    assert len(tree.levels) == 2
    descriptor = RecordingDescriptor(
        recording_id=0,
        start_timestamp=1,
        session_id=STREAM["session_id"],
        term_buffer_length=65536,
        segment_file_length=SEGMENT,
    )
    entry = ShippedRecording(descriptor, 0, count * 1024, tree, entries=count, messages=3 * count)
    manifest = Manifest(ARCHIVE).following(1, recordings={0: entry})
    assert ManifestLog(store, ARCHIVE).put(manifest)
    assert len(manifest.encode()) < 100_000
    # Commit one more chunk.
    store.operations.clear()
    grown = appended(tree, 0, chunks_from(count * 1024, 1), pages)
    assert len(store.operations) <= 6
    assert grown.count == count + 1
    # Plan a time range in the middle: its start position, its segments and its chunks.
    store.read_bytes = 0
    archive = ShippedArchive(store, ARCHIVE)
    (shown,) = archive.recordings()
    positions = archive.index(shown)
    assert positions is not None
    store.operations.clear()
    lengths = archive.segments(shown)
    assert next(iter(lengths)) == 0
    assert lengths[SEGMENT * 200] == SEGMENT
    middle = count // 2 * 1024
    needed = list(between(archive.entry(0).tree, middle, middle + SEGMENT, archive.pages))
    assert len(needed) == SEGMENT // 1024
    reads = [name for operation, name in store.operations if operation == "read"]
    assert len(reads) <= 8
    assert store.read_bytes < 1 << 20


def test_damaged_pages_are_errors() -> None:
    store = MemoryStore()
    pages = Pages(store, ARCHIVE)
    tree = appended(ChunkTree(), 0, chunks_from(0, 2 * FANOUT), pages)
    (name, other) = sorted(name for name in store.files if "/pages/" in name)
    whole = store.files[name]
    for damage in (b"", whole[:-1], whole.replace(b"1024", b"1025"), store.files[other]):
        store.files[name] = damage
        with pytest.raises(RecordingError, match="corrupt"):
            list(between(tree, 0, 1024, Pages(store, ARCHIVE)))
    del store.files[name]
    with pytest.raises(RecordingError, match="missing"):
        list(between(tree, 0, 1024, Pages(store, ARCHIVE)))


@pytest.mark.parametrize(
    "row",
    [
        [],
        [0, 0, "0/a.seg", 0, 0, 0, 0, 0, 0, 0],
        [0, 32, "/etc/passwd", 0, 0, 0, 0, 0, 0, 0],
        [0, 32, "a/../../b", 0, 0, 0, 0, 0, 0, 0],
        [0, 32, "0/a.seg", 0, 0, 1 << 40, 0, 0, 0, 0],
        [0, 1 << 80, "0/a.seg", 0, 0, 0, 0, 0, 0, 0],
        [0, "32", "0/a.seg", 0, 0, 0, 0, 0, 0, 0],
        [-5, 32, "0/a.seg", 0, 0, 0, 0, 0, 0, 0],
        {"start": 0},
        None,
    ],
)
def test_invalid_rows_raise(row: object) -> None:
    with pytest.raises(RecordingError):
        Chunk.of(row)


def test_a_nonce_is_never_the_same() -> None:
    assert len({nonce() for _ in range(1000)}) == 1000
