"""A subscription that begins with recorded messages and continues with live ones.

The package ``recording`` reads the recordings: its persistent stream is a `RecordedStream`, and is reached by its entry point.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Protocol

from mainstem._core import layout
from mainstem._internal.clock import Deadline
from mainstem.aeron.client.resource import Closing
from mainstem.errors import ClosedError, Timeout, needs_extras

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from mainstem._internal.clock import Clock
    from mainstem.aeron.client.subscription import Subscription

IDLE_S = 0.001
# The columns of a record batch of ``poll_arrow``.
COLUMNS = layout.COLUMN_POSITION | layout.COLUMN_SESSION_ID | layout.COLUMN_RESERVED_VALUE | layout.COLUMN_PAYLOAD


class StreamClient(Protocol):
    """The part of an Aeron client that a recorded stream uses, in a thread that may wait for the driver."""

    @property
    def directory(self) -> str: ...

    def add_subscription(self, channel: str, stream_id: int, /, *, timeout: float | None = None) -> Subscription: ...
    def invoke(self) -> int: ...


class ReadySession(Protocol):
    """A publisher's batch of messages. Messages count as read when they are handed out."""

    def payloads(self, limit: int) -> Iterator[bytes]: ...
    def rows(self, limit: int) -> pa.RecordBatch: ...
    def each(self) -> Iterator[bytes]: ...


class RecordedStream(Protocol):
    """A stream's recordings and its live messages. ``live`` is None until it has joined the live stream."""

    channel: str
    stream_id: int
    client: StreamClient
    clock: Clock
    live: Subscription | None
    closed: bool

    @property
    def is_live(self) -> bool: ...
    @property
    def is_end_of_stream(self) -> bool: ...
    @property
    def positions(self) -> dict[int, int]: ...

    def ready(self) -> ReadySession | None: ...
    def close(self) -> None: ...


class PersistentBase:
    """The part of a persistent subscription that does not wait for messages."""

    def __init__(self, stream: RecordedStream) -> None:
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

    def _each(self, session: ReadySession) -> Iterator[bytes]:
        for message in session.each():
            yield message
            if self.closed:
                return

    def _first(self, session: ReadySession | None) -> bytes:
        if session is not None:
            for message in session.each():
                return message
        raise ClosedError(f"{self!r} is closed" if self.closed else f"every publisher of {self!r} has ended")

    def _rows(self, session: ReadySession | None, limit: int) -> pa.RecordBatch:
        with needs_extras():
            from mainstem._core.log.columns import Columns
            from mainstem._internal.arrow_batches import record_batch

        return record_batch(Columns(COLUMNS).take(), 0) if session is None else session.rows(limit)

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

    ``poll_bytes`` and ``poll_arrow`` don't wait for messages; ``receive`` and ``messages`` do. All may wait for a store, and once
    for the driver when joining the live stream. One thread uses it.

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
            out += session.payloads(limit - len(out))
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

    def receive(self, *, timeout: float | None = None) -> bytes:
        """Wait for the next message and return it. For many messages, iterate: that is faster.

        Args:
            timeout: Seconds to wait; None waits forever.

        Returns:
            The message, whole.

        Raises:
            Timeout: Nothing arrived for ``timeout`` seconds.
            ClosedError: All live publishers have ended, and all of their messages are handed out; or the subscription is closed.
            RecordingError: Recorded data is missing or corrupt.
            RegistrationError: The driver refused the live channel.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.
        """
        return self._first(self._next(timeout))

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

    def _next(self, timeout: float | None) -> ReadySession | None:
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
