"""Inputs for files of many kilobytes: a valid file that Mainstem wrote, and a short input that describes changes to it.

A fuzzer that had to generate the whole file would spend its time on bytes that are never read.
"""

from __future__ import annotations


def patched(original: bytes, data: bytes, *, at_end: int = 0) -> bytes:
    """Return the file with changes: each is an offset of three bytes, a length of one byte, and that many bytes.

    An offset with its highest bit set counts from ``at_end``, the start of the important part. A length above 127 truncates the
    file at the offset; only the lowest four bits are the length.
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
    """Encode one change."""
    return (offset | (0x800000 if from_end else 0)).to_bytes(3, "little") + bytes([len(part)]) + part
