"""One archive in two tiers: a recorder's directory, and segments shipped from it by hand."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.support.streams import Stream, record

from mainstem.errors import StoreError
from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.recorder import Recorder
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT = 65536


class Away(DirectoryArchive):
    """An archive that can be unreachable, as a server or a store can."""

    is_away = False

    def __getattribute__(self, name: str) -> object:
        if name in ("recordings", "segments", "segment", "positions", "recorded_positions", "refresh") and self.is_away:

            def fail(*_: object) -> None:
                raise StoreError("http://away", "connection refused")

            return fail
        return super().__getattribute__(name)


class Tiers:
    """A recorder's directory, and a second one to which its segments are copied with their positions before they are deleted."""

    def __init__(self, tmp_path: Path) -> None:
        self.tail_path, self.shipped_path = tmp_path / "tail", tmp_path / "shipped"
        self.recorder = Recorder(self.tail_path, segment_length=SEGMENT)
        self.stream = Stream()
        self.writer = Stream().start(self.recorder)
        self.count = 0
        self.shipped_path.mkdir()
        self.tail, self.shipped = Away(LocalStore(self.tail_path)), Away(LocalStore(self.shipped_path))

    def add(self, count: int) -> None:
        record(self.writer, self.stream, [b"%06d" % (self.count + i) + b"x" * 200 for i in range(count)], time_ns=1)
        self.count += count

    def ship(self, *, purge: bool = False) -> None:
        """Copy the closed part: complete segments, then the positions up to there. With ``purge``, delete it from the tail."""
        end = self.writer.position // SEGMENT * SEGMENT
        for base in range(0, end, SEGMENT):
            source, target = self.tail_path / f"0-{base}.rec", self.shipped_path / f"0-{base}.rec"
            if not target.exists():
                shutil.copy(source, target)
        positions = bytearray((self.tail_path / "0.mainstem-positions").read_bytes())
        positions[16:24] = end.to_bytes(8, "little")
        fresh = self.shipped_path / "fresh"
        fresh.write_bytes(positions)
        fresh.rename(self.shipped_path / "0.mainstem-positions")
        shutil.copy(self.tail_path / "archive.catalog", fresh)
        fresh.rename(self.shipped_path / "archive.catalog")
        if purge:
            for base in range(0, end, SEGMENT):
                (self.tail_path / f"0-{base}.rec").unlink(missing_ok=True)

    def close(self) -> None:
        self.recorder.close()
