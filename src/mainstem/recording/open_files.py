"""Limits how many readers of one location have files open, because file descriptors are limited."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

# A reader has a file of positions and up to four segments: 320 of the 1,024 descriptors of a usual shell.
MAX_OPEN_READERS = 64


class Releasable(Protocol):
    def release(self) -> None: ...


class OpenFiles:
    """The readers with open files; beyond ``most``, the one that opened first closes its own."""

    def __init__(self, most: int = MAX_OPEN_READERS) -> None:
        self._most = most
        self._readers: OrderedDict[int, Releasable] = OrderedDict()

    def opened(self, reader: Releasable) -> None:
        self._readers[id(reader)] = reader
        self._readers.move_to_end(id(reader))
        if len(self._readers) > self._most:
            self._readers.popitem(last=False)[1].release()

    def closed(self, reader: Releasable) -> None:
        self._readers.pop(id(reader), None)
