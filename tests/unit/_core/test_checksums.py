from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from tests.unit._core.uncompiled import load

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
    for call in (crc32.compute, crc32.check, lambda *range_: checksums.end_of_session(*range_, 1)):
        for start, end in ((0, 101), (-4, 8), (8, 4)):
            with pytest.raises(IndexError):
                call(bytes(100), start, end)


def test_a_length_that_leads_out_of_the_range_ends_the_check_there(checksums: Any) -> None:
    for length in (0, -64, 31, 96, 1 << 30, -(1 << 31), (1 << 31) - 1):
        frame = length.to_bytes(4, "little", signed=True) + b"\0\xc0\1\0" + bytes(56)
        crc32 = checksums.FrameChecksum(checksums.CRC32)
        assert crc32.check(frame, 0, 64)
        assert crc32.offset == 0
        assert checksums.end_of_session(frame, 0, 64, 0) == 64
