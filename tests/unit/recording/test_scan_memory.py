from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.streams import Stream, record

from mainstem.recording import Recorder, find_problems, messages, open_recordings

MIB = 1 << 20
TERM = 4 * MIB
RECORDED = 96 * MIB
STREAM = {"session_id": 77, "stream_id": 1001, "initial_term_id": 0, "term_buffer_length": TERM, "mtu_length": 65504}


def resident_files() -> int:
    """Return how many bytes of mapped files are resident in this process."""
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("RssFile"))
    return int(line.split()[1]) << 10


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("segment_length", [TERM, RECORDED])
def test_a_scan_keeps_little_of_what_it_has_read_in_memory(tmp_path: Path, segment_length: int) -> None:
    with Recorder(tmp_path, segment_length=segment_length) as recorder:
        writer = recorder.start(**STREAM, join_position=0)
        stream = Stream(term_length=TERM, mtu=65504, initial_term_id=0)
        record(writer, stream, [bytes([i % 256]) * 60_000 for i in range(RECORDED // 60_100)])
    with open_recordings(tmp_path) as recordings:
        (reader,) = recordings
        end = reader.end_position()
        assert end > RECORDED - TERM
        next(iter(recordings.scan().to_batches()))  # trigger lazy imports
        before = resident_files()
        read = most = 0
        for batch in recordings.scan().to_batches(rows=200):
            read += batch.num_rows
            most = max(most, resident_files() - before)
        assert read == RECORDED // 60_100
        assert most < 48 * MIB
        assert len(list(messages(reader, 0, end))) == read
        # Pages that the scan released are read again from the page cache.
        assert list(find_problems(reader, 0, end)) == []
