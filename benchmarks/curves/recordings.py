"""Recordings: how long and how many."""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.curve import Curve, memory_mb
from harness.recordings import make

from mainstem.recording import messages, open_recordings

if TYPE_CHECKING:
    from mainstem.recording import Recordings

READ = 1_000  # messages of the middle, which are looked up by position
COLUMNS = ["position", "payload"]


def scan(recordings: Recordings) -> tuple[int, float]:
    """Rows, and the processor time of a scan. The first batch of a process imports much of pyarrow, which is not counted."""
    next(iter(recordings.scan(COLUMNS).to_batches()))
    start = time.process_time()
    rows = sum(len(batch) for batch in recordings.scan(COLUMNS).to_batches())
    return rows, time.process_time() - start


def length(megabytes: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="mainstem-growth-") as name:
        make(Path(name), megabytes * 1_000_000)
        before = memory_mb()
        start = time.process_time()
        with open_recordings(name) as recordings:
            (reader,) = recordings
            middle = reader.boundary_after(reader.end_position() // 2, reader.end_position())
            found = messages(reader, middle, reader.end_position())
            assert len([next(found) for _ in range(READ)]) == READ
            sought = time.process_time() - start
            rows, scanned = scan(recordings)
            memory = memory_mb() - before
        assert rows > READ
        return {
            "open, and read 1,000 messages from the middle [ms]": sought * 1e3,
            "scan [ms for each 100 MB]": scanned * 1e5 / megabytes,
            "memory": max(memory, 0.1),
        }


def count(recordings: int) -> dict[str, float]:
    from tests.support.many_recordings import make_recordings

    with tempfile.TemporaryDirectory(prefix="mainstem-growth-") as name:
        make_recordings(Path(name) / "many", recordings)
        gc.collect()
        before, start = memory_mb(), time.process_time()
        with open_recordings(Path(name) / "many") as found:
            opened = time.process_time() - start
            assert len(found) == recordings
            rows, scanned = scan(found)
            assert rows == 10 * recordings
            memory = memory_mb() - before
        return {"open [ms]": opened * 1e3, "scan [ms]": scanned * 1e3, "memory": max(memory, 0.1)}


CURVES = (
    Curve(
        name="recording length",
        over="MB",
        cost="processor time",
        points=(1, 10, 100, 1_000, 20_000),
        quick=(1, 100),
        measure=length,
        why="The index leads to a position, so opening and seeking do not depend on the length. A scan costs the same "
        "for each byte; in a short recording the first batch dominates, and the longest one does not fit the page "
        "cache, so its scan reads from the disk. Memory includes pages of the mapped files.",
    ),
    Curve(
        name="number of recordings",
        over="recordings of ten messages",
        cost="processor time",
        points=(1, 10, 100, 1_000, 10_000),
        quick=(1, 100),
        measure=count,
        why="Each recording costs a catalog entry and, if it is read, two files.",
    ),
)
