"""The logs that a client has mapped."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from mainstem.errors import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem.aeron.client.context import ClientContext


class Logs:
    """Maps and unmaps logs. Those of images linger, because another thread may be polling the image.

    Attributes:
        lingering: When to unmap which log.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self.lingering: list[tuple[int, AtomicBuffer]] = []

    def map(self, path: str) -> AtomicBuffer:
        """Map a log. If ``client_pre_touch_mapped_memory`` is set, touch every page."""
        files = self._context.files
        log = files.map(path)
        if self._context.settings.client_pre_touch_mapped_memory:
            for offset in range(0, log.capacity, files.page_size):
                log.get_u8(offset)
        return log

    @contextmanager
    def naming(self, log: AtomicBuffer, path: str) -> Iterator[None]:
        """Guard a block that reads a log: if the log turns out to be corrupt, unmap it and raise CorruptLogError with its path."""
        try:
            yield
        except (ValueError, IndexError) as error:
            self.unmap(log)
            raise CorruptLogError(f"{path}: {error}", log_file=path, position=-1) from None

    def unmap(self, log: AtomicBuffer | None) -> None:
        """Unmap a log. Existing views keep its memory alive."""
        if log is not None:
            with suppress(BufferError):
                self._context.files.unmap(log)

    def linger(self, log: AtomicBuffer) -> None:
        """Unmap a log ``client_resource_linger_duration_ns`` from now."""
        context = self._context
        due_ns = context.clock.monotonic_ns() + context.settings.client_resource_linger_duration_ns
        self.lingering.append((due_ns, log))

    def unmap_lingering(self, now_ns: int) -> None:
        if self.lingering and self.lingering[0][0] <= now_ns:
            for _, log in [entry for entry in self.lingering if entry[0] <= now_ns]:
                self.unmap(log)
            self.lingering = [entry for entry in self.lingering if entry[0] > now_ns]

    def unmap_all(self) -> None:
        for _, log in self.lingering:
            self.unmap(log)
        self.lingering = []
