"""A short upper bound of a text, in the order of code points, which is that of UTF-8's bytes."""

from __future__ import annotations

_BEFORE_SURROGATES, _AFTER_SURROGATES, _LAST = 0xD7FF, 0xE000, 0x10FFFF


def upper_text(text: str, length: int) -> str | None:
    """The text if it is no longer than ``length``, else a shorter text above it; None if none is above it."""
    if len(text) <= length:
        return text
    start = text[:length].rstrip(chr(_LAST))
    if not start:
        return None
    last = ord(start[-1])
    return start[:-1] + chr(_AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1)
