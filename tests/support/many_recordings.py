"""A directory with very many small recordings, identical to a recorder's but much cheaper to create."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.streams import Stream

from mainstem.recording.catalog import Catalog, RecordingDescriptor
from mainstem.recording.index import IndexWriter
from mainstem.recording.segments import segment_name

if TYPE_CHECKING:
    from pathlib import Path

TERM = 65536


def make_recordings(
    path: Path, count: int, *, growing: int = 0, messages: int = 10, length: int = 96, channel: str = "aeron:ipc"
) -> list[Growing]:
    """Create ``count`` recordings of ``messages`` messages each, with sparse segments; the last ``growing`` have not ended."""
    path.mkdir(parents=True, exist_ok=True)
    catalog = Catalog(path)
    kept = []
    frames = b"".join(run for _, run in Stream(session_id=0).runs([bytes(length)] * messages))
    entries = []
    for number in range(count):
        descriptor = RecordingDescriptor(
            recording_id=number,
            start_timestamp=1_700_000_000_000 + number,
            stop_timestamp=1_700_000_001_000 if number < count - growing else -1,
            stop_position=len(frames) if number < count - growing else -1,
            segment_file_length=TERM,
            term_buffer_length=TERM,
            initial_term_id=-5,
            session_id=number,
            stream_id=1001,
            stripped_channel="aeron:ipc",
            original_channel=channel,
        )
        entries.append(descriptor)
        with (path / segment_name(number, 0)).open("wb") as file:
            file.write(frames)
            file.truncate(TERM)
        positions = IndexWriter(path, number, 0)
        positions.publish(len(frames), 1_700_000_000_500_000_000)
        if number < count - growing:
            positions.close()
        else:
            kept.append(Growing(path, number, positions, len(frames)))
    catalog.close()
    write_catalog(path, entries)
    return kept


def write_catalog(path: Path, descriptors: list[RecordingDescriptor]) -> None:
    """Write all entries at once, because adding an entry reads all previous ones."""
    from mainstem.recording.catalog import (
        _ENTRY_HEADER,
        _HEADER,
        ALIGNMENT,
        CATALOG_FILE,
        CATALOG_VERSION,
        ENTRY_HEADER_LENGTH,
        HEADER_LENGTH,
        STATE_VALID,
    )

    data = [_HEADER.pack(CATALOG_VERSION, HEADER_LENGTH, len(descriptors), ALIGNMENT).ljust(HEADER_LENGTH, b"\0")]
    for descriptor in descriptors:
        body = descriptor.encode()
        whole = (ENTRY_HEADER_LENGTH + len(body) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        head = _ENTRY_HEADER.pack(whole - ENTRY_HEADER_LENGTH, STATE_VALID, 0).ljust(ENTRY_HEADER_LENGTH, b"\0")
        data.append((head + body).ljust(whole, b"\0"))
    (path / CATALOG_FILE).write_bytes(b"".join(data))


class Growing:
    """One recording that has not ended."""

    def __init__(self, path: Path, number: int, positions: IndexWriter, position: int) -> None:
        self._file, self._positions, self.position = path / segment_name(number, 0), positions, position

    def grow(self, messages: int = 1, length: int = 96) -> None:
        """Append messages, within the segment."""
        stream = Stream(session_id=0, position=self.position)
        frames = b"".join(run for _, run in stream.runs([bytes(length)] * messages))
        with self._file.open("r+b") as file:
            file.seek(self.position)
            file.write(frames)
        self.position += len(frames)
        self._positions.publish(self.position, 1_700_000_000_600_000_000)

    def close(self) -> None:
        self._positions.close()
