from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Stream, record

from mainstem.recording import Problem, Recorder, find_problems, messages, open_recording
from mainstem.recording.index import index_file
from mainstem.recording.verify_recordings import find_end_problem, find_start_problem

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65536
STREAM = {"session_id": 77, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}


def make(directory: Path, count: int = 400, seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    sent = [struct.pack("<q", i) + rng.randbytes(rng.randrange(3000)) for i in range(count)]
    with Recorder(directory, segment_length=4 * TERM) as recorder:
        writer = recorder.start(**STREAM, join_position=0)
        record(writer, Stream(term_length=TERM), sent, time_ns=1, step_ns=1)
    return sent


def found(directory: Path, **options: Any) -> list[Problem]:
    with open_recording(directory, 0) as reader:
        return list(find_problems(reader, 0, reader.end_position(), **options))


def flip(path: Path, offset: int, bits: int = 0x10) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (value,) = file.read(1)
        file.seek(offset)
        file.write(bytes([value ^ bits]))


@pytest.mark.parametrize(("offset", "word"), [(16, "stream"), (20, "term")])
@pytest.mark.parametrize("has_index", [True, False])
def test_a_frame_of_another_stream_or_term_is_corrupt(tmp_path: Path, offset: int, word: str, has_index: bool) -> None:
    make(tmp_path)
    if not has_index:
        index_file(tmp_path, 0).unlink()
    path = tmp_path / f"0-{4 * TERM}.rec"
    flip(path, 2 * TERM + offset)
    first = found(tmp_path)[0]
    assert (first.position, first.kind) == (6 * TERM, "corrupt")
    assert f"at offset {2 * TERM}: the frame is of stream" in first.text
    assert f"not of {word}" in first.text or f"and {word}" in first.text


def test_an_intact_recording_has_no_problems(tmp_path: Path) -> None:
    make(tmp_path)
    assert found(tmp_path) == []
    with open_recording(tmp_path, 0) as reader:
        assert reader.index is not None
        assert reader.index.count > 6


def test_a_restarted_recorder_continues_checksums_from_the_last_entry(tmp_path: Path) -> None:
    stream, sent = Stream(term_length=TERM), [bytes([i]) * 700 for i in range(200)]
    for part in (sent[:37], sent[37:38], sent[38:170], sent[170:]):
        with Recorder(tmp_path, segment_length=4 * TERM) as recorder:
            record(recorder.start(**STREAM, join_position=stream.position), stream, part, time_ns=1)
    assert found(tmp_path) == []
    with open_recording(tmp_path, 0) as reader:
        assert [payload for _, payload in messages(reader, 0, reader.end_position())] == sent


@pytest.mark.parametrize("seed", range(40))
def test_one_changed_byte_is_found_wherever_it_is(tmp_path: Path, seed: int) -> None:
    make(tmp_path)
    with open_recording(tmp_path, 0) as reader:
        assert reader.index is not None
        covered = reader.index.around(0, reader.end_position())[-1].position
    offset = random.Random(seed).randrange(covered)
    flip(tmp_path / f"0-{offset // (4 * TERM) * 4 * TERM}.rec", offset % (4 * TERM), 1 << seed % 8)
    told = found(tmp_path)
    assert told
    assert all(problem.position <= offset for problem in told if problem.kind == "checksum")
    assert any(problem.kind == "checksum" for problem in told)


@pytest.mark.parametrize("field", [1, 8, 9, 10])
def test_a_changed_header_ends_the_walk_there_without_any_checksum(tmp_path: Path, field: int) -> None:
    sent = make(tmp_path)
    with open_recording(tmp_path, 0) as reader:
        starts = [0, *(position for position, _ in messages(reader, 0, reader.end_position()))]
    flip(tmp_path / "0-0.rec", starts[20] + field)
    (problem,) = found(tmp_path, checksums=False)
    assert problem.kind in ("corrupt", "torn", "unwritten")
    # A corrupt length is detected only at the next frame.
    assert starts[20] <= problem.position <= starts[20] + 8192
    with open_recording(tmp_path, 0) as reader:
        read = [payload for _, payload in messages(reader, 0, starts[20])]
    assert read == sent[:20]


def test_truncated_and_missing_files_are_reported_by_name(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / f"0-{8 * TERM}.rec").unlink()
    (problem,) = found(tmp_path)
    assert (problem.kind, problem.position) == ("missing", 8 * TERM)
    with (tmp_path / f"0-{4 * TERM}.rec").open("r+b") as file:
        file.truncate(TERM + 1000)
    (problem,) = found(tmp_path)
    assert problem.kind == "torn"
    assert 5 * TERM <= problem.position <= 5 * TERM + 1000


def test_changes_after_a_missing_segment_are_found_too(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / f"0-{4 * TERM}.rec").unlink()
    flip(tmp_path / f"0-{8 * TERM}.rec", 1000)
    missing, changed = found(tmp_path)
    assert (missing.kind, missing.position) == ("missing", 4 * TERM)
    assert changed.kind == "checksum"
    assert 4 * TERM <= changed.position <= 8 * TERM + 1000


def test_an_active_archive_recording_has_no_problem_unless_torn(
    tmp_path: Path,
) -> None:
    recorder = Recorder(tmp_path, segment_length=4 * TERM)
    writer = recorder.start(**STREAM, join_position=0)
    record(writer, Stream(term_length=TERM), [b"x" * 500] * 20)
    index_file(tmp_path, 0).unlink()
    with open_recording(tmp_path, 0) as reader:
        assert reader.end_position() == writer.position
        assert find_end_problem(reader) is None
    with (tmp_path / "0-0.rec").open("r+b") as file:
        file.seek(writer.position)
        file.write(struct.pack("<i", 4 * TERM + 32))
    with open_recording(tmp_path, 0) as reader:
        problem = find_end_problem(reader)
        assert problem is not None
        assert problem.position == writer.position
        assert problem.kind in ("torn", "corrupt")
    recorder.close()


def test_a_negative_frame_length_is_a_corrupt_header(tmp_path: Path) -> None:
    make(tmp_path)
    with (tmp_path / "0-0.rec").open("r+b") as file:
        file.write(struct.pack("<i", -64))
    (problem, *_) = found(tmp_path, checksums=False)
    assert (problem.position, problem.kind) == (0, "corrupt")
    assert "a frame header is invalid" in problem.text


def test_a_missing_first_segment_is_a_problem_unless_purged(tmp_path: Path) -> None:
    make(tmp_path)
    with open_recording(tmp_path, 0) as reader:
        assert find_start_problem(reader) is None
    (tmp_path / "0-0.rec").unlink()
    with open_recording(tmp_path, 0) as reader:
        assert find_start_problem(reader) is None  # Mainstem purges without changing the start position
    index_file(tmp_path, 0).unlink()
    with open_recording(tmp_path, 0) as reader:
        problem = find_start_problem(reader)
    assert problem is not None
    assert (problem.position, problem.kind) == (0, "missing")
    assert f"positions 0 to {4 * TERM} have no segment file" in problem.text
