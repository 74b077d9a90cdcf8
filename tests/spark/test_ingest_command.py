"""``mainstem ingest`` as a separate process, whose session ends before its error is printed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record

from mainstem.recording import Recorder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_query_that_fails_is_explained_in_one_sentence(tmp_path: Path) -> None:
    recordings = tmp_path / "recordings"
    with Recorder(recordings, segment_length=2 * 65536) as recorder:
        writer = recorder.start(
            session_id=7, stream_id=1007, join_position=0, initial_term_id=-5, term_buffer_length=65536, mtu_length=1408
        )
        record(writer, Stream(session_id=7), [bytes(100)] * 500, time_ns=1_700_000_000_000_000_000, step_ns=1_000_000)
    with (recordings / "0-0.rec").open("r+b") as file:
        file.seek(1280)
        file.write(bytes([5, 0, 0, 0]))
    command = [sys.executable, "-m", "mainstem", "ingest", str(recordings), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("mainstem: ")
    assert "a frame header is invalid" in last
    assert "exception str() failed" not in done.stderr
