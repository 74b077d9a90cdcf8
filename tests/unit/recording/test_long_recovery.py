"""Recovery of long recordings: what it finds, what it reports, and that an archive recovers before it connects to its driver."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.archive.server import ArchiveServer
from mainstem.errors import DriverTimeout
from mainstem.recording import Recorder
from mainstem.recording.catalog import NULL, Catalog, RecordingDescriptor, read_catalog
from mainstem.recording.crash_recovery import Recovery
from mainstem.sim.clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

TERM = SEGMENT = 4 << 20
FRAME = 16 << 10
PAGE = 4096


class PassingClock(ManualClock):
    """A clock on which a second passes whenever it is read."""

    def monotonic_ns(self) -> int:
        return self.advance_ns(NS_PER_SECOND)


def write_recording(directory: Path, *, segments: int, stop_position: int, lost: int = -1) -> None:
    """Write a recording without an index, and without the page at ``lost``, as a power failure can leave it."""
    directory.mkdir()
    header = struct.Struct("<iBBHiiiiq")
    for base in range(0, segments * SEGMENT, SEGMENT):
        frames = bytearray()
        for offset in range(0, SEGMENT, FRAME):
            frames += header.pack(FRAME, 0, 0xC0, 1, offset, 7, 1, base // TERM, 0) + b"x" * (FRAME - header.size)
        if base <= lost < base + SEGMENT:
            frames[lost - base : lost - base + PAGE] = bytes(PAGE)
        (directory / f"0-{base}.rec").write_bytes(frames)
    catalog = Catalog(directory)
    catalog.add(
        RecordingDescriptor(
            recording_id=NULL,
            start_timestamp=1,
            stop_timestamp=NULL if stop_position == NULL else 1,
            stop_position=stop_position,
            segment_file_length=SEGMENT,
            term_buffer_length=TERM,
            mtu_length=FRAME,
            session_id=7,
            stream_id=1,
        )
    )
    catalog.close()


@pytest.mark.parametrize("lost_frame", [0, 1, 63, 64, 65, 100, 255, 256, 300, 511])
@pytest.mark.parametrize("page_of_frame", [1, 3])
def test_a_lost_page_is_found_wherever_it_is(tmp_path: Path, lost_frame: int, page_of_frame: int) -> None:
    directory = tmp_path / "tides"
    lost = lost_frame * FRAME + page_of_frame * PAGE
    write_recording(directory, segments=2, stop_position=NULL, lost=lost)
    Recorder(directory).close()
    assert [each.stop_position for each in read_catalog(directory)] == [lost_frame * FRAME]


def test_a_long_recovery_says_how_far_it_is(tmp_path: Path) -> None:
    directory, seen = tmp_path / "tides", list[Recovery]()
    write_recording(directory, segments=3, stop_position=NULL)
    Recorder(directory, clock=PassingClock(), on_recovery=seen.append).close()
    assert {each.recording_id for each in seen} == {0}
    assert [each.checked for each in seen] == [0, 0, SEGMENT, 2 * SEGMENT, 3 * SEGMENT]
    assert all(each.total == 3 * SEGMENT for each in seen)


def test_an_archive_recovers_before_it_connects_to_its_driver(tmp_path: Path) -> None:
    """The driver presumes a client dead that recovers for ten seconds."""
    directory = tmp_path / "tides"
    write_recording(directory, segments=1, stop_position=NULL)
    with pytest.raises(DriverTimeout):
        ArchiveServer.launch(directory, os.fspath(tmp_path / "driver"), timeout=0.0)
    assert [each.stop_position for each in read_catalog(directory)] == [SEGMENT]
