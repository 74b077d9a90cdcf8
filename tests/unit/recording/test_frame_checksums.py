from __future__ import annotations

import random
import struct
import zlib
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Stream, aligned, record

from mainstem._core.log.checksums import CRC32C, FrameChecksum
from mainstem.recording import Problem, Recorder, find_problems, open_recording
from mainstem.recording.catalog import Catalog, read_catalog
from mainstem.recording.index import index_file
from mainstem.recording.verify_recordings import find_directory_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TERM = 65536
STREAM = {"session_id": 77, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}


def crc32(data: bytes) -> int:
    return zlib.crc32(data)


def crc32c(data: bytes) -> int:
    return FrameChecksum(CRC32C).compute(data, 0, len(data)) & 0xFFFFFFFF


def make(directory: Path, count: int = 200, max_length: int = 3000) -> None:
    """Write a recording as an archive without checksums leaves it: no frame checksums, and no Mainstem index."""
    rng = random.Random(5)
    with Recorder(directory, segment_length=2 * TERM) as recorder:
        writer = recorder.start(**STREAM, join_position=0)
        record(writer, Stream(term_length=TERM), [rng.randbytes(rng.randrange(max_length)) for _ in range(count)])
    index_file(directory, 0).unlink()


def frames(directory: Path) -> list[tuple[Path, int, int]]:
    """Return the file, offset and length of each data frame."""
    found = []
    with open_recording(directory, 0) as reader:
        end = reader.end_position()
    position = 0
    while position < end:
        path = directory / f"0-{position // (2 * TERM) * 2 * TERM}.rec"
        length, _, kind = struct.unpack_from("<iHH", path.read_bytes(), position % (2 * TERM))
        if kind:
            found.append((path, position % (2 * TERM), length))
        position += aligned(length)
    return found


def store(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def set_sessions(where: list[tuple[Path, int, int]], value: Callable[[bytes], int]) -> None:
    """Store checksums in the frames' session ids, as an archive does."""
    for path, offset, length in where:
        body = path.read_bytes()[offset + 32 : offset + aligned(length)]
        store(path, offset + 12, value(body).to_bytes(4, "little"))


def flip(frame: tuple[Path, int, int], where: int) -> int:
    """Flip a bit of a frame and return the frame's position."""
    path, offset, _ = frame
    data = path.read_bytes()
    store(path, offset + where, bytes([data[offset + where] ^ 4]))
    return int(path.stem.partition("-")[2]) + offset


def found(directory: Path) -> list[Problem]:
    with open_recording(directory, 0) as reader:
        return list(find_problems(reader, 0, reader.end_position()))


@pytest.mark.parametrize("algorithm", [crc32, crc32c])
def test_a_changed_byte_of_a_frame_with_a_checksum_is_found_at_the_frame(
    tmp_path: Path, algorithm: Callable[[bytes], int]
) -> None:
    make(tmp_path)
    every = frames(tmp_path)
    set_sessions(every, algorithm)
    assert found(tmp_path) == []
    for number in (0, 1, 50, len(every) - 1):
        length = every[number][2]
        for where in (12, 32, length - 1):
            position = flip(every[number], where)
            (problem,) = found(tmp_path)
            assert (problem.kind, problem.position) == ("checksum", position)
            flip(every[number], where)
    assert found(tmp_path) == []


def test_changed_frames_in_a_row_are_one_problem(tmp_path: Path) -> None:
    make(tmp_path)
    every = frames(tmp_path)
    set_sessions(every, crc32c)
    positions = [flip(each, 32) for each in every[10:14]] + [flip(every[20], 32)]
    first, second = found(tmp_path)
    assert (first.position, second.position) == (positions[0], positions[4])
    assert f"positions {positions[0]} to {positions[3] + aligned(every[13][2])}" in first.text


def test_checksums_can_begin_and_end_with_an_extension(tmp_path: Path) -> None:
    make(tmp_path)
    every = frames(tmp_path)

    def parts() -> Iterator[tuple[list[tuple[Path, int, int]], Callable[[bytes], int]]]:
        yield every[:30], lambda _: 501
        yield every[30:60], crc32
        yield every[60:90], lambda _: 502
        yield every[90:120], lambda _: 503
        yield every[120:150], crc32c

    for where, value in parts():
        set_sessions(where, value)
    assert found(tmp_path) == []
    position = flip(every[40], 32)
    assert [(each.kind, each.position) for each in found(tmp_path)] == [("checksum", position)]


def test_a_recording_of_one_frame_is_checked_too(tmp_path: Path) -> None:
    make(tmp_path, 1, 1000)
    every = frames(tmp_path)
    set_sessions(every, crc32c)
    assert found(tmp_path) == []
    flip(every[0], 40)
    assert [each.kind for each in found(tmp_path)] == ["checksum"]


def test_checksums_may_be_left_out(tmp_path: Path) -> None:
    make(tmp_path)
    set_sessions(frames(tmp_path), crc32c)
    flip(frames(tmp_path)[3], 32)
    with open_recording(tmp_path, 0) as reader:
        assert list(find_problems(reader, 0, reader.end_position(), checksums=False)) == []


def test_an_entry_of_the_catalog_keeps_its_checksum_and_a_changed_one_is_found(tmp_path: Path) -> None:
    make(tmp_path)
    (descriptor,) = read_catalog(tmp_path)
    path, at = tmp_path / "archive.catalog", descriptor.entry_offset
    data = path.read_bytes()
    (length,) = struct.unpack_from("<i", data, at)
    store(path, at + 8, crc32c(data[at + 32 : at + 32 + length]).to_bytes(4, "little"))
    assert list(find_directory_problems(tmp_path)) == []
    catalog = Catalog(tmp_path)
    catalog.stop(catalog.extend(descriptor), descriptor.stop_position - 32, 5)
    catalog.close()
    assert read_catalog(tmp_path)[0].stop_position == descriptor.stop_position - 32
    assert list(find_directory_problems(tmp_path)) == []
    offset = at + 32 + 24
    store(path, offset, bytes([path.read_bytes()[offset] ^ 1]))
    (problem,) = find_directory_problems(tmp_path)
    assert (problem.kind, problem.position) == ("catalog", at)
