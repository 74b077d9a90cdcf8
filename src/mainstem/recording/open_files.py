"""How many readers of one location have files open at once: as many as a process may have descriptors would be too many."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

# A reader has a file of positions and up to four segments: 320 of the 1,024 descriptors of a usual shell.
MAX_OPEN_READERS = 64


class Releasable(Protocol):
    """What has files open that it can give back, and open again: a reader."""

    def release(self) -> None: ...


class OpenFiles:
    """The readers that have opened files; one beyond ``most`` makes the one that opened first give its own back."""

    def __init__(self, most: int = MAX_OPEN_READERS) -> None:
        self._most = most
        self._readers: OrderedDict[int, Releasable] = OrderedDict()

    def opened(self, reader: Releasable) -> None:
        self._readers[id(reader)] = reader
        self._readers.move_to_end(id(reader))
        if len(self._readers) > self._most:
            self._readers.popitem(last=False)[1].release()

    def closed(self, reader: Releasable) -> None:
        """Note that a reader has given all of its files back."""
        self._readers.pop(id(reader), None)
