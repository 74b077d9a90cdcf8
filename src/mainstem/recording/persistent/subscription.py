"""A subscription that begins in the past: recorded messages, then live ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from mainstem._core.log.columns import Columns
from mainstem.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.errors import Timeout, needs_extras
from mainstem.recording.persistent.batch import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pyarrow as pa

    from mainstem.clock import Clock
    from mainstem.recording.persistent.session import SessionStream
    from mainstem.recording.persistent.stream import Client, PersistentStream

IDLE_NS = NS_PER_MS


class PersistentSubscription:
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

    def __init__(self, stream: PersistentStream, client: Client, clock: Clock) -> None:
        self._stream, self._client, self._clock = stream, client, clock
        self.channel, self.stream_id = stream.channel, stream.stream_id

    def poll_bytes(self, limit: int = 1000) -> list[bytes]:
        """Returns whole messages, as ``Subscription.poll_bytes``; waits for none.

        Args:
            limit: The most messages.

        Returns:
            The messages; none when there are none yet.

        Raises:
            ClosedError: The subscription is closed.
            RecordingError: Positions are missing or damaged.
            RegistrationError: The driver refused the live channel.
            StoreError: The store of the recordings cannot be read.

        Example:
            >>> messages = subscription.poll_bytes()
        """
        out: list[bytes] = []
        while len(out) < limit and (session := self._stream.ready()) is not None:
            batch = session.next_batch()
            assert batch is not None, "a session that is ready has a batch"
            first, last, position = batch.take(limit - len(out))
            out += batch.payloads(first, last)
            session.advance_to(position)
        return out

    def poll_arrow(self, limit: int = 4096) -> pa.RecordBatch:
        """Returns whole messages of one publisher as a record batch.

        Args:
            limit: The most messages.

        Returns:
            A batch with the columns position, session_id, reserved_value and payload; without rows when there is none.

        Raises:
            ClosedError: The subscription is closed.
            MissingExtraError: pyarrow is not installed.
            RecordingError: Positions are missing or damaged.
            RegistrationError: The driver refused the live channel.
            StoreError: The store of the recordings cannot be read.

        Example:
            >>> batch = subscription.poll_arrow(1000)
        """
        with needs_extras():
            from mainstem.arrow import record_batch

        session = self._stream.ready()
        if session is None:
            return record_batch(Columns(COLUMNS).take(), 0)
        batch = session.next_batch()
        assert batch is not None, "a session that is ready has a batch"
        first, last, position = batch.take(limit)
        rows: pa.RecordBatch = batch.arrow(first, last)
        session.advance_to(position)
        return rows

    def messages(self, *, timeout: float | None = None) -> Iterator[bytes]:
        """Yields whole messages as they come, until every publisher that was live has ended, or the subscription is closed.

        Args:
            timeout: Seconds to wait for the next message; None waits for ever.

        Yields:
            One message after another; one that was not taken comes in the next iteration.

        Raises:
            Timeout: Nothing came for ``timeout`` seconds.
            RecordingError: Positions are missing or damaged.
            RegistrationError: The driver refused the live channel.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.

        Example:
            >>> for message in subscription.messages(timeout=10.0):
            ...     print(message)
        """
        deadline = Deadline(self._clock, timeout)
        while not self._stream.closed:
            if (session := self._stream.ready()) is not None:
                yield from self._each(session)
                deadline.restart()
            elif self._stream.is_end_of_stream:
                return
            elif deadline.is_over:
                raise Timeout(f"nothing came on {self!r} for {timeout:g} s", timeout=timeout)
            else:
                self._idle()

    def _each(self, session: SessionStream) -> Iterator[bytes]:
        """The messages of the session's batch; each counts as read when it is handed out."""
        batch = session.next_batch()
        assert batch is not None, "a session that is ready has a batch"
        while not (batch.is_empty or self._stream.closed):
            first, last, position = batch.take(1)
            session.advance_to(position)
            yield from batch.payloads(first, last)

    def _idle(self) -> None:
        if not self._client.invoke():
            if self._stream.live is not None:
                self._stream.live.wait_for_data(IDLE_NS)
            else:
                time.sleep(IDLE_NS / NS_PER_SECOND)

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._stream.closed

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

    def close(self) -> None:
        """Closes the live subscription and the recordings. May be called twice.

        Example:
            >>> subscription.close()
        """
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._stream)


class Deadline:
    """The end of a wait that begins anew with each success."""

    def __init__(self, clock: Clock, timeout: float | None) -> None:
        self._clock, self._timeout = clock, timeout
        self.restart()

    def restart(self) -> None:
        """Begins anew."""
        self._begin_ns = self._clock.monotonic_ns()

    @property
    def is_over(self) -> bool:
        """Whether it passed."""
        return self._timeout is not None and self._clock.monotonic_ns() - self._begin_ns > self._timeout * NS_PER_SECOND
