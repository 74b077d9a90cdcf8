"""Recordings that an archive extends with another session: in a directory of Mainstem's, and in one of Aeron Archive's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.support.streams import Stream, record

from mainstem.archive.server.files import ArchiveFiles
from mainstem.recording.catalog import CATALOG_FILE, read_catalog
from mainstem.recording.earlier_frames import at_once
from mainstem.recording.index import index_file
from mainstem.recording.mark_file import RECORDER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mainstem.recording import RecordingDescriptor

TERM = 65536
SEGMENT = 2 * TERM


class ExtendedRecording:
    """Recording 0 of a directory. ``is_aeron`` says whether it looks as if Aeron Archive had written it."""

    def __init__(self, directory: Path, *, is_aeron: bool, initial_term_id: int = -5) -> None:
        self.directory, self.is_aeron = directory, is_aeron
        self.stream = Stream(term_length=TERM, initial_term_id=initial_term_id)
        # The session and the payload of every message.
        self.sent: list[tuple[int, bytes]] = []
        self._correlation_id = 0

    @property
    def descriptor(self) -> RecordingDescriptor:
        return read_catalog(self.directory)[0]

    def record(self, session_id: int, payloads: Iterable[bytes], *, stops: bool = True) -> None:
        """Start the recording, or extend it from its stop position. Unless ``stops``, the archive is killed afterward."""
        payloads = list(payloads)
        self.stream.session_id = session_id
        files = ArchiveFiles(self.directory, RECORDER, segment_length=SEGMENT)
        try:
            known = files.find(0)
            if known is None:
                writer = files.begin(self._image(), stripped="aeron:ipc", original="aeron:ipc")
            else:
                writer = files.extend(known, self._image(), at_once(files.earlier_frames(known)))
            record(writer, self.stream, payloads, time_ns=1_700_000_000 * 10**9)
            if stops:
                files.stop(writer)
            else:
                # A process that is killed leaves the entry as it is.
                catalog = (self.directory / CATALOG_FILE).read_bytes()
        finally:
            files.close()
        if not stops:
            (self.directory / CATALOG_FILE).write_bytes(catalog)
        self.sent += [(session_id, payload) for payload in payloads]
        if self.is_aeron:
            # Aeron Archive has no index. It writes these ids when it extends a recording.
            index_file(self.directory, 0).unlink()
            ids = (17, self._correlation_id) if known is not None else (0, 0)
            self._store_ids(*ids)

    def recover(self) -> None:
        """Start the archive again, which ends the recording where its frames end."""
        ArchiveFiles(self.directory, RECORDER, segment_length=SEGMENT).close()

    def truncate(self, count: int) -> None:
        """Remove the last messages of the stopped recording."""
        end = self.descriptor.start_position
        stream = Stream(term_length=TERM)
        for _, run in stream.runs(payload for _, payload in self.sent[:-count]):
            end += len(run)
        with ArchiveFiles(self.directory, RECORDER, segment_length=SEGMENT) as files:
            files.truncate(self.descriptor, end)
        self.stream.position = end
        del self.sent[-count:]

    def _image(self) -> Any:
        self._correlation_id += 1
        position = self.stream.position
        return SimpleNamespace(
            session_id=self.stream.session_id,
            stream_id=1001,
            join_position=position,
            position=position,
            initial_term_id=self.stream.initial_term_id,
            term_length=TERM,
            mtu=1408,
            source_identity="aeron:ipc",
            driver_start_ms=1,
            correlation_id=self._correlation_id,
        )

    def _store_ids(self, control_session_id: int, correlation_id: int) -> None:
        path, at = self.directory / CATALOG_FILE, self.descriptor.entry_offset + 32
        data = bytearray(path.read_bytes())
        data[at : at + 16] = control_session_id.to_bytes(8, "little") + correlation_id.to_bytes(8, "little")
        path.write_bytes(data)
