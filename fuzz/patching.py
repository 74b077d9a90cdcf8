"""Inputs for files of many kilobytes: a valid file that Mainstem wrote, and an input of some bytes that says what to change in it.

A fuzzer that had to write the whole file would spend its time on bytes that nobody reads.
"""

from __future__ import annotations


def patched(original: bytes, data: bytes, *, at_end: int = 0) -> bytes:
    """The file with changes: each is an offset of three bytes, a length of one, and so many bytes.

    An offset with its highest bit counts from ``at_end``, where what matters lies behind. A length above 127 cuts the file off.
    """
    file = bytearray(original)
    at = 0
    while at + 4 <= len(data) and file:
        offset = int.from_bytes(data[at : at + 3], "little")
        offset = (offset & 0x7FFFFF) + at_end if offset & 0x800000 else offset
        length = data[at + 3]
        offset %= len(file)
        if length > 127:
            del file[offset:]
        part = data[at + 4 : at + 4 + (length & 15)]
        file[offset : offset + len(part)] = part
        at += 4 + (length & 15)
    return bytes(file)


def patch(offset: int, part: bytes, *, from_end: bool = False) -> bytes:
    """One change."""
    return (offset | (0x800000 if from_end else 0)).to_bytes(3, "little") + bytes([len(part)]) + part
