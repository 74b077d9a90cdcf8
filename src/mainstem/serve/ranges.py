"""Parses the ``Range`` field of a request: a single range of bytes, as in RFC 9110, section 14."""

from __future__ import annotations

import re

# At most 19 digits, because int() of a long string is expensive and no file is that long.
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)


class RangeError(Exception):
    """The range cannot be sent; the message says why."""


def parse_range(header: str | None, size: int, most: int) -> tuple[int, int] | None:
    """Return the start and end of the range in a ``Range`` field, or None for the whole file.

    Raises RangeError if the field is invalid, or if the response would have more than ``most`` bytes.
    """
    if header is None:
        if size > most:
            raise RangeError(f"the file has {size} bytes: ask for ranges of at most {most}")
        return None
    match = _RANGE.fullmatch(header.strip())
    if match is None or not (match[1] or match[2]):
        raise RangeError("only a single range is supported: Range: bytes=FIRST-LAST")
    if match[1]:
        start = int(match[1])
        end = min(int(match[2]) + 1, size) if match[2] else size
        if match[2] and int(match[2]) < start:
            raise RangeError("the range ends before it starts")
    else:
        start, end = max(size - int(match[2]), 0), size
    if start >= size or start >= end:
        raise RangeError(f"the range starts past the end of the file, which has {size} bytes")
    if end - start > most:
        raise RangeError(f"the range has {end - start} bytes: ask for at most {most}")
    return start, end
