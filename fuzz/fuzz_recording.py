"""Recordings: whatever a directory's files contain, they are read to their end, or refused by an error that names the file.

The first byte selects the catalog, a segment or the index of positions. The rest changes that file (patching.py).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from patching import patch, patched
from scratch import folder
from tests.support.many_recordings import make_recordings

from mainstem.errors import RecordingError
from mainstem.recording import open_recordings
from mainstem.recording.catalog import decode_catalog
from mainstem.recording.verify_recordings import find_end_problem, find_problems

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY = folder() / "recordings"
make_recordings(DIRECTORY, 2)
FILES = {path: path.read_bytes() for path in sorted(DIRECTORY.iterdir())}
NAMES = list(FILES)
SEEDS = [
    bytes([number]) + patch(offset, value)
    for number in range(len(NAMES))
    for offset in (0, 8, 12, 32, 64, 128, 140, 4096)
    for value in (b"\xff\xff\xff\xff", b"\0\0\0\0\0\0\0\x80", b"\1\0\0\0")
]
_changed: list[Path] = []


def target(data: bytes) -> None:
    """Process one input."""
    if not data:
        return
    while _changed:
        path = _changed.pop()
        path.write_bytes(FILES[path])
    path = NAMES[data[0] % len(NAMES)]
    content = patched(FILES[path], data[1:])
    _changed.append(path)
    path.write_bytes(content)
    if path.name.endswith(".catalog"):
        try:
            decode_catalog(content, path.name)
        except RecordingError as error:
            assert str(error)
    try:
        with open_recordings(DIRECTORY) as recordings:
            for reader in recordings:
                read(reader)
            for batch in recordings.scan().to_batches():
                batch.validate(full=True)
    except RecordingError as error:
        assert str(error)


def read(reader: object) -> None:
    try:
        end = reader.end_position()  # type: ignore[attr-defined]
        list(find_problems(reader, reader.start_position, end))  # type: ignore[arg-type, attr-defined]
        find_end_problem(reader)  # type: ignore[arg-type]
        reader.recorded_time_ns(reader.start_position)  # type: ignore[attr-defined]
        reader.position_at_time(1_700_000_000_500_000_000)  # type: ignore[attr-defined]
    except RecordingError as error:
        assert str(error)


assert os.listdir(DIRECTORY)
