"""Images: one publication's stream as one subscription receives it, without what waits for the driver."""

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

    from mainstem.aeron.client.resource import Resource


class ImageBase(ImageReader):
    """An image of either variant."""

    subscription: Any

    def __init__(
        self,
        subscription: Resource,
        log: AtomicBuffer,
        positions: AtomicBuffer,
        counter_id: int,
        source: str,
        log_file: str = "",
        driver_start_ms: int = 0,
    ) -> None:
        super().__init__(log, positions, counter_id)
        self.subscription = subscription
        self.source_identity = source
        self.log_file = log_file
        self.driver_start_ms = driver_start_ms
        self.position_counter_id = counter_id
        self._fragments = Fragments()
        self._columns = Columns(COLUMNS)

    def scan_into(self, offsets: Any, lengths: Any, limit: int = -1) -> tuple[int, int]:
        """Writes the places of fragments into buffers of the caller's; nothing is copied, and the position stays.

        The payloads stay until ``release(position)``.

        Args:
            offsets: A writable buffer for int64 offsets into ``log``.
            lengths: A writable buffer for int32 payload lengths.
            limit: The most fragments; -1 for as many as fit.

        Returns:
            How many fragments there are, and the position after the last.

        Example:
            >>> count, position = image.scan_into(offsets, lengths)
            >>> image.release(position)
        """
        return self.scan(AtomicBuffer(offsets), AtomicBuffer(lengths), limit)

    def poll_arrow(self, limit: int = 4096) -> pa.RecordBatch:
        """Returns whole messages as a record batch and moves the position past them.

        Args:
            limit: The most messages.

        Returns:
            A batch with the columns position, session_id, reserved_value and payload; without rows when there is none.

        Raises:
            MissingExtraError: pyarrow is not installed.

        Example:
            >>> batch = image.poll_arrow(1000)
        """
        return poll_arrow([self], limit, self._columns)

    def _gather_columns(self, columns: Columns, limit: int) -> None:
        """Adds whole messages to columns and moves the position past them."""
        if self.closed:
            return
        position = self.position
        offset, end = self.readable()
        passed = columns.add_messages(self.log, offset, end, position, self._fragments, limit)
        self.release(position + passed)

    def _corrupt_frame(self, position: int, length: int) -> Exception:
        """Returns the error for a frame whose length is not possible, for the polls."""
        sentence = f"{self.log_file or 'log'}: {super()._corrupt_frame(position, length)}"
        return CorruptLogError(sentence, log_file=self.log_file, position=position)

    def _corrupt_position(self, position: int) -> Exception:
        """Returns the error for a subscriber position at which no frame begins, for the polls."""
        sentence = f"{self.log_file or 'log'}: {super()._corrupt_position(position)}"
        return CorruptLogError(sentence, log_file=self.log_file, position=position)

    def stats(self) -> ImageStats:
        """Returns where the image is at this moment.

        Returns:
            Its positions.

        Example:
            >>> image.stats().position
        """
        return ImageStats(
            self.session_id, self.source_identity, self.join_position, self.position, self.is_end_of_stream
        )

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<Image of session {self.session_id} from {self.source_identity} at {self.position}{state}>"
