"""The part that blocking and asyncio images share. An image is one publication's stream as one subscription receives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.log.columns import Columns, Fragments
from mainstem._core.log.read import ImageReader
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.client.arrow import COLUMNS, poll_arrow
from mainstem.aeron.client.stats import ImageStats
from mainstem.errors import CorruptLogError

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.aeron.client.operation import Conductor
    from mainstem.aeron.client.resource import Resource


class ImageBase(ImageReader):
    """The non-blocking part of an image."""

    subscription: Any

    def __init__(
        self,
        conductor: Conductor,
        subscription: Resource,
        log: AtomicBuffer,
        positions: AtomicBuffer,
        counter_id: int,
        source: str,
        log_file: str = "",
        driver_start_ms: int = 0,
    ) -> None:
        super().__init__(log, positions, counter_id)
        self._conductor = conductor
        self.subscription = subscription
        self.source_identity = source
        self.log_file = log_file
        self.driver_start_ms = driver_start_ms
        self.position_counter_id = counter_id
        self._fragments = Fragments()
        self._columns = Columns(COLUMNS)

    def scan_into(self, offsets: Any, lengths: Any, limit: int = -1) -> tuple[int, int]:
        """Write the offsets and lengths of fragments to the caller's buffers, without copying payloads or moving the position.

        The payloads remain valid until ``release(position)``.

        Args:
            offsets: A writable buffer for int64 offsets into ``log``.
            lengths: A writable buffer for int32 payload lengths.
            limit: The maximum number of fragments; -1 for as many as fit in the buffers.

        Returns:
            The number of fragments, and the position after the last one.

        Example:
            >>> count, position = image.scan_into(offsets, lengths)
            >>> image.release(position)
        """
        return self.scan(AtomicBuffer(offsets), AtomicBuffer(lengths), limit)

    def poll_arrow(self, limit: int = 4096) -> pa.RecordBatch:
        """Return whole messages as a record batch and move the position past them.

        Args:
            limit: The maximum number of messages.

        Returns:
            A batch as from ``poll_arrow`` of a subscription.
        """
        return poll_arrow([self], limit, self._columns)

    def _gather_columns(self, columns: Columns, limit: int) -> None:
        if self.closed:
            return
        position = self.position
        offset, end = self.readable()
        passed = columns.add_messages(self.log, offset, end, position, self._fragments, limit)
        self.release(position + passed)

    def _corrupt_frame(self, position: int, length: int) -> Exception:
        """Return the error for a poll that encountered an impossible frame length."""
        sentence = f"{self.log_file or 'log'}: {super()._corrupt_frame(position, length)}"
        return CorruptLogError(sentence, log_file=self.log_file, position=position)

    def _corrupt_position(self, position: int) -> Exception:
        """Return the error for a poll whose subscriber position is not at the start of a frame."""
        sentence = f"{self.log_file or 'log'}: {super()._corrupt_position(position)}"
        return CorruptLogError(sentence, log_file=self.log_file, position=position)

    def stats(self) -> ImageStats:
        """Return the image's positions."""
        return ImageStats(
            self.session_id, self.source_identity, self.join_position, self.position, self.is_end_of_stream
        )

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<Image of session {self.session_id} from {self.source_identity} at {self.position}{state}>"
