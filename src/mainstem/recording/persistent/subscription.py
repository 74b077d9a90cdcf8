"""A subscription that begins with recorded messages and continues with live ones."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

from mainstem._core.log.columns import Columns
from mainstem._internal.clock import Deadline
from mainstem.aeron.client.resource import Closing
from mainstem.errors import Timeout, needs_extras
from mainstem.recording.persistent.history import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from mainstem.recording.persistent.history import MessageBatch
    from mainstem.recording.persistent.session import SessionStream
    from mainstem.recording.persistent.stream import PersistentStream

IDLE_S = 0.001


class PersistentBase:
    """The part of a persistent subscription that does not wait for messages."""

    def __init__(self, stream: PersistentStream) -> None:
        self._stream = stream
        self.channel, self.stream_id = stream.channel, stream.stream_id

    @property
    def closed(self) -> bool:
        """Whether the subscription is closed."""
        return self._stream.closed

    @property
    def error(self) -> Exception | None:
        """The error that ended the client without ``close``: a DriverTimeout or a ClientTimeout; else None."""
        return None if self._stream.live is None else self._stream.live.error

    @property
    def is_live(self) -> bool:
        """Whether every publisher's messages now come from the live stream."""
        return self._stream.is_live

    @property
    def is_end_of_stream(self) -> bool:
        """Whether there were live publishers, all of them have ended, and all of their messages are handed out."""
        return self._stream.is_end_of_stream

    @property
    def positions(self) -> dict[int, int]:
        """The end of the last message handed out, by recording id; pass it as ``start=`` to continue there."""
        return self._stream.positions

    def _batch_of(self, session: SessionStream) -> MessageBatch:
        batch = session.next_batch()
        assert batch is not None, "a session that is ready has a batch"
        return batch

    def _each(self, session: SessionStream) -> Iterator[bytes]:
        """Yield the messages of the session's batch. Each counts as read when it is handed out."""
        batch = self._batch_of(session)
        while not (batch.is_empty or self.closed):
            first, last, position = batch.take(1)
            session.advance_to(position)
            yield from batch.payloads(first, last)

    def _rows(self, session: SessionStream | None, limit: int) -> pa.RecordBatch:
        with needs_extras():
            from mainstem._internal.arrow_batches import record_batch

        if session is None:
            return record_batch(Columns(COLUMNS).take(), 0)
        batch = self._batch_of(session)
        first, last, position = batch.take(limit)
        rows: pa.RecordBatch = batch.arrow(first, last)
        session.advance_to(position)
        return rows

    def _timeout(self, timeout: float | None) -> Timeout:
        return Timeout(f"nothing came on {self!r} for {timeout:g} s", timeout=timeout)

    def _end(self) -> None:
        self._stream.close()

    def __del__(self) -> None:
        stream = getattr(self, "_stream", None)
        if stream is not None and not stream.closed:
            try:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)
            finally:
                self._abandon()

    def _abandon(self) -> None:
        """Close the live subscription and the recordings without waiting."""
        self._stream.close()

    def __repr__(self) -> str:
        return f"<PersistentSubscription {self.channel} stream {self.stream_id}{', closed' if self.closed else ''}>"


class PersistentSubscription(PersistentBase, Closing):
    """A stream's recorded messages followed by the live stream, without loss or duplicates.

    ``Aeron.add_persistent_subscription`` creates it. Messages of each publisher are in order; those of several are interleaved.
    It joins the live stream when nearly everything recorded was read, and returns to the recordings if it was too slow for the
    stream (``tether=false``). So a reader may be arbitrarily slow while a recorder runs.

    ``poll_bytes`` and ``poll_arrow`` don't wait for messages; ``messages`` does. All may wait for a store, and once for the
    driver when joining the live stream. One thread uses it.

    Attributes:
        channel: The channel of the live stream.
        stream_id: The stream id.

    Example:
        >>> with aeron.add_persistent_subscription("aeron:ipc", 1001, recordings="tides") as subscription:
        ...     for message in subscription.messages():
        ...         print(message)
    """

    def poll_bytes(self, limit: int = 1000) -> list[bytes]:
        """Return whole messages, like ``Subscription.poll_bytes``, without waiting for any.

        Args:
            limit: The maximum number of messages.

        Returns:
            The messages; an empty list if there are none yet.

        Raises:
            ClosedError: The subscription is closed.
            RecordingError: Recorded data is missing or corrupt.
            RegistrationError: The driver refused the live channel.
            StoreError: The store of the recordings cannot be read.
        """
        out: list[bytes] = []
        while len(out) < limit and (session := self._stream.ready()) is not None:
            batch = self._batch_of(session)
            first, last, position = batch.take(limit - len(out))
            out += batch.payloads(first, last)
            session.advance_to(position)
        return out

    def poll_arrow(self, limit: int = 4096) -> pa.RecordBatch:
        """Return whole messages of one publisher as a record batch.

        Args:
            limit: The maximum number of messages.

        Returns:
            A batch with the columns position, session_id, reserved_value and payload; without rows if there are none.

        Raises:
            ClosedError: The subscription is closed.
            MissingExtraError: pyarrow is not installed.
            RecordingError: Recorded data is missing or corrupt.
            RegistrationError: The driver refused the live channel.
            StoreError: The store of the recordings cannot be read.
        """
        return self._rows(self._stream.ready(), limit)

    def messages(self, *, timeout: float | None = None) -> Iterator[bytes]:
        """Yield whole messages as they arrive, until all live publishers have ended or the subscription is closed.

        Args:
            timeout: Seconds to wait for the next message; None waits forever.

        Yields:
            The messages one by one. A message that was not taken is yielded by the next iteration.

        Raises:
            Timeout: Nothing arrived for ``timeout`` seconds.
            RecordingError: Recorded data is missing or corrupt.
            RegistrationError: The driver refused the live channel.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.
        """
        while not self.closed:
            session = self._next(timeout)
            if session is None:
                return
            yield from self._each(session)

    def next_arrow(self, limit: int = 4096, *, timeout: float | None = None) -> pa.RecordBatch:
        """Wait for messages and return them as a record batch.

        Args:
            limit: The maximum number of messages.
            timeout: Seconds to wait for the first one; None waits forever.

        Returns:
            A batch with the columns position, session_id, reserved_value and payload; without rows at the end of the stream.

        Raises:
            Timeout: Nothing arrived in time.
            ClosedError: The subscription is closed.
            MissingExtraError: pyarrow is not installed.
            RecordingError: Recorded data is missing or corrupt.
        """
        return self._rows(self._next(timeout), limit)

    def _next(self, timeout: float | None) -> SessionStream | None:
        """Return a session with messages, or None at the end of the stream or if the subscription is closed in the meantime."""
        deadline = Deadline(self._stream.clock, timeout)
        while (session := self._stream.ready()) is None and not self.is_end_of_stream:
            if deadline.expired:
                raise self._timeout(timeout)
            if not self._stream.client.invoke():
                if self._stream.live is not None:
                    self._stream.live.wait_for_data(timeout=IDLE_S)
                else:
                    time.sleep(IDLE_S)
            if self.closed:
                return None
        return session
