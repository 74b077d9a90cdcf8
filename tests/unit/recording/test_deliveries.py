from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from mainstem.errors import RecordingError
from mainstem.recording import Recorder, batches, find_problems, messages, open_recording
from mainstem.recording.message_server import MAX_MESSAGE_LENGTH, TERM_LENGTH, MessageLog

if TYPE_CHECKING:
    from pathlib import Path


def test_messages_of_every_length_survive_fragments_terms_and_restarts(tmp_path: Path) -> None:
    rng = random.Random(3)
    lengths = [0, 1, 31, 32, 33, 65_471, 65_472, 65_473, 200_000, MAX_MESSAGE_LENGTH]
    lengths += [rng.choice((rng.randrange(100), rng.randrange(200_000), 5_000_000)) for _ in range(120)]
    sent = [(i + 1, rng.randbytes(4) * (length // 4) + b"x" * (length % 4)) for i, length in enumerate(lengths)]
    for part in (sent[:7], sent[7:8], sent[8:100], sent[100:]):
        with Recorder(tmp_path) as recorder:
            assert MessageLog(recorder, stream_id=5, channel="bymux://x:1").write(part) == len(part)
    with open_recording(tmp_path, 0) as reader:
        end = reader.end_position()
        assert end > 2 * TERM_LENGTH
        assert [payload for _, payload in messages(reader, 0, end)] == [payload for _, payload in sent]
        assert list(find_problems(reader, 0, end)) == []
        keys = [
            value
            for taken, rows in batches(reader, 0, end)
            for value in memoryview(taken["reserved_value"]).cast("q")[:rows]
        ]
    assert keys == [key for key, _ in sent]


def test_a_too_long_message_is_rejected_and_earlier_ones_are_kept(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        log = MessageLog(recorder, stream_id=5)
        with pytest.raises(RecordingError, match="longer than"):
            log.write([(0, b"tide"), (0, bytes(MAX_MESSAGE_LENGTH + 1))])
    with open_recording(tmp_path, 0) as reader:
        assert [payload for _, payload in messages(reader, 0, reader.end_position())] == [b"tide"]
