"""Check that a capture adds up: each of its packets is in a row or counted as skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

OF_THE_FILE = {"TRUNCATED_FILE", "CORRUPT_FILE", "UNREADABLE_FILE", "UNSUPPORTED_LINK"}
"""Problems of the file, and not of the packet before them."""


def accounted(rows: Iterable[dict[str, Any]]) -> int:
    """Return the number of packets that have rows or were counted; rows need packet, frame_type and length."""
    numbers: set[int] = set()
    passed = 0
    for row in rows:
        if row["frame_type"] == "PASSED_OVER":
            passed += row["length"]
        elif row["frame_type"] not in OF_THE_FILE:
            numbers.add(row["packet"])
    return len(numbers) + passed
