"""Images: one publication's stream as one subscription receives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.log.columns import Columns, Fragments
from mainstem._core.log.read import ImageReader
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.client.arrow import COLUMNS, poll_arrow
from mainstem.errors import CorruptLogError

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.aeron.client.asynchronous import AsyncOperation
    from mainstem.aeron.client.subscription import Subscription


class Image(ImageReader):
    """One publication's stream in a subscription. One thread polls it.

    A subscription polls all of its images in turn; the polls here read one image alone.

    Attributes:
        subscription: The subscription that the image belongs to.
        log_file: The path of its log buffer file.
        source_identity: Where it comes from: ``ip:port``, or ``aeron:ipc``.
        driver_start_ms: When its driver started, epoch: with ``correlation_id`` it names one image of one driver.
        session_id: The publication's session id.
        position: How far this subscriber has read.

    Example:
        >>> for image in subscription.open_images:
        ...     print(image.source_identity, image.position)
    """

    def __init__(
        self,
        subscription: Subscription,
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

    def gather_columns(self, columns: Columns, limit: int) -> None:
        """Adds whole messages to columns and moves the position past them.

        Args:
            columns: The columns to add to.
            limit: The most messages.

        Example:
            >>> image.gather_columns(columns, 1000)
        """
        if self.is_closed:
            return
        position = self.position
        offset, end = self.readable()
        passed = columns.add_messages(self.log, offset, end, position, self._fragments, limit)
        self.release(position + passed)

    def corrupt_frame(self, position: int, length: int) -> Exception:
        """Returns the error for a frame whose length is not possible, for the polls.

        Args:
            position: The frame's position in the stream.
            length: Its length, in bytes.

        Returns:
            A CorruptLogError with the log's file.

        Example:
            >>> raise image.corrupt_frame(4096, -5)
        """
        sentence = f"{self.log_file or 'log'}: {super().corrupt_frame(position, length)}"
        return CorruptLogError(sentence, log_file=self.log_file, position=position)

    def corrupt_position(self, position: int) -> Exception:
        """Returns the error for a subscriber position at which no frame begins, for the polls.

        Args:
            position: What the counter holds.

        Returns:
            A CorruptLogError with the log's file.

        Example:
            >>> raise image.corrupt_position(-32)
        """
        sentence = f"{self.log_file or 'log'}: {super().corrupt_position(position)}"
        return CorruptLogError(sentence, log_file=self.log_file, position=position)

    def reject(self, reason: str, *, timeout: float | None = None) -> None:
        """Rejects the stream: its publisher receives the reason, and the image becomes unavailable.

        Args:
            reason: The reason, at most 1023 bytes.
            timeout: Seconds to wait for the driver; at most the driver timeout, which is also the default.

        Raises:
            RegistrationError: The driver refused.
            DriverTimeout: The driver did not respond in time.

        Example:
            >>> image.reject("unknown schema")
        """
        self.async_reject(reason).wait(timeout)

    def async_reject(self, reason: str) -> AsyncOperation[None]:
        """Rejects the stream without waiting.

        Args:
            reason: The reason, at most 1023 bytes.

        Returns:
            The pending operation.

        Example:
            >>> operation = image.async_reject("unknown schema")
        """
        return self.subscription.reject_image(self, reason)

    def __repr__(self) -> str:
        state = ", closed" if self.is_closed else ""
        return f"<Image of session {self.session_id} from {self.source_identity} at {self.position}{state}>"
