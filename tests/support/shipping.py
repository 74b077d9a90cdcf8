"""Shipping in tests: an in-memory store that fails on request, a manual clock, and a reader's view of an archive."""

from __future__ import annotations

import hashlib
import random
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.streams import Stream, record

from mainstem.errors import StoreError
from mainstem.recording import Recorder, RecordingReader, messages
from mainstem.recording.shipping.layout import archive_ids
from mainstem.recording.shipping.manifest import ManifestLog, RecordingPages
from mainstem.recording.shipping.page_tree import Pages, between
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.shipping.shipper import ArchiveShipper, ShippingOptions
from mainstem.store import StoredFile
from mainstem.store.base import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem.store import Store

TERM = 65536
STREAM = {"session_id": 77, "stream_id": 1001, "initial_term_id": -5, "term_buffer_length": TERM, "mtu_length": 1408}


class Killed(BaseException):
    """Simulates SIGKILL: no code of the program runs after it."""


class MemoryStore:
    """An in-memory store. It calls ``fault`` with operation and object name before and after each; exceptions propagate."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = files if files is not None else {}
        self.url = "memory://store"
        self.fault: Callable[[str, str, bool], None] = lambda operation, name, is_before: None
        self.modified_ns: Callable[[], int] | None = None
        self.operations: list[tuple[str, str]] = []
        self.read_bytes = 0
        self._lock = threading.Lock()

    def _do(self, operation: str, name: str, action: Callable[[], Any]) -> Any:
        self.fault(operation, name, True)
        with self._lock:
            self.operations.append((operation, name))
            result = action()
        self.fault(operation, name, False)
        return result

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        names = [name for name in self.files if name.startswith(prefix)]
        return iter(self._do("list", prefix, lambda: [StoredFile(name, len(self.files[name])) for name in names]))

    def directories(self, prefix: str = "") -> Iterator[str]:
        names = {name.partition("/")[0] for name in self.files if "/" in name}
        return iter(self._do("list", prefix, lambda: sorted(names)))

    def _file(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def size(self, name: str) -> int:
        return int(self._do("size", name, lambda: len(self._file(name))))

    def read(self, name: str, start: int, end: int) -> bytes:
        data = bytes(self._do("read", name, lambda: self._file(name)[start:end]))
        self.read_bytes += len(data)
        return data

    def read_version(self, name: str, start: int, end: int, version: str | None) -> tuple[bytes, str]:
        data, found = self.read(name, start, end), hashlib.sha256(self._file(name)).hexdigest()
        if version not in (None, found):
            raise replaced(self.url, name)
        return data, found

    def put_if_absent(self, name: str, data: bytes) -> bool:
        def put() -> bool:
            if name in self.files:
                return False
            self.files[name] = bytes(data)
            return True

        return bool(self._do("put_if_absent", name, put))

    def put(self, name: str, data: bytes | Path) -> None:
        content = data.read_bytes() if isinstance(data, Path) else bytes(data)
        self._do("put", name, lambda: self.files.__setitem__(name, content))

    def delete(self, name: str) -> None:
        self._do("delete", name, lambda: self.files.pop(name, None))

    def local_path(self, name: str = "") -> Path | None:
        return None

    def close(self) -> None:
        pass


class ManualClock:
    """A clock that advances only when a test advances it. ``set_by`` sets the wall clock, as an operator does."""

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000) -> None:
        self.now_ns = now_ns
        self.offset_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def epoch_ms(self) -> int:
        return self.epoch_ns() // 1_000_000

    def epoch_ns(self) -> int:
        return self.now_ns + self.offset_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    def set_by(self, seconds: float) -> None:
        self.offset_ns += int(seconds * 1e9)


def payloads(count: int, seed: int = 1, most: int = 3000, first: int = 0) -> list[bytes]:
    rng = random.Random(seed)
    return [struct.pack("<q", first + i) + rng.randbytes(rng.randrange(most)) for i in range(count)]


class Station:
    """A recorder in a directory to which a test writes message by message."""

    def __init__(self, directory: Path, clock: ManualClock, *, segment_length: int = 2 * TERM, **stream: Any) -> None:
        self.directory, self.clock, self.segment_length = directory, clock, segment_length
        self.identity = STREAM | stream
        self.recorder = Recorder(directory, segment_length=segment_length, clock=clock)
        self.stream = Stream(term_length=TERM, session_id=self.identity["session_id"])
        self.writer = self.recorder.start(**self.identity, join_position=0)
        self.sent: list[bytes] = []

    def send(self, sent: list[bytes]) -> None:
        record(self.writer, self.stream, sent, time_ns=self.clock.epoch_ns())
        self.sent += sent

    def send_part(self, payload: bytes) -> Callable[[], None]:
        """Record the first frame of a fragmented message; return a function that records the remaining frames."""
        (_, run), *_ = list(self.stream.runs([payload]))
        self.writer.write(memoryview(run)[:1408], self.clock.epoch_ns())

        def rest() -> None:
            self.writer.write(memoryview(run)[1408:], self.clock.epoch_ns())
            self.sent.append(payload)

        return rest

    def stop(self) -> None:
        self.recorder.close()

    def restart(self) -> None:
        self.recorder = Recorder(self.directory, segment_length=self.segment_length, clock=self.clock)
        self.writer = self.recorder.start(**self.identity, join_position=0)


def shipper(
    directory: Path, store: Store, clock: ManualClock, *, stops: Callable[[], bool] = lambda: False, **options: Any
) -> ArchiveShipper:
    counts = options.pop("counts", None)
    options = {"chunk_size": 40_000, "roll_after_ns": 10_000_000_000, "uploads": 2} | options
    return ArchiveShipper(
        directory,
        store,
        ShippingOptions(**options),
        clock=clock,
        counts=counts,
        stops=stops,
        pause=lambda seconds: clock.advance(seconds),
    )


def shipped(store: Store, recording_id: int = 0, archive_id: str | None = None) -> list[bytes]:
    """Return the messages of a recording as a reader of the store currently sees them."""
    archive = ShippedArchive(store, archive_id or archive_ids(store)[0])
    for descriptor in archive.recordings():
        if descriptor.recording_id == recording_id:
            with RecordingReader(archive, descriptor) as reader:
                return [payload for _, payload in messages(reader, reader.start_position, reader.end_position())]
    return []


def check_integrity(store: MemoryStore, archive_id: str) -> None:
    """Check that every object in any manifest exists and has its length, and that positions are contiguous."""
    chain = ManifestLog(store, archive_id)
    for number in chain.numbers():
        manifest = chain.read(number)
        pages = Pages(store, archive_id)
        for entry in RecordingPages(store, archive_id).all(manifest).values():
            at = None
            for chunk in between(entry.tree, 0, 1 << 62, pages):
                assert len(store.files[f"{archive_id}/{chunk.name}"]) == chunk.size, chunk
                assert at is None or chunk.start == at, (chunk, at)
                at = chunk.end
            assert at is None or at == entry.end
        for ref in manifest.garbage:
            assert f"{archive_id}/{ref.name}" in store.files


def fail(what: str) -> StoreError:
    return StoreError("memory://store", what)
