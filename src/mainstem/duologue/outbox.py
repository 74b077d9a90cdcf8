"""What is to be sent and was not accepted yet: tried again for 500 ms, then an error (docs/protocols/duologue.md, 4.5).

A signal handler may raise in the thread that sends, behind any call. A message is numbered and queued in statements that call
nothing, and so are its offer and its removal: where the exception comes, it is in the queue or it is not, and goes out once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.clock import NS_PER_MS
from mainstem.errors import BackPressured, ClosedError, NotConnected

if TYPE_CHECKING:
    from mainstem.duologue.crypto import Sealer

RETRY_NS = 500 * NS_PER_MS
# A duologue whose queue is this long has a peer that does not read; further messages are refused, not queued.
MAX_QUEUED = 256
MAX_QUEUED_BYTES = 1 << 20


class Offers(Protocol):
    """What messages are offered to: a publication."""

    def offer(self, data: bytes, /) -> int:
        """Offer a message; returns a position, or a negative OfferStatus."""
        ...


class Outbox:
    """Messages on their way into one publication, in order. Nothing here waits: ``do_work`` tries again."""

    def __init__(
        self, publication: Offers, *, name: str, retry_ns: int = RETRY_NS, sealer: Sealer | None = None
    ) -> None:
        self._publication = publication
        self._name = name
        self._retry_ns = retry_ns
        # Sealed when queued: what is retried are the same bytes under the same number.
        self.sealer = sealer
        self._queue: deque[bytes] = deque()
        self._octets = 0
        self._since_ns = -1

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether another message would be refused."""
        return len(self._queue) >= MAX_QUEUED or self._octets >= MAX_QUEUED_BYTES

    def send(self, message: bytes, now_ns: int) -> None:
        """Offer a message, or queue it behind those that wait. Raises BackPressured when too much waits already."""
        if self.is_full:
            raise BackPressured(f"{self._name}: {len(self._queue)} messages of {self._octets} bytes wait already")
        queue, sealer = self._queue, self.sealer
        sealed = message if sealer is None else sealer.seal(message)
        length = len(sealed)
        is_first = not queue
        # Calls nothing.
        queue += (sealed,)
        self._octets += length
        if sealer is not None:
            sealer.number += 1
        if is_first:
            # Behind others it waits for ``do_work``, which is also where the failure of an older one is raised.
            self.do_work(now_ns)

    def do_work(self, now_ns: int) -> int:
        """Offer what waits; returns how many were accepted. Raises an OfferError where the first was refused for 500 ms."""
        sent = 0
        queue = self._queue
        while queue:
            message = queue[0]
            length = len(message)
            # Offered by the assignment, which is no call: no signal handler runs until the message has left the queue.
            (status,) = map(self._publication.offer, (message,))
            if status < 0:
                self._refused(status, now_ns)
                return sent
            del queue[0]
            self._octets -= length
            self._since_ns = -1
            sent += 1
        return sent

    def drop_first(self) -> None:
        """Give up the message that was refused; those behind it get their own time."""
        length = len(self._queue[0])
        del self._queue[0]
        self._octets -= length
        self._since_ns = -1

    def _refused(self, status: int, now_ns: int) -> None:
        if status in (OfferStatus.CLOSED, OfferStatus.MAX_POSITION_EXCEEDED):
            raise ClosedError(f"{self._name}: the publication is closed or used up")
        if self._since_ns < 0:
            self._since_ns = now_ns
        elif now_ns - self._since_ns >= self._retry_ns:
            kind = NotConnected if status == OfferStatus.NOT_CONNECTED else BackPressured
            reason = "nobody is connected" if kind is NotConnected else "the peer does not read"
            raise kind(f"{self._name}: a message was refused for {self._retry_ns // NS_PER_MS} ms: {reason}")
