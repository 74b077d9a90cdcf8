"""Mapped files that another process may truncate without killing this one."""

from __future__ import annotations

from mmap import MAP_SHARED, PROT_READ, mmap
from typing import Self

from mainstem._core.memory.bus_guard import BusGuard


class GuardedMap(mmap):
    """The first ``length`` bytes of a file. Bytes that the file loses later read as zeros, and ``was_cut`` reports it.

    Check ``was_cut`` after reading and before trusting what was read. Raises ValueError for a shorter file.
    """

    _guard: BusGuard

    def __new__(cls, descriptor: int, length: int, *, flags: int = MAP_SHARED, prot: int = PROT_READ) -> Self:
        self = super().__new__(cls, descriptor, length, flags=flags, prot=prot)
        self._guard = BusGuard(self)
        return self

    @property
    def was_cut(self) -> bool:
        """Whether the file lost bytes that were read or written after that."""
        return self._guard.was_cut

    def close(self) -> None:
        """Unmap the file. Raises BufferError while there are views of it; it then stays guarded."""
        super().close()
        self._guard.close()
