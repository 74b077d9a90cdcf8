from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record

from mainstem.recording import Recorder

if TYPE_CHECKING:
    from pathlib import Path

STREAM = {"initial_term_id": -5, "term_buffer_length": 65536, "mtu_length": 1408}


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Return a directory with two recordings of 500 messages each."""
    with Recorder(tmp_path / "recordings", segment_length=2 * 65536) as recorder:
        for session_id in (7, 8):
            writer = recorder.start(session_id=session_id, stream_id=1000 + session_id, join_position=0, **STREAM)
            record(writer, Stream(session_id=session_id), [bytes(100)] * 500, time_ns=1, step_ns=1000)
    return tmp_path / "recordings"
