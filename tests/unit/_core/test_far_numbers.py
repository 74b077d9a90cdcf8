"""Numbers at the ends of the 64-bit range: their sums do not wrap around to plausible values."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.unit._core.logs import COMPILED, UNCOMPILED, Core, Log
from tests.unit._core.network import modules

from mainstem._core.log.batch import MessageColumns
from mainstem._core.memory.buffer import AtomicBuffer

LAST = (1 << 63) - 1


@pytest.mark.parametrize("offset", [LAST, LAST - 7, 1 << 62])
def test_an_access_far_past_a_buffer_is_refused(offset: int) -> None:
    buffer = AtomicBuffer(bytearray(64))
    for access in (buffer.get_i64, buffer.get_u8, lambda at: buffer.put_i32(at, 1), lambda at: buffer.zero(at, 8)):
        with pytest.raises(IndexError, match=f"from {offset} on lie outside a buffer of 64 bytes"):
            access(offset)
    with pytest.raises(IndexError):
        AtomicBuffer(bytearray(64), offset, LAST)
    with pytest.raises(IndexError):
        buffer.get_bytes(8, LAST)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "uncompiled"])
def test_a_counter_id_out_of_range_is_refused(compiled: bool) -> None:
    core = modules(compiled=compiled)
    positions = core.positions.PositionSet(core.buffer.AtomicBuffer(bytearray(1024)))
    for number in (8, 1 << 56, 1 << 57, LAST):
        with pytest.raises(IndexError):
            positions.add(number)


def test_offsets_whose_difference_no_number_holds_are_refused() -> None:
    offsets = struct.pack("<3q", 0, LAST, -LAST)
    with pytest.raises(ValueError, match=r"row 0 is \[0, 9223372036854775807\) in 4 bytes of data"):
        MessageColumns(b"data", offsets, wide=True)
    with pytest.raises(ValueError, match="lie outside a column of 2"):
        MessageColumns(b"data", offsets, LAST, LAST, wide=True)


POLLS: dict[str, Any] = {
    "poll": lambda image, limit: image.poll(lambda _: None, limit),
    "bounded_poll": lambda image, limit: image.bounded_poll(lambda _: None, 1 << 40, limit=limit),
    "bounded_poll_position": lambda image, limit: image.bounded_poll(lambda _: None, limit),
    "controlled_poll": lambda image, limit: image.controlled_poll(lambda _: None, limit),
    "block_poll": lambda image, limit: image.block_poll(lambda _: None, limit) // 64,
    "poll_messages": lambda image, limit: image.poll_messages(lambda _: None, limit),
    "poll_bytes": lambda image, limit: len(image.poll_bytes(limit)),
    "poll_with_metadata": lambda image, limit: len(image.poll_with_metadata(limit)),
}


@pytest.mark.parametrize("core", [COMPILED, UNCOMPILED], ids=["compiled", "uncompiled"])
@pytest.mark.parametrize("poll", POLLS)
def test_a_poll_behind_the_start_takes_any_limit(core: Core, poll: str) -> None:
    for limit, expected in [(LAST, 3), (LAST - 64, 3), (1 << 32, 3), (-1, 0), (-LAST - 1, 0)]:
        log = Log(core)
        log.concurrent().offer_many([b"a"] * 5)
        image = log.image()
        assert image.poll(lambda _: None, 2) == 2
        assert POLLS[poll](image, limit) == expected, limit
