"""The report of ranges that ``failOnDataLoss=false`` skipped: one file per range, in the directory of the option ``skipReport``.

Spark has no metrics for Python sources, and tasks log on their workers. So the planner and the tasks write to a shared directory.
A file's name consists of archive, recording and range, so a repeated task or another query over the same recordings adds nothing.
Overlapping ranges count once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("mainstem.spark")

SUFFIX = ".skipped"
# A larger directory would be slow to list. Further ranges are only logged.
MAX_FILES = 10_000
# Hex digits of the hash of the archive's id.
MARK_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Skipped:
    """The skipped ranges of one recording.

    Attributes:
        recording_id: The recording's id.
        ranges: The number of separate ranges of positions.
        bytes: The number of bytes in these ranges, frame headers included.
        reasons: The distinct reasons for skipping them.
        archive: The id of the recording's archive, or its URL if it has no id, as in the column ``archive``.
    """

    recording_id: int
    ranges: int
    bytes: int
    reasons: tuple[str, ...]
    archive: str


def note(directory: str, archive: str, recording_id: int, start: int, end: int, reason: str) -> None:
    """Add a range to the report, if there is a directory. A failure to write is only logged."""
    if not directory or end <= start:
        return
    # The archive may be named by a URL, which is not allowed in a file name, so use a hash.
    mark = hashlib.sha256(archive.encode()).hexdigest()[:MARK_LENGTH]
    path = os.path.join(directory, f"{mark}-{recording_id}-{start}-{end}{SUFFIX}")
    try:
        os.makedirs(directory, exist_ok=True)
        if len(os.listdir(directory)) >= MAX_FILES:
            log.warning("%s has %d files: %s is not added", directory, MAX_FILES, os.path.basename(path))
            return
        with suppress(FileExistsError), open(path, "x", encoding="utf-8") as file:
            value = {"archive": archive, "recording_id": recording_id, "start": start, "end": end, "reason": reason}
            json.dump(value, file)
    except OSError as error:
        log.warning("%s is not added to the report: %s", os.path.basename(path), error)


def read_skip_report(directory: Path | str) -> list[Skipped]:
    """Sum the ranges that ``failOnDataLoss=false`` skipped in batch and streaming queries.

    Args:
        directory: The directory of the option ``skipReport``, as this process sees it.

    Returns:
        A ``Skipped`` for each recording with skipped ranges. A range counts once, even if it was read several times.

    Example:
        >>> sum(each.bytes for each in read_skip_report("/data/skipped"))
        0
    """
    ranges: dict[tuple[str, int], list[tuple[int, int]]] = {}
    reasons: dict[tuple[str, int], dict[str, None]] = {}
    archives: dict[str, str] = {}
    names: list[str] = []
    with suppress(FileNotFoundError):
        names = sorted(name for name in os.listdir(directory) if name.endswith(SUFFIX))
    for name in names:
        mark, recording_id, start, end = name.removesuffix(SUFFIX).split("-")
        key = (mark, int(recording_id))
        ranges.setdefault(key, []).append((int(start), int(end)))
        # The writer may not have written the file's content yet.
        with suppress(ValueError, KeyError), open(os.path.join(directory, name), encoding="utf-8") as file:
            value = json.load(file)
            reasons.setdefault(key, {})[value["reason"]] = None
            archives[mark] = value["archive"]
    sums = (
        _sum(archives.get(key[0], key[0]), key[1], sorted(pairs), tuple(reasons.get(key, ())))
        for key, pairs in ranges.items()
    )
    return sorted(sums, key=lambda each: (each.archive, each.recording_id))


def _sum(archive: str, recording_id: int, ranges: list[tuple[int, int]], reasons: tuple[str, ...]) -> Skipped:
    count = length = 0
    reached = -1
    for start, end in ranges:
        count += start > reached
        length += max(0, end - max(start, reached))
        reached = max(reached, end)
    return Skipped(recording_id, count, length, reasons, archive)
