"""A subscription that begins in the past: recorded messages, then live ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mainstem._core.log.columns import Columns
from mainstem._internal.clock import Deadline
from mainstem.aeron.client.resource import Closing
from mainstem.errors import Timeout, needs_extras
from mainstem.recording.persistent.batch import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from mainstem.recording.persistent.batch import MessageBatch
    from mainstem.recording.persistent.session import SessionStream
    from mainstem.recording.persistent.stream import PersistentStream

IDLE_S = 0.001


class PersistentBase:
    """What the persistent subscriptions of both variants have besides waiting."""

    def __init__(self, stream: PersistentStream) -> None:
        self._stream = stream
        self.channel, self.stream_id = stream.channel, stream.stream_id

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._stream.closed

    @property
    def error(self) -> Exception | None:
        """What ended its client without ``close``: a DriverTimeout or a ClientTimeout; else None."""
        return None if self._stream.live is None else self._stream.live.error

    @property
    def is_live(self) -> bool:
        """Whether every publisher's messages come from the live stream now."""
        return self._stream.is_live

    @property
    def is_end_of_stream(self) -> bool:
        """Whether there were live publishers, every one has ended, and everything of them was handed out."""
        return self._stream.is_end_of_stream

    @property
    def positions(self) -> dict[int, int]:
        """Where the last message handed out of each recording ends, by recording id: ``start=`` goes on from there."""
        return self._stream.positions

    def _batch_of(self, session: SessionStream) -> MessageBatch:
        batch = session.next_batch()
        assert batch is not None, "a session that is ready has a batch"
        return batch

    def _each(self, session: SessionStream) -> Iterator[bytes]:
        """The messages of the session's batch; each counts as read when it is handed out."""
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

    def __repr__(self) -> str:
        return f"<PersistentSubscription {self.channel} stream {self.stream_id}{', closed' if self.closed else ''}>"


class PersistentSubscription(PersistentBase, Closing):
    """What was recorded of a stream, and then the stream itself: no message is missing, and none comes twice.

    ``Aeron.add_persistent_subscription`` creates it. Messages of one publisher come in order; those of several publishers are
    interleaved. The live stream is joined when nearly everything recorded was read, and left for the recordings again when this
    subscriber was too slow for it (``tether=false``), so a reader may be as slow as it likes while a recorder runs.

    ``poll_bytes`` and ``poll_arrow`` wait for no message; ``messages`` does. They may wait for a store, and once for the driver,
    where the live stream is joined. One thread uses it.

    Attributes:
        channel: The channel of the live stream.
        stream_id: The stream id.

    Example:
        >>> with aeron.add_persistent_subscription("aeron:ipc", 1001, recordings="tides") as subscription:
        ...     for message in subscription.messages():
        ...         print(message)
    """

    def poll_bytes(self, limit: int = 1000) -> list[bytes]:
        """Return whole messages, as ``Subscription.poll_bytes``; waits for none.

        Args:
            limit: The most messages.

        Returns:
            The messages; none when there are none yet.

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
            limit: The most messages.

        Returns:
            A batch with the columns position, session_id, reserved_value and payload; without rows when there is none.

        Raises:
            ClosedError: The subscription is closed.
            MissingExtraError: pyarrow is not installed.
            RecordingError: Recorded data is missing or corrupt.
            RegistrationError: The driver refused the live channel.
            StoreError: The store of the recordings cannot be read.
        """
        return self._rows(self._stream.ready(), limit)

    def messages(self, *, timeout: float | None = None) -> Iterator[bytes]:
        """Yield whole messages as they come, until every publisher that was live has ended, or the subscription is closed.

        Args:
            timeout: Seconds to wait for the next message; None waits forever.

        Yields:
            One message after another; one that was not taken comes in the next iteration.

        Raises:
            Timeout: Nothing came for ``timeout`` seconds.
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
            limit: The most messages.
            timeout: Seconds to wait for the first one; None waits forever.

        Returns:
            A batch with the columns position, session_id, reserved_value and payload; without rows at the end of the stream.

        Raises:
            Timeout: Nothing came in time.
            ClosedError: The subscription is closed.
            MissingExtraError: pyarrow is not installed.
            RecordingError: Recorded data is missing or corrupt.
        """
        return self._rows(self._next(timeout), limit)

    def _next(self, timeout: float | None) -> SessionStream | None:
        """A session that has messages; None at the end of the stream, and when this is closed meanwhile."""
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
