"""Numbers at the ends of what 64 bits hold: sums of them do not wrap round to something that looks possible."""

from __future__ import annotations

import struct

import pytest
from tests.unit._core.network import modules

from mainstem._core.log.batch import MessageColumns
from mainstem._core.memory.buffer import AtomicBuffer

LAST = (1 << 63) - 1


@pytest.mark.parametrize("offset", [LAST, LAST - 7, 1 << 62])
def test_an_access_far_behind_a_buffer_is_outside_of_it(offset: int) -> None:
    buffer = AtomicBuffer(bytearray(64))
    for access in (buffer.get_i64, buffer.get_u8, lambda at: buffer.put_i32(at, 1), lambda at: buffer.zero(at, 8)):
        with pytest.raises(IndexError, match=f"from {offset} on lie outside a buffer of 64 bytes"):
            access(offset)
    with pytest.raises(IndexError):
        AtomicBuffer(bytearray(64), offset, LAST)
    with pytest.raises(IndexError):
        buffer.get_bytes(8, LAST)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "uncompiled"])
def test_a_counter_of_any_number_is_outside_of_the_counters(compiled: bool) -> None:
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
