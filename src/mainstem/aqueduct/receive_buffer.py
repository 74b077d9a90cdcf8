"""How much a connection buffers: unread messages, held streams and datagrams, partial frames.

Above ``Limits.max_buffered_bytes`` the engine stops reading the whole connection. At twice that limit, which only a peer that
ignores flow control can reach, the connection ends. Channels that nobody reads must not stop the connection forever while the
application waits for another channel. Therefore the limit is half as much again while a reader waits at an empty receiver
(``awaited``). Invariant: ``paused`` is True exactly while the transport has been asked to stop reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aqueduct.events import PauseConnection
from mainstem.aqueduct.frames import protocol_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem.aqueduct.context import Context
    from mainstem.aqueduct.halves import ReceiverHalf, Stream
    from mainstem.aqueduct.output import Output

UNREAD_BYTES = 1 << 14
"""Number of bytes that an unread receiver can always hold, even if much is buffered already."""

UNREAD_SHARES = 16
"""Divisor of the free buffer space: one unread receiver can hold this fraction of it."""


class ReceiveBuffer:
    """The total size of what is buffered. ``awaited`` holds the receivers at which the application waits with nothing to read."""

    def __init__(self, context: Context, output: Output) -> None:
        self._context = context
        self._output = output
        self.size = 0
        self.paused = False
        self.awaited: dict[ReceiverHalf, None] = {}

    def account(self, change: int) -> None:
        """Add ``change`` to the number of buffered bytes, and pause or resume reading. Raises RemoteProtocolError."""
        self.size += change
        if change > 0:
            limit = self._context.limits.max_buffered_bytes
            if self.size > limit:
                if not self.paused and self.size > self._pause_limit():
                    self.paused = True
                    self._output.commands.append(PauseConnection(paused=True))
                if self.size > 2 * limit:
                    text = f"{self.size} bytes are buffered, sent past flow control; the limit is {limit}"
                    raise protocol_error("buffer limit", text)
        elif self.paused:
            self.resume_reading()

    def account_stream(self, stream: Stream) -> None:
        buffered = stream.buffered
        if buffered != stream.accounted:
            change, stream.accounted = buffered - stream.accounted, buffered
            self.account(change)

    def is_full(self, receiver: ReceiverHalf) -> bool:
        """Return whether a receiver holds as many unread messages as it is allowed to.

        If the application is waiting at the receiver, the receiver's own limit applies. Otherwise it may be that nobody reads it,
        so it can take only a share of the free space. Together, unread receivers take at most half of the buffer limit, however
        many there are.
        """
        limits, size = self._context.limits, receiver.queued_bytes
        if receiver.queued >= limits.receive_messages or size >= limits.receive_bytes:
            return True
        free = limits.max_buffered_bytes // 2 - self.size
        return size >= UNREAD_BYTES and size >= free // UNREAD_SHARES and receiver not in self.awaited

    def _pause_limit(self) -> int:
        """Return how many bytes can be buffered before reading pauses; half as many again while a reader waits for messages.

        The message that the reader waits for may be behind messages of other channels that are never read.
        """
        limit = self._context.limits.max_buffered_bytes
        return limit + limit // 2 if any(not receiver.queued for receiver in self.awaited) else limit

    def resume_reading(self) -> None:
        """Resume reading once less than half the limit is buffered or, if a reader is waiting, as soon as there is room."""
        limit, most = self._context.limits.max_buffered_bytes, self._pause_limit()
        if self.size < limit // 2 or (most > limit and self.size < most - limit // 16):
            self.paused = False
            self._output.commands.append(PauseConnection(paused=False))

    def forget(self, kept: Iterable[ReceiverHalf]) -> None:
        """Forget everything but the unread messages of ``kept``."""
        self.awaited.clear()
        self.size = sum(receiver.queued_bytes for receiver in kept)
