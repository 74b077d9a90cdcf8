from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import pytest
from tests.unit._core.uncompiled import load

from mainstem._core import layout
from mainstem._core.log import checksums as compiled

uncompiled: Any = load("log.checksums")


@pytest.fixture(params=[compiled, uncompiled], ids=["compiled", "uncompiled"])
def checksums(request: pytest.FixtureRequest) -> Any:
    return request.param


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def test_crc_32_is_that_of_zlib_at_every_length(checksums: Any) -> None:
    data = random.Random(1).randbytes(100)
    crc32 = checksums.FrameChecksum(checksums.CRC32)
    for start in range(0, 12, 4):
        for end in range(start, 100):
            assert crc32.compute(data, start, end) == signed(zlib.crc32(data[start:end]))


@pytest.mark.parametrize("polynomial", [compiled.CRC32, compiled.CRC32C])
def test_a_long_run_has_the_checksum_of_its_parts_in_turn(polynomial: int) -> None:
    """Long runs are folded; short ones go through tables."""
    data = random.Random(2).randbytes(1500)
    checksum, by_bytes = compiled.FrameChecksum(polynomial), uncompiled.FrameChecksum(polynomial)
    for start in (0, 4, 32):
        expected = 0
        for end in range(start, len(data)):
            assert checksum.update(data, start, end) == expected
            middle = (start + end) // 8 * 4
            assert checksum.update(data, middle, end, checksum.update(data, start, middle)) == expected
            expected = by_bytes.update(data[end : end + 1], 0, 1, expected)


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # RFC 3720, B.4
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_crc_32c_is_that_of_the_standard(checksums: Any, data: bytes, expected: int) -> None:
    assert checksums.FrameChecksum(checksums.CRC32C).compute(data, 0, len(data)) == signed(expected)


def test_a_range_outside_the_memory_is_refused(checksums: Any) -> None:
    crc32 = checksums.FrameChecksum(checksums.CRC32)
    for call in (
        crc32.compute,
        crc32.update,
        crc32.check,
        lambda *span: checksums.end_of_same(*span, 12, b"1234", True),
    ):
        for start, end in ((0, 101), (-4, 8), (8, 4)):
            with pytest.raises(IndexError):
                call(bytes(100), start, end)


def test_a_length_that_leads_out_of_the_range_ends_the_check_there(checksums: Any) -> None:
    for length in (0, -64, 31, 96, 1 << 30, -(1 << 31), (1 << 31) - 1):
        frame = length.to_bytes(4, "little", signed=True) + b"\0\xc0\1\0" + bytes(56)
        crc32 = checksums.FrameChecksum(checksums.CRC32)
        assert crc32.check(frame, 0, 64)
        assert crc32.offset == 0
        assert checksums.end_of_same(frame, 0, 64, 12, bytes(4), True) == 64


def test_a_summed_walk_continues_a_checksum_up_to_padding_or_to_its_room(checksums: Any) -> None:
    def frame(payload: bytes, flags: int = 0xC0, kind: int = 1) -> bytes:
        head = struct.pack("<iBBHiiiiq", 32 + len(payload), 0, flags, kind, 0, 7, 1, 0, 0)
        return (head + payload).ljust(-(-(32 + len(payload)) // 32) * 32, b"\0")

    noise = random.Random(3)
    for length in (0, 1, 31, 32, 40, 100, 1024, 5000):
        frames = [frame(noise.randbytes(length), flags) for flags in (0xC0, 0x80, 0x40, 0xC0, 0x80)]
        before, data = noise.randbytes(50), b"".join(frames)
        padded = data + frame(bytes(100), kind=0) + frame(b"behind it")
        walk, header, start = checksums.SummedWalk(), bytearray(32), zlib.crc32(before)
        assert walk.take(padded, 0, len(padded), 1 << 20, header, start) == layout.WALK_FULL
        assert walk.checksum == zlib.crc32(before + data)
        assert (walk.last, walk.offset, walk.others) == (len(data), len(data) + 160, 1)
        assert (walk.frames, walk.messages, walk.boundary) == (5, 3, 4 * len(frames[0]))
        assert header == padded[len(data) : len(data) + 32]
        room = len(data) - 1
        assert walk.take(data, 0, len(data), room, header, start) == layout.WALK_FULL
        assert (walk.offset, walk.others) == (4 * len(frames[0]), 0)
        assert walk.checksum == zlib.crc32(before + data[: walk.offset])
        assert walk.take(data, walk.offset, len(data), 1 << 20, header, walk.checksum) == layout.WALK_AT_LIMIT
        assert walk.checksum == zlib.crc32(before + data)
        assert walk.take(data, 0, 31, 1 << 20, header, start) == layout.WALK_TORN
        assert (walk.offset, walk.checksum) == (0, start)


def test_a_run_of_frames_with_the_same_ids_ends_at_the_first_other_id(checksums: Any) -> None:
    def frame(session: int, stream: int, term: int, kind: int) -> bytes:
        return struct.pack("<iBBHiiii", 32, 0, 0xC0, kind, 0, session, stream, term) + bytes(8)

    data = frame(-7, 1, -2, 1) + frame(-7, 1, -2, 0) + frame(9, 1, -2, 0) + frame(-7, 1, -3, 1) + frame(8, 1, -2, 1)
    session = struct.pack("<i", -7)
    assert checksums.end_of_same(data, 0, len(data), 12, session, False) == 128, "padding may have any"
    assert checksums.end_of_same(data, 0, len(data), 12, session, True) == 64
    assert checksums.end_of_same(data, 0, len(data), 16, struct.pack("<ii", 1, -2), True) == 96
    assert checksums.end_of_same(data, 32, 96, 16, struct.pack("<ii", 1, -2), True) == 96
    assert checksums.end_of_same(data, 0, len(data), 16, struct.pack("<ii", 2, -2), True) == 0
