from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.case_selection import long_after
from tests.support.streams import Stream, aligned

from mainstem.errors import RecordingError
from mainstem.recording.archive import find_end, local_archive
from mainstem.recording.catalog import RecordingDescriptor
from mainstem.recording.segments import (
    SegmentWriter,
    first_segment_base,
    segment_base,
    segment_bases,
    segment_name,
)

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65536
DESCRIPTOR = RecordingDescriptor(
    recording_id=7, start_timestamp=0, start_position=TERM + 96, segment_file_length=2 * TERM, term_buffer_length=TERM
)


def test_segments_are_named_and_based_as_aeron_archive_does() -> None:
    assert segment_name(7, 131072) == "7-131072.rec"
    assert first_segment_base(DESCRIPTOR) == TERM
    assert [segment_base(DESCRIPTOR, p) for p in (TERM, 3 * TERM - 32, 3 * TERM, 5 * TERM)] == [
        TERM,
        TERM,
        3 * TERM,
        5 * TERM,
    ]


def test_a_frame_lies_at_its_position_less_the_base_and_files_have_their_full_length(tmp_path: Path) -> None:
    stream = Stream(position=DESCRIPTOR.start_position, term_length=TERM)
    writer = SegmentWriter(tmp_path, DESCRIPTOR, DESCRIPTOR.start_position)
    run = stream.message(b"first")
    writer.write(memoryview(run))
    writer.position = 3 * TERM
    writer.write(memoryview(run))
    writer.close()
    writer.close()
    assert segment_bases(tmp_path, 7) == [TERM, 3 * TERM]
    first = (tmp_path / "7-65536.rec").read_bytes()
    assert first == (bytes(96) + run).ljust(2 * TERM, b"\0")
    assert (tmp_path / "7-196608.rec").read_bytes() == run.ljust(2 * TERM, b"\0")
    # The file is sparse: unwritten ranges take no disk space.
    assert (tmp_path / "7-65536.rec").stat().st_blocks * 512 < TERM


def test_only_the_header_of_padding_is_written(tmp_path: Path) -> None:
    stream = Stream(position=DESCRIPTOR.start_position)
    header = bytearray(stream.frame(b"", 0xC0, kind=0, length=4096))
    header[32:] = b"x" * (4096 - 32)
    writer = SegmentWriter(tmp_path, DESCRIPTOR, DESCRIPTOR.start_position)
    writer.write_padding(memoryview(header), 4096)
    assert writer.position == DESCRIPTOR.start_position + 4096
    writer.close()
    assert (tmp_path / "7-65536.rec").read_bytes() == (bytes(96) + header[:32]).ljust(2 * TERM, b"\0")


def test_opening_cuts_what_lies_past_the_position(tmp_path: Path) -> None:
    for base in (TERM, 3 * TERM, 5 * TERM):
        (tmp_path / segment_name(7, base)).write_bytes(b"\x11" * 2 * TERM)
    (tmp_path / "8-65536.rec").write_bytes(b"other")
    SegmentWriter(tmp_path, DESCRIPTOR, 3 * TERM + 64).close()
    assert segment_bases(tmp_path, 7) == [TERM, 3 * TERM]
    assert (tmp_path / "7-65536.rec").read_bytes() == b"\x11" * 2 * TERM
    assert (tmp_path / "7-196608.rec").read_bytes() == (b"\x11" * 64).ljust(2 * TERM, b"\0")
    assert (tmp_path / "8-65536.rec").exists()


def test_a_run_over_the_end_of_a_segment_is_refused(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, DESCRIPTOR, 3 * TERM - 32)
    with pytest.raises(RecordingError, match="end of their segment"):
        writer.write(memoryview(bytes(64)))
    writer.close()
    with pytest.raises(RecordingError, match="not a frame boundary"):
        SegmentWriter(tmp_path, DESCRIPTOR, TERM + 97)


@pytest.mark.parametrize("payload_length", long_after(3, [0, 1, 40, 4090]))
@pytest.mark.parametrize("zeros", [False, True], ids=["truncated", "zero-filled"])
def test_a_tail_torn_at_any_byte_of_a_frame_is_found(tmp_path: Path, payload_length: int, zeros: bool) -> None:
    stream = Stream(position=DESCRIPTOR.start_position, mtu=8192)
    whole = bytes(96) + b"".join(stream.message(bytes([i]) * 50) for i in range(1, 4))
    good = TERM + len(whole)
    last = stream.message(b"\xff" * payload_length)
    path = tmp_path / "7-65536.rec"
    frame = 32 + payload_length
    for cut in range(frame):
        torn = whole + last[:cut]
        path.write_bytes(torn.ljust(2 * TERM, b"\0") if zeros else torn)
        end = find_end(local_archive(tmp_path), DESCRIPTOR, limit=good)
        assert (end.position, end.suspect) == (good, good)
        end = find_end(local_archive(tmp_path), DESCRIPTOR)
        if end.position != good:
            # A frame with a header and a zeroed rest looks complete. Only the fact that it crosses a page makes it suspect.
            assert zeros or cut >= frame
            assert cut >= 1
            length = int.from_bytes(last[:cut].ljust(4, b"\0")[:4], "little")
            assert end.position == good + aligned(length)
            crosses = (good - TERM) // 4096 != (good - TERM + aligned(length) - 1) // 4096
            assert end.suspect == (good if crosses else end.position)
    path.write_bytes((whole + last).ljust(2 * TERM, b"\0"))
    assert find_end(local_archive(tmp_path), DESCRIPTOR).position == good + len(last)


def test_the_end_is_found_in_the_last_segment_and_in_none(tmp_path: Path) -> None:
    assert find_end(local_archive(tmp_path), DESCRIPTOR).position == DESCRIPTOR.start_position
    assert find_end(local_archive(tmp_path), DESCRIPTOR, limit=4 * TERM).reason == "missing"
    stream = Stream(position=3 * TERM)
    (tmp_path / "7-65536.rec").write_bytes(bytes(2 * TERM))
    (tmp_path / "7-196608.rec").write_bytes(stream.message(b"one").ljust(2 * TERM, b"\0"))
    assert find_end(local_archive(tmp_path), DESCRIPTOR).position == 3 * TERM + 64
    # A known position that is not in the walked part is ignored.
    archive = local_archive(tmp_path)
    for known in (0, 3 * TERM + 64, 5 * TERM + 64):
        assert find_end(archive, DESCRIPTOR, known=known).position == 3 * TERM + 64
        assert find_end(archive, DESCRIPTOR, limit=3 * TERM + 64, known=known + 64).reason == "end"
        assert find_end(archive, DESCRIPTOR, limit=3 * TERM + 64, known=known + 64).position == 3 * TERM + 64
    (tmp_path / "7-327680.rec").write_bytes(bytes(2 * TERM))
    assert find_end(local_archive(tmp_path), DESCRIPTOR).position == 5 * TERM
