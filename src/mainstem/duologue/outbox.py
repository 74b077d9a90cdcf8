"""What is to be sent and was not accepted yet: tried again for 500 ms, then an error (docs/protocols/duologue.md, 4.5)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.clock import NS_PER_MS
from mainstem.errors import BackPressured, ClosedError, NotConnected

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self, publication: Offers, *, name: str, retry_ns: int = RETRY_NS, seal: Callable[[bytes], bytes] | None = None
    ) -> None:
        self._publication = publication
        self._name = name
        self._retry_ns = retry_ns
        # Sealed when queued: what is retried are the same bytes under the same number.
        self.seal = seal
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
        sealed = message if self.seal is None else self.seal(message)
        is_first = not self._queue
        self._queue.append(sealed)
        self._octets += len(sealed)
        if is_first:
            # Behind others it waits for ``do_work``, which is also where the failure of an older one is raised.
            self.do_work(now_ns)

    def do_work(self, now_ns: int) -> int:
        """Offer what waits; returns how many were accepted. Raises an OfferError where the first was refused for 500 ms."""
        sent = 0
        while self._queue:
            status = self._publication.offer(self._queue[0])
            if status < 0:
                self._refused(status, now_ns)
                return sent
            self._octets -= len(self._queue.popleft())
            self._since_ns = -1
            sent += 1
        return sent

    def drop_first(self) -> None:
        """Give up the message that was refused; those behind it get their own time."""
        self._octets -= len(self._queue.popleft())
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
