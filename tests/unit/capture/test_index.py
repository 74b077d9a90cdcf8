"""The index: its contents, when it is reused, and that it does not depend on when a growing file was indexed."""

from __future__ import annotations

import gzip
import itertools
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import captures as make

from mainstem.capture import index as indexing
from mainstem.capture import index_store
from mainstem.capture.files import captures
from mainstem.capture.index import build
from mainstem.capture.planning import FrameSelection, plan, plan_new
from mainstem.capture.reading import read
from mainstem.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACKET = make.link(make.ip(make.udp(make.data_frame(b"high tide" * 20))), make.ETHERNET)
TCP = make.link(make.ip(make.tcp(b"\x20\x00\x02hi", to=9000, sequence=1), protocol=6), make.ETHERNET)
WANTED = FrameSelection(names=("packet", "frame_type"), bymux_ports=(9000,))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "CHUNK_BYTES", 2000)


def test_chunks_cover_every_record_once(tmp_path: Path, small_chunks: None) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(make.pcap([PACKET] * 100 + [TCP] * 10))
    found = build(str(path))
    assert found.packets == 110
    assert found.end == path.stat().st_size
    assert [chunk.offset for chunk in found.chunks] == [24] + [chunk.end for chunk in found.chunks[:-1]]
    assert sum(chunk.packets for chunk in found.chunks) == 110
    assert found.chunks[0].first_ns == make.START_NS // 1000 * 1000
    assert not found.chunks[0].tcp
    assert found.chunks[-1].tcp


def test_a_record_longer_than_a_chunk_is_read_whole(tmp_path: Path, small_chunks: None) -> None:
    path = tmp_path / "a.pcap"
    long = make.link(make.ip(make.udp(make.data_frame(bytes(30_000)))), make.ETHERNET)
    path.write_bytes(make.pcap([PACKET, long, PACKET]))
    assert build(str(path)).packets == 3


@pytest.mark.parametrize("blocks", [False, True])
def test_a_growing_file_gets_the_same_index_as_a_complete_one(tmp_path: Path, small_chunks: None, blocks: bool) -> None:
    path = tmp_path / "a.pcap"
    if blocks:
        records = [make.enhanced(PACKET, n) for n in range(60)]
        data = make.section() + make.interface(make.ETHERNET) + b"".join(records)
    else:
        data = make.pcap([PACKET] * 60)
    grown = None
    for size in range(40, len(data), 777):
        path.write_bytes(data[:size])
        grown = build(str(path), grown)
        assert grown.tail is not None or grown.end == size
    path.write_bytes(data)
    grown = build(str(path), grown)
    at_once = build(str(path))
    assert grown.chunks == at_once.chunks
    assert (grown.packets, grown.end, grown.tail) == (60, len(data), None)


def test_the_index_is_kept_and_used_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(make.pcap([PACKET] * 3))
    first = index_store.index_of(str(path))
    kept = index_store.location(str(path), None)
    assert index_store.index_of(str(path)) == first
    stamp = kept.stat().st_mtime_ns
    index_store.index_of(str(path))
    assert kept.stat().st_mtime_ns == stamp
    path.write_bytes(make.pcap([PACKET] * 4))
    assert index_store.index_of(str(path)).packets == 4
    kept.write_bytes(b"{}\nrubbish")
    assert index_store.index_of(str(path)).packets == 4


@pytest.mark.parametrize("packets", [1, 3, 9, 200])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
def test_a_replaced_capture_is_indexed_again(tmp_path: Path, pack: Callable[[bytes], bytes], packets: int) -> None:
    path, kept = tmp_path / "a.pcap", tmp_path / "indexes"
    path.write_bytes(pack(make.pcap([PACKET] * 3)))
    index_store.index_of(str(path), str(kept))
    for data in (make.pcap([TCP] * packets), make.pcap([PACKET] * packets)):
        path.write_bytes(data)
        os.utime(path, ns=(packets, packets))
        index = index_store.index_of(str(path), str(kept))
        assert index == build(str(path))
        assert index.packets == packets
        os.unlink(index_store.location(str(path), str(kept)))
        path.write_bytes(pack(make.pcap([PACKET] * 3)))
        index_store.index_of(str(path), str(kept))


def test_the_index_can_be_in_another_directory_or_omitted(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(make.pcap([PACKET]))
    index_store.index_of(str(path), str(tmp_path / "indexes"))
    assert [name.startswith("a.pcap-") for name in os.listdir(tmp_path / "indexes")] == [True]
    (tmp_path / "file").write_bytes(b"")
    assert index_store.index_of(str(path), str(tmp_path / "file")).packets == 1  # a path that cannot be written to
    assert not index_store.location(str(path), None).exists()
    with pytest.raises(CaptureError):
        index_store.index_of(str(tmp_path / "none.pcap"))


def test_which_files_a_path_means(tmp_path: Path) -> None:
    for name in ("b.pcapng", "a.pcap", "a.pcap12", "a.pcap.mainstem-index", "c.CAP", "d.pcap.gz", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "directory.pcap").mkdir()
    names = ["a.pcap", "a.pcap12", "b.pcapng", "c.CAP", "d.pcap.gz"]
    assert captures(str(tmp_path)) == [str(tmp_path / name) for name in names]
    assert captures(str(tmp_path / "a*")) == [str(tmp_path / "a.pcap"), str(tmp_path / "a.pcap12")]
    with pytest.raises(CaptureError, match="no capture at"):
        captures(str(tmp_path / "*.none"))


@given(st.lists(st.integers(0, 1), min_size=1, max_size=60), st.integers(1, 20), st.integers(0, 60), st.integers(0, 60))
def test_each_row_appears_once_wherever_a_file_is_split(kinds: list[int], part: int, first: int, second: int) -> None:
    import tempfile

    records = [(TCP if kind else PACKET) for kind in kinds]
    data = make.pcap(records)
    offsets = [24]
    for record in records:
        offsets.append(offsets[-1] + 16 + len(record))
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(data)
        file.flush()
        found = build(file.name)
        parts = plan(file.name, found, WANTED, part_bytes=part * 300)
        whole = sorted(
            tuple(row.values()) for each in parts for batch in read(each, WANTED) for row in batch.to_pylist()
        )
        cuts = sorted({0, *(offsets[min(at, len(records))] for at in (first, second)), found.end})
        pieces = []
        for begin, end in itertools.pairwise(cuts):
            for each in plan_new(file.name, found, WANTED, begin, end, part_bytes=part * 300):
                pieces += [tuple(row.values()) for batch in read(each, WANTED) for row in batch.to_pylist()]
    assert sorted(pieces) == whole
    assert len([row for row in whole if row[1] == "DATA"]) == kinds.count(0)
