"""Manifests and pages of shipped recordings: any bytes are one, which encodes to the same bytes, or refused by an error.

The first byte selects a manifest, a page of chunks, or a page of references.
"""

from __future__ import annotations

import json

from mainstem.errors import RecordingError
from mainstem.recording.catalog import RecordingDescriptor
from mainstem.recording.shipping.chunks import Chunk
from mainstem.recording.shipping.layout import manifest_name
from mainstem.recording.shipping.manifest import GarbageRef, Manifest, ObjectRef, ShippedRecording, Shipper
from mainstem.recording.shipping.page_tree import ChunkTree, PageRef, _decoded

ARCHIVE = "0123456789abcdef0123456789abcdef"
NAME = manifest_name(ARCHIVE, 3)
_CHUNK = Chunk(0, 1024, "0/0-1.seg", 5, 0, 1, 0, 9, -1, -1)
_PAGE = PageRef(0, 1024, "0/p.page", 5, 1, 0, 1, 0, 9, -1, -1, 1, 2048, 400)
_DEEPER = PageRef(0, 1024, "0/q.page", 5, 2, 0, 1, 0, 9, -1, -1, 1, 2048, 400)
_DESCRIPTOR = RecordingDescriptor(
    recording_id=1, start_timestamp=5, segment_file_length=65536, term_buffer_length=65536, stripped_channel="aeron:ipc"
)
_MANIFEST = Manifest(
    archive_id=ARCHIVE,
    host="h",
    number=3,
    commit="c",
    previous="p",
    time_ns=5,
    shipper=Shipper("s", "h", 9, "/d"),
    recordings={1: ShippedRecording(_DESCRIPTOR, 0, 1024, ChunkTree(((_PAGE,),), (_CHUNK,)))},
    pages=(ObjectRef("recordings/1.json", 7, 90),),
    garbage=(GarbageRef("garbage/1.json", 7, 90, 5, 2),),
)
SEEDS = [
    b"\0" + _MANIFEST.encode(),
    b"\0" + Manifest(archive_id=ARCHIVE, number=3).encode(),
    b"\1" + json.dumps({"level": 1, "rows": [_CHUNK.row()]}).encode(),
    b"\2" + json.dumps({"level": 2, "rows": [_PAGE.row()]}).encode(),
]


def target(data: bytes) -> None:
    """Process one input."""
    if not data:
        return
    try:
        if data[0] % 3:
            assert _decoded(data[1:], (_PAGE, _DEEPER)[data[0] % 3 - 1])
            return
        manifest = Manifest.decode(data[1:], NAME)
    except RecordingError as error:
        assert str(error)
        return
    assert Manifest.decode(manifest.encode(), NAME) == manifest, "a manifest does not come back as it was"
