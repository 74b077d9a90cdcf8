"""Images: one publication's stream as one subscription sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.log.columns import Columns, Fragments
from mainstem._core.log.read import ImageReader
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.client.arrow import WANTED, poll_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.aeron.client.asynchronous import AsyncOperation
    from mainstem.aeron.client.subscription import Subscription


class Image(ImageReader):
    """A stream that can be read. The polls are the compiled reader's own; a subscription polls all of its images in turn.

    ``source_identity`` is where it comes from: ``ip:port``, or ``aeron:ipc``.
    """

    def __init__(
        self, subscription: Subscription, log: AtomicBuffer, positions: AtomicBuffer, counter_id: int, source: str
    ) -> None:
        super().__init__(log, positions, counter_id)
        self.subscription = subscription
        self.source_identity = source
        self.position_counter_id = counter_id
        self._fragments = Fragments()
        self._columns = Columns(WANTED)

    def scan_into(self, offsets: Any, lengths: Any, limit: int = -1) -> tuple[int, int]:
        """As ``scan``, into any two writable buffers: int64 offsets into ``log`` and int32 lengths."""
        return self.scan(AtomicBuffer(offsets), AtomicBuffer(lengths), limit)

    def poll_arrow(self, limit: int = 4096) -> pa.RecordBatch:
        """Up to ``limit`` whole messages: columns position, session_id, reserved_value and payload."""
        return poll_arrow([self], limit, self._columns)

    def gather_columns(self, columns: Columns, limit: int) -> None:
        """Adds up to ``limit`` whole messages to ``columns`` and moves the position past them."""
        if self.is_closed:
            return
        position = self.position
        offset, end = self.readable()
        passed = columns.add_messages(self.log, offset, end, position, self._fragments, limit)
        self.release(position + passed)

    def reject(self, reason: str, *, timeout: float | None = None) -> None:
        """Refuses the stream: its publisher is told why, and the image becomes unavailable."""
        self.async_reject(reason).wait(timeout)

    def async_reject(self, reason: str) -> AsyncOperation[None]:
        """The same without waiting."""
        return self.subscription.reject_image(self, reason)

    def __repr__(self) -> str:
        state = ", closed" if self.is_closed else ""
        return f"<Image of session {self.session_id} from {self.source_identity} at {self.position}{state}>"
