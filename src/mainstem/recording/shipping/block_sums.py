"""Checksums of an object by block, so that a reader can verify a range.

The table, at the end of the object, has the CRC-32 of each 64 KiB, little-endian. The manifest or a page has the CRC-32 of the
table. An object of one block has no table: the manifest has its CRC-32.
"""

from __future__ import annotations

import struct
from zlib import crc32

# As fine as the index of a recording. A corrupt block costs readers this much; a table takes 1/16,000 of its object.
BLOCK = 64 << 10
SUM_LENGTH = 4

_SUM = struct.Struct("<I")


def table_length(nbytes: int) -> int:
    """The size of the checksum table for an object of this many bytes."""
    return -(-nbytes // BLOCK) * SUM_LENGTH if nbytes > BLOCK else 0


def sums_of(table: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(table) // SUM_LENGTH}I", table)


class BlockSums:
    """Makes the table of an object from its bytes, in parts of any length."""

    def __init__(self) -> None:
        self._table = bytearray()
        self._length = self._sum = 0

    def add(self, data: bytes) -> None:
        at = 0
        with memoryview(data) as view:
            while at < len(data):
                taken = min(BLOCK - self._length % BLOCK, len(data) - at)
                self._sum = crc32(view[at : at + taken], self._sum)
                self._length += taken
                at += taken
                if self._length % BLOCK == 0:
                    self._table += _SUM.pack(self._sum)
                    self._sum = 0

    def table(self) -> bytes:
        if self._length <= BLOCK:
            return b""
        return bytes(self._table) + (_SUM.pack(self._sum) if self._length % BLOCK else b"")
