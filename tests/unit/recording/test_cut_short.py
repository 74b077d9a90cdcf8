"""Another process truncates files while they are read: the reader gets rows or RecordingError and never crashes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, record
from tests.support.waiting import STALL_S

from mainstem.errors import RecordingError
from mainstem.recording import Recorder, RecordingReader, batches, find_problems, read_catalog
from mainstem.recording.archive import find_end, local_archive
from mainstem.recording.index import LocalIndex, index_file
from mainstem.recording.segments import SegmentMemory, segment_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TERM = 65536
STREAM = {"session_id": 77, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}
ROUNDS = 300


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """The file of a recording with one segment; its directory holds everything else."""
    rng = random.Random(1)
    with closing(Recorder(tmp_path, segment_length=8 * TERM)) as recorder:
        writer = recorder.start(**STREAM, join_position=0)
        sent = [rng.randbytes(rng.randrange(3000)) for _ in range(250)]
        record(writer, Stream(), sent, time_ns=1, step_ns=50_000_000)
        recorder.stop(writer)
    return tmp_path / segment_name(0, 0)


def read_all(reader: RecordingReader, strict: bool = True) -> int:
    return sum(rows for _, rows in batches(reader, 0, reader.end_position(), rows=20, strict=strict))


def half_read(reader: RecordingReader, file: Path, strict: bool) -> None:
    for number, _ in enumerate(batches(reader, 0, reader.end_position(), rows=20, strict=strict)):
        if number == 2:
            os.truncate(file, 4 * TERM)


READINGS: dict[str, Callable[[RecordingReader, Path], object]] = {
    "batches": lambda reader, file: half_read(reader, file, True),
    "batches that pass over faults": lambda reader, file: half_read(reader, file, False),
    "walk": lambda reader, _: reader.walk(0, reader.end_position()),
    "checksum": lambda reader, _: reader.checksum(0, reader.end_position()),
    "faults": lambda reader, _: list(find_problems(reader, 0, reader.end_position())),
    "count": lambda reader, _: reader.messages_before(reader.end_position() - 32),
}


@pytest.mark.parametrize("name", READINGS)
def test_a_reader_that_raised_raises_again(recording: Path, name: str) -> None:
    with RecordingReader(local_archive(recording.parent), read_catalog(recording.parent)[0]) as reader:
        assert read_all(reader) == 250
        if "batches" not in name:
            os.truncate(recording, 4 * TERM)
        for _ in range(2):
            with pytest.raises(RecordingError, match="was cut short while it was read"):
                READINGS[name](reader, recording)
    with (
        RecordingReader(local_archive(recording.parent), read_catalog(recording.parent)[0]) as reader,
        pytest.raises(RecordingError, match="ends at 262144 bytes"),
    ):
        read_all(reader)


def test_the_bytes_of_a_segment_raise(recording: Path) -> None:
    segment = SegmentMemory(recording, 0)
    os.truncate(recording, 4 * TERM)
    assert len(segment.read(0, TERM)) == TERM
    with pytest.raises(RecordingError, match="was cut short"):
        segment.read(0, 8 * TERM)
    segment.close()


def test_searching_for_an_end_raises(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = SegmentMemory.chunks

    def cut(self: SegmentMemory, start: int, end: int) -> object:
        os.truncate(recording, 0)
        return chunks(self, start, end)

    monkeypatch.setattr(SegmentMemory, "chunks", cut)
    with pytest.raises(RecordingError, match="was cut short"):
        find_end(local_archive(recording.parent), read_catalog(recording.parent)[0])


def test_positions_raise_for_readers_and_for_the_recorder(recording: Path) -> None:
    path = index_file(recording.parent, 0)
    with closing(LocalIndex(recording.parent, 0)) as positions:
        assert positions.recorded_position > 0
        os.truncate(path, 0)
        for read in (lambda: positions.recorded_position, lambda: positions.life, lambda: positions.recorded_time_ns):
            with pytest.raises(RecordingError, match=f"{path.name} was cut short by another process"):
                read()


def test_a_recorder_with_a_truncated_index_reports_it_and_continues(tmp_path: Path) -> None:
    with closing(Recorder(tmp_path, segment_length=8 * TERM)) as recorder:
        writer = recorder.start(**STREAM, join_position=0)
        stream = Stream()
        record(writer, stream, [b"before"], time_ns=1)
        os.truncate(index_file(tmp_path, 0), 0)
        with pytest.raises(RecordingError, match="was cut short by another process"):
            record(writer, stream, [b"after"], time_ns=1)
        other = recorder.start(**(STREAM | {"session_id": 78}), join_position=0)
        record(other, Stream(session_id=78), [b"another"], time_ns=1)


READER = """
import sys
from pathlib import Path
from mainstem.errors import RecordingError
from mainstem.recording import batches, find_problems, open_recording
directory, whole, errors = Path(sys.argv[1]), 0, 0
print("reading", flush=True)
while not (directory / "done").exists():
    try:
        with open_recording(directory, 0) as reader:
            end = reader.end_position()
            rows = sum(rows for _, rows in batches(reader, 0, end, rows=20))
            assert rows == 250, rows
            reader.checksum(0, end)
            whole += 1
    except RecordingError:
        errors += 1
print(whole, errors)
"""


def test_a_process_that_reads_survives_one_that_cuts(recording: Path) -> None:
    content = recording.read_bytes()
    rng = random.Random(2)
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(recording.parent)], stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        file = os.open(recording, os.O_RDWR)
        for _ in range(ROUNDS):
            length = rng.randrange(len(content))
            os.ftruncate(file, length)
            os.pwrite(file, content[length:], length)
        os.close(file)
        (recording.parent / "done").touch()
        out, _ = reader.communicate(timeout=STALL_S)
    assert reader.returncode == 0
    print(out)
