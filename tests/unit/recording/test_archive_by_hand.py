"""An archive laid out byte by byte from the description of Aeron Archive's files, without using Mainstem's own code.

It contains what Mainstem's recorder does not write: a start in the middle of a term, a deleted entry, checksums in place of
session ids, and an archive's mark file. It has no index and no recorded positions.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import pytest
from tests.support.recording_server import RunningServer
from tests.support.remote_store import RemoteStore
from tests.support.shipping import ManualClock, shipped, shipper

from mainstem import open_recordings
from mainstem.recording import RecordingReader, messages
from mainstem.recording.archive import DirectoryArchive
from mainstem.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

TERM, SEGMENT, MTU, INITIAL_TERM_ID = 65_536, 131_072, 1408, 7
SESSION_ID, STREAM_ID = -1_234_567, 1001
# The stream starts 40 frames of 1,024 bytes into a term.
START = 40 * 1024
BEGIN, END, UNFRAGMENTED = 0x80, 0x40, 0xC0


def messages_sent() -> list[bytes]:
    return [b"%d:" % number * (1 + number * 7 % 400) for number in range(400)]


class Log:
    """Writes frames at their positions into files of one segment each."""

    def __init__(self, directory: Path, recording_id: int, *, checksums: bool) -> None:
        self.directory, self.recording_id, self.checksums = directory, recording_id, checksums
        self.position = START
        self.files: dict[int, bytearray] = {}

    def _write(self, data: bytes) -> None:
        base = self.position // SEGMENT * SEGMENT
        file = self.files.setdefault(base, bytearray(SEGMENT))
        file[self.position - base : self.position - base + len(data)] = data

    def frame(self, kind: int, flags: int, payload: bytes, length: int) -> None:
        term_id, offset = INITIAL_TERM_ID + self.position // TERM, self.position % TERM
        identity = SESSION_ID
        if self.checksums and kind == 1:
            identity = struct.unpack("<i", struct.pack("<I", zlib.crc32(payload + bytes(-len(payload) % 32))))[0]
        head = struct.pack("<iBBHiiiiq", length, 0, flags, kind, offset, identity, STREAM_ID, term_id, 0)
        self._write(head + payload)
        self.position += (length + 31) // 32 * 32

    def message(self, payload: bytes) -> None:
        most = MTU - 32
        parts = [payload[at : at + most] for at in range(0, len(payload), most)] or [b""]
        needed = sum((32 + len(part) + 31) // 32 * 32 for part in parts)
        if self.position % TERM + needed > TERM:
            # Only the header of padding is written.
            self.frame(0, UNFRAGMENTED, b"", TERM - self.position % TERM)
        for number, part in enumerate(parts):
            flags = (BEGIN if number == 0 else 0) | (END if number == len(parts) - 1 else 0)
            self.frame(1, flags, part, 32 + len(part))

    def close(self) -> None:
        for base, data in self.files.items():
            (self.directory / f"{self.recording_id}-{base}.rec").write_bytes(data)


def entry(recording_id: int, stop: int, *, grain: int, state: int = 1) -> bytes:
    texts = [b"aeron:udp?endpoint=10.0.0.1:40123", b"aeron:udp?endpoint=10.0.0.1:40123|alias=tides", b"10.0.0.2:51000"]
    body = struct.pack(
        "<qqqqqqq", 5, 6, recording_id, 1_600_000_000_000, -1 if stop < 0 else 1_600_000_009_000, START, stop
    )
    body += struct.pack("<iiiiii", INITIAL_TERM_ID, SEGMENT, TERM, MTU, SESSION_ID, STREAM_ID)
    body += b"".join(struct.pack("<i", len(text)) + text for text in texts)
    whole = (32 + len(body) + grain - 1) // grain * grain
    return struct.pack("<iii", whole - 32, state, 0).ljust(32, b"\0") + body.ljust(whole - 32, b"\0")


@pytest.fixture(params=["of 3.1", "of 2.0"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An archive whose recording 0 is deleted, 1 is stopped, and 2 is not stopped and has checksums."""
    directory = tmp_path / "archive"
    directory.mkdir()
    ends = []
    for recording_id, checksums in ((1, False), (2, True)):
        log = Log(directory, recording_id, checksums=checksums)
        for payload in messages_sent():
            log.message(payload)
        log.close()
        ends.append(log.position)
    if request.param == "of 3.1":
        header = struct.pack("<iiqi", 3 << 16 | 1 << 8, 32, 3, 64).ljust(32, b"\0")
        grain = 64
    else:
        header, grain = struct.pack("<ii", 2 << 16, 1024).ljust(1024, b"\0"), 1024
    entries = [entry(0, START, grain=grain, state=2 if grain == 64 else 0), entry(1, ends[0], grain=grain)]
    entries.append(entry(2, -1, grain=grain))
    (directory / "archive.catalog").write_bytes((header + b"".join(entries)).ljust(1 << 16, b"\0"))
    (directory / "archive-mark.dat").write_bytes(bytes(8192))
    return directory


def check(readers: object) -> None:
    seen = []
    for reader in readers:  # type: ignore[attr-defined]
        with reader:
            assert isinstance(reader, RecordingReader)
            assert reader.descriptor.session_id == SESSION_ID
            assert reader.start_position == START
            assert [data for _, data in messages(reader, START, reader.end_position())] == messages_sent()
            seen.append(reader.descriptor.recording_id)
    assert seen == [1, 2]


def test_an_archive_by_hand_is_read(archive: Path) -> None:
    with open_recordings(archive) as recordings:
        rows = recordings.scan().to_arrow().to_pylist()
        assert [bytes(row["payload"]) for row in rows] == messages_sent() * 2
        assert {row["session_id"] for row in rows} == {SESSION_ID}
        check(recordings)


def test_an_archive_by_hand_is_read_from_a_store(archive: Path) -> None:
    check(open_recordings_of(RemoteStore(archive)))


def open_recordings_of(store: RemoteStore) -> list[RecordingReader]:
    archive = DirectoryArchive(store)
    return [RecordingReader(archive, descriptor) for descriptor in archive.recordings()]


def test_an_archive_by_hand_is_read_over_a_server(archive: Path) -> None:
    pytest.importorskip("aiohttp")
    with RunningServer(archive) as server, open_recordings(server.url) as recordings:
        check(recordings)


def test_an_archive_by_hand_is_shipped(archive: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    ship = shipper(archive, store, ManualClock())
    ship.drain()
    ship.close()
    assert [shipped(store, number) for number in (1, 2)] == [messages_sent()] * 2
