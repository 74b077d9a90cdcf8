"""A file of a store as a Python file object: it can seek, and reads ahead when it is read forward."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from mainstem.store.base import OneVersion, replaced
from mainstem.store.threads import fetching

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]
    from concurrent.futures import Future

    from mainstem.store.base import Store

# Bytes per request. Two blocks are in memory while one is in flight.
BLOCK_BYTES = 8 << 20
# Bytes per request while a file is not read forward, which is enough for a header or a single position.
FIRST_BYTES = 256 << 10


class StoredFileReader(io.RawIOBase):
    """The bytes of one file, with the length that the file had when it was opened.

    Raises FileNotFoundError if it is missing, and StoreError for any other failure, also if the file is replaced or truncated
    meanwhile.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        self._file = OneVersion(store, name)
        self.size = store.size(name)
        self._position = 0
        self._start, self._block = 0, b""
        self._next: tuple[int, Future[bytes]] | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def readinto(self, buffer: Buffer) -> int:
        # Like a local file, return all requested bytes unless the file ends.
        view, filled = memoryview(buffer).cast("B"), 0
        while filled < len(view) and self._position < self.size:
            if not self._start <= self._position < self._start + len(self._block):
                self._load(len(view) - filled)
            at = self._position - self._start
            data = self._block[at : at + len(view) - filled]
            view[filled : filled + len(data)] = data
            filled += len(data)
            self._position += len(data)
        return filled

    def _fetch(self, start: int, end: int) -> bytes:
        return self._file.read(start, end)

    def _load(self, wanted_bytes: int) -> None:
        """Load the block at the position. If it follows the previous block, start to fetch the next one."""
        start = self._position
        goes_on = bool(self._block) and start == self._start + len(self._block)
        if self._next is not None and self._next[0] == start:
            block = self._next[1].result()
        else:
            length = max(wanted_bytes, BLOCK_BYTES if goes_on else FIRST_BYTES)
            block = self._fetch(start, min(start + length, self.size))
        self._start, self._block, self._next = start, block, None
        end = start + len(block)
        if goes_on and end < self.size:
            self._next = (end, fetching(self._fetch, end, min(end + BLOCK_BYTES, self.size)))
        if not block:
            raise replaced(self._store.url, self._name)

    def close(self) -> None:
        if not self.closed:
            self._store.close()
            self._block, self._next = b"", None
        super().close()
