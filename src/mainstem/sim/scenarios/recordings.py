"""Checks of recordings, for scenarios with a recorder or an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.reader import RecordingReader
from mainstem.recording.rows.batches import messages
from mainstem.recording.verify_recordings import find_problems
from mainstem.sim.checkers import CHECKED, Violation
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path


def open_readers(directory: Path) -> list[RecordingReader]:
    """Return a reader for each recording in a directory, which may not have a catalog yet."""
    if not (directory / "archive.catalog").exists():
        return []
    archive = DirectoryArchive(LocalStore(directory))
    return [RecordingReader(archive, descriptor) for descriptor in archive.recordings()]


def check_messages(reader: RecordingReader, expected: list[tuple[int, bytes]], *, is_final: bool) -> None:
    """Check that a recording has exactly the ``expected`` messages, with the position after each, and no problems.

    Messages count as checked if the recording ``is_final``.
    """
    name = f"recording {reader.descriptor.recording_id}"
    start, end = reader.start_position, reader.end_position()
    recorded = list(messages(reader, start, end))
    if recorded != expected:
        raise Violation(f"{name} has {len(recorded)} messages from {start} to {end}, not the {len(expected)} expected")
    for problem in find_problems(reader, start, end):
        raise Violation(f"{name}: {problem}")
    if is_final:
        CHECKED.count(*(payload for _, payload in recorded))
