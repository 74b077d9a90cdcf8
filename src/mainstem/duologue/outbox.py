"""Messages that wait to be sent on one publication.

`Outbox.offer` sends a message now or not at all. `Outbox.queue` is for messages that no caller waits for: responses,
broadcasts, reasons of an end. ``do_work`` retries them for 500 ms (docs/protocols/duologue.md, 4.5).

A signal handler may raise in the sending thread after any call. So a message is offered, numbered and taken off the queue in
statements that call nothing else: it is sent once or not at all.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from mainstem._internal.clock import NS_PER_MS
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.errors import BackPressured, ClosedError, NotConnected

if TYPE_CHECKING:
    from mainstem.duologue.crypto import Sealer

RETRY_NS = 500 * NS_PER_MS
# A duologue whose queue is this long has a peer that does not read; further messages are refused, not queued.
MAX_QUEUED = 256
MAX_QUEUED_BYTES = 1 << 20


class Offers(Protocol):
    def offer(self, data: bytes, /) -> int: ...


class Outbox:
    """The messages that wait for one publication, in order; never blocks."""

    def __init__(
        self, publication: Offers, *, name: str, retry_ns: int = RETRY_NS, sealer: Sealer | None = None
    ) -> None:
        self._publication = publication
        self._name = name
        self._retry_ns = retry_ns
        self.sealer = sealer
        # The message that was refused last, sealed under the number that is still the next.
        self._sealed: tuple[bytes, int, bytes] = (b"", -1, b"")
        self._queue: deque[bytes] = deque()
        self._nbytes = 0
        self._since_ns = -1
        self.messages_sent = self.bytes_sent = 0

    def __len__(self) -> int:
        return len(self._queue)

    def offer(self, message: bytes) -> bool:
        """Send a message, unless others wait or there is no space. Raises ClosedError if the stream has ended."""
        if self._queue:
            return False
        status = self._offer(message)
        if status == OfferStatus.ADMIN_ACTION:  # a term was full
            status = self._offer(message)
        if status > 0:
            return True
        self._check_open(status)
        return False

    def queue(self, message: bytes, now_ns: int) -> None:
        """Send or queue a message. Raises BackPressured if too much is queued."""
        if len(self._queue) >= MAX_QUEUED or self._nbytes >= MAX_QUEUED_BYTES:
            raise BackPressured(f"{self._name}: the queue is full ({len(self._queue)} messages, {self._nbytes} bytes)")
        queue, length = self._queue, len(message)
        is_first = not queue
        # Calls nothing.
        queue += (message,)
        self._nbytes += length
        if is_first:
            # Behind others it waits for ``do_work``, which is also where the failure of an older one is raised.
            self.do_work(now_ns)

    def do_work(self, now_ns: int) -> int:
        """Offer queued messages; return how many were accepted. Raises an OfferError if the first was refused for 500 ms."""
        sent = 0
        queue = self._queue
        while queue:
            message = queue[0]
            length = len(message)
            status = self._offer(message)
            # Calls nothing from the offer on.
            if status > 0:
                del queue[0]
                self._nbytes -= length
                self._since_ns = -1
                sent += 1
            else:
                self._refused(status, now_ns)
                break
        return sent

    def drop(self) -> None:
        self._queue.clear()
        self._nbytes = 0

    def drop_first(self) -> None:
        """Drop the message that was refused; those after it get their own time."""
        length = len(self._queue[0])
        del self._queue[0]
        self._nbytes -= length
        self._since_ns = -1

    def _offer(self, message: bytes) -> int:
        sealer, length = self.sealer, len(message)
        sealed = message if sealer is None else self._seal(sealer, message)
        # Offered by the assignment, which is not a call: no signal handler runs until the message is counted.
        (status,) = map(self._publication.offer, (sealed,))
        if status > 0:
            if sealer is not None:
                sealer.number += 1
            self.messages_sent += 1
            self.bytes_sent += length
        return status

    def _seal(self, sealer: Sealer, message: bytes) -> bytes:
        last, number, sealed = self._sealed
        if last is not message or number != sealer.number:
            sealed = sealer.seal(message)
            self._sealed = (message, sealer.number, sealed)
        return sealed

    def _check_open(self, status: int) -> None:
        if status in (OfferStatus.CLOSED, OfferStatus.MAX_POSITION_EXCEEDED):
            raise ClosedError(f"{self._name}: the publication is closed or has used all of its positions")

    def _refused(self, status: int, now_ns: int) -> None:
        self._check_open(status)
        if self._since_ns < 0:
            self._since_ns = now_ns
        elif now_ns - self._since_ns >= self._retry_ns:
            kind = NotConnected if status == OfferStatus.NOT_CONNECTED else BackPressured
            reason = "nobody is connected" if kind is NotConnected else "the peer does not read"
            raise kind(f"{self._name}: could not send a message for {self._retry_ns // NS_PER_MS} ms: {reason}")
