"""Recovery of recordings whose first segment is missing after a loss of power."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record

from mainstem.archive.server.files import ArchiveFiles
from mainstem.recording import Recorder, open_recording
from mainstem.recording.directory import LOCK_FILE
from mainstem.recording.mark_file import MarkOwner
from mainstem.recording.segments import segment_name

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT = 1 << 16


@pytest.mark.parametrize("is_archive", [True, False])
def test_a_missing_first_segment_was_lost_in_an_archive_and_deleted_elsewhere(
    tmp_path: Path, *, is_archive: bool
) -> None:
    stream = Stream(session_id=7)
    with Recorder(tmp_path, segment_length=SEGMENT) as recorder:
        record(stream.start(recorder), stream, [bytes(1000)] * 100)
    with open_recording(tmp_path, 0) as reader:
        end = reader.end_position()
    assert end > SEGMENT
    (tmp_path / LOCK_FILE).write_bytes(b"another boot")
    (tmp_path / segment_name(0, 0)).unlink()
    # Retention deletes segments without a change to the catalog, and an archive changes the start position first.
    if is_archive:
        ArchiveFiles(tmp_path, MarkOwner(archive_id=1), segment_length=SEGMENT).close()
    else:
        Recorder(tmp_path, segment_length=SEGMENT).close()
    with open_recording(tmp_path, 0) as reader:
        assert reader.descriptor.stop_position == reader.end_position() == (0 if is_archive else end)
        assert reader.start_position == (0 if is_archive else SEGMENT)
