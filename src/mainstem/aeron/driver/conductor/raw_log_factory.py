"""The factory that creates the driver's log files after a storage check, and deletes unused ones (docs/protocols/aeron.md, 10).

Theory of operation
-------------------
The first load or store of a mapped page allocates its block. If the file system is full, SIGBUS kills the process that touched the
page, whether driver or client. So no process touches a page whose block may be missing:

- The driver allocates files that it writes on its own (the CnC file, the loss report, the metadata of each log), and logs that are
  not sparse, when it creates them. If there is too little space, it raises StorageSpaceError.
- The compiled paths allocate the terms of a sparse log before any process may touch them (``_core/driver/block_allocator.py``). If
  an allocation fails, the stream waits for space: publishers see back pressure, and senders see a closed window.
- A sparse log gets its first blocks before its client learns of it. The factory creates a new log only if the free space covers
  its whole length. If the kernel cannot allocate blocks ahead, the factory also reserves the whole length of each sparse log.

Without storage checks, the factory reserves nothing and no stream waits.

``_reserved`` is the sum of all reservations. It is an upper bound, because logs allocate reserved space over time. The factory
reads their allocated lengths from the file system only if the free space doesn't cover that bound.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem._core.driver.block_allocator import BlockAllocator
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.directory import image_path, publication_path
from mainstem.aeron.logbuffer import LogBuffers, LogParameters
from mainstem.errors import StorageSpaceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.driver.counters import SystemCounters
    from mainstem.aeron.files import Files


# A new sparse log first allocates at most one part in this many of the free space, so that other logs can start, too.
SHARE_OF_FREE_SPACE = 4
# A new sparse log may allocate this many bytes, and its margin, even if its share is smaller.
MIN_AHEAD = 128 * 1024


class RawLogFactory:
    def __init__(
        self,
        files: Files,
        directory: str,
        system_counters: SystemCounters,
        warn: Callable[[str, str], None],
        *,
        check_storage: bool,
        low_storage_warning: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._system_counters = system_counters
        self._warn = warn
        self._check_storage = check_storage
        self._allocators: dict[str, BlockAllocator] = {}  # of sparse logs that lack blocks, by path
        self._waiting: set[str] = set()
        self._reservations: dict[str, int] = {}  # bytes by path
        self._reserved = 0
        self._deleted: deque[tuple[LogBuffers, str]] = deque()
        self._low_storage_warning = low_storage_warning

    def create_publication(self, parameters: LogParameters) -> tuple[LogBuffers, str]:
        return self._create(publication_path(self._directory, parameters.correlation_id), parameters)

    def create_image(self, parameters: LogParameters) -> tuple[LogBuffers, str]:
        return self._create(image_path(self._directory, parameters.correlation_id), parameters)

    def _create(self, path: str, parameters: LogParameters) -> tuple[LogBuffers, str]:
        length = parameters.log_length
        if self._check_storage:
            self._check(length)
        buffer = self._files.create(
            path, length, sparse_length=length - layout.LOG_METADATA_LENGTH if parameters.sparse else 0
        )
        if parameters.sparse:
            self._reserve(path, length)
        self._system_counters.increment(SystemCounter.BYTES_CURRENTLY_MAPPED, length)
        return LogBuffers.create(buffer, parameters), path

    def allocate(self, log: LogBuffers, path: str, start: int, *, margin: int, ahead: int) -> BlockAllocator | None:
        """Create the allocator of a sparse log, or return None if the log isn't sparse or storage checks are off.

        Allocate ``ahead`` bytes from position ``start`` at once, limited to a share of the free space. Raises StorageSpaceError.
        """
        if not self._check_storage or not self._files.is_sparse or path not in self._reservations:
            return None
        self._release(path)
        share = (self._files.free_space(self._directory) - self._reserved) // SHARE_OF_FREE_SPACE
        allocator = BlockAllocator(
            log.buffer, log.term_length, start, margin, min(ahead, max(MIN_AHEAD, share - margin))
        )
        for offset, length in allocator.first_ranges():
            self._files.allocate(path, offset, length)
        if allocator.begin():
            self._allocators[path] = allocator
        else:
            self._reserve(path, log.buffer.capacity)
        return allocator

    def awaiting_space(self) -> list[str]:
        """Return the paths of logs that have started to wait for space since the last call."""
        for path in [path for path, allocator in self._allocators.items() if allocator.is_complete]:
            del self._allocators[path]
        before, self._waiting = (
            self._waiting,
            {path for path, allocator in self._allocators.items() if allocator.is_waiting},
        )
        return sorted(self._waiting - before)

    def delete(self, log: LogBuffers, path: str) -> None:
        """Queue a log, for ``free_some`` to unmap and delete. Other processes keep their mappings."""
        self._allocators.pop(path, None)
        self._deleted.append((log, path))

    @property
    def has_deleted(self) -> bool:
        return bool(self._deleted)

    def free_some(self, limit: int) -> int:
        count = 0
        while self._deleted and count < limit:
            self._free(*self._deleted.popleft())
            count += 1
        return count

    def _free(self, log: LogBuffers, path: str) -> None:
        self.unmap(log)
        self._release(path)
        try:
            self._files.delete(path)
        except OSError as error:
            self._system_counters.increment(SystemCounter.FREE_FAILS)
            self._warn("log not deleted", f"log buffer {path} could not be deleted: {error}")

    def unmap(self, log: LogBuffers) -> None:
        self._system_counters.increment(SystemCounter.BYTES_CURRENTLY_MAPPED, -log.buffer.capacity)
        self._files.unmap(log.buffer)

    def _check(self, length: int) -> None:
        available = self._files.free_space(self._directory)
        reserved = self._reserved
        if available - reserved < length:
            reserved = sum(map(self._reserved_for, self._reservations))
        if available - reserved < length:
            raise StorageSpaceError(
                f"insufficient usable storage for a log of {length} bytes in {self._directory}: {available} bytes are free, "
                f"{reserved} of them are reserved for existing logs",
                needed=length,
                available=max(available - reserved, 0),
            )
        if available <= self._low_storage_warning:
            self._warn("low space", f"low disk space in {self._directory}: {available} bytes left")

    def _reserve(self, path: str, length: int) -> None:
        self._reservations[path] = length
        self._reserved += length

    def _release(self, path: str) -> None:
        self._reserved -= self._reservations.pop(path, 0)

    def _reserved_for(self, path: str) -> int:
        length = self._reservations[path]
        try:
            return max(0, length - self._files.allocated_length(path))
        except FileNotFoundError:  # another program deleted the file, but processes still write its mappings
            return length
