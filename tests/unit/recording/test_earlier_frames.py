"""What a recording contains before it is continued, from its index and without one, in steps of any length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record

from mainstem.errors import RecordingError
from mainstem.recording import Recorder, earlier_frames, open_recording, read_catalog
from mainstem.recording.earlier_frames import EarlierFrames, at_once
from mainstem.recording.index import index_file
from mainstem.recording.segments import checksum, segment_name

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65_536
# Messages of one and several fragments, padding at the ends of terms, and several segments.
PAYLOADS = [b"%d" % number * (1 + number % 900) for number in range(600)]


def recorded(directory: Path, *, is_split: bool = False) -> None:
    stream = Stream(term_length=TERM)
    with Recorder(directory, segment_length=2 * TERM) as recorder:
        writer = stream.start(recorder)
        record(writer, stream, PAYLOADS)
        if is_split:
            writer.write(memoryview(stream.frame(b"a" * 1376, 0x80)), 0)
        recorder.stop(writer)


def examined(directory: Path) -> EarlierFrames:
    return at_once(earlier_frames.earlier_frames(directory, read_catalog(directory)[0]))


@pytest.mark.parametrize("step_length", [96, 4096, 4 * TERM])
@pytest.mark.parametrize("is_split", [False, True])
def test_frames_are_examined_without_an_index_in_any_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_length: int, is_split: bool
) -> None:
    monkeypatch.setattr(earlier_frames, "STEP_LENGTH", step_length)
    recorded(tmp_path, is_split=is_split)
    assert examined(tmp_path) == EarlierFrames(len(PAYLOADS), not is_split, None)
    index_file(tmp_path, 0).unlink()
    (descriptor,) = read_catalog(tmp_path)
    whole = checksum(tmp_path, descriptor, 0, descriptor.stop_position)
    with open_recording(tmp_path, 0) as reader:
        count = reader.count_before(descriptor.stop_position)
    assert count.messages == len(PAYLOADS)
    assert (count.position == descriptor.stop_position) is not is_split
    assert examined(tmp_path) == EarlierFrames(len(PAYLOADS), not is_split, whole)
    steps = sum(1 for _ in earlier_frames.earlier_frames(tmp_path, descriptor))
    assert steps >= descriptor.stop_position // step_length


def test_a_missing_or_short_segment_is_an_error(tmp_path: Path) -> None:
    recorded(tmp_path)
    index_file(tmp_path, 0).unlink()
    path = tmp_path / segment_name(0, 2 * TERM)
    with path.open("r+b") as file:
        file.truncate(TERM)
    with pytest.raises(RecordingError, match="ends before position"):
        examined(tmp_path)
    path.unlink()
    with pytest.raises(RecordingError, match="is missing"):
        examined(tmp_path)
