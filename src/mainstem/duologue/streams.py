"""The two streams of a duologue at either end: opening, closing, sending and receiving.

A signal handler may raise in the thread that runs the duty cycles, after any call. Messages pass from the log to their receiver as
described in Aeron's ``polled.py``, and are counted in the same statements, so none is lost or repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mainstem._core import layout
from mainstem.aeron.client.polled import polled
from mainstem.duologue.messages import longest_message
from mainstem.duologue.outbox import Outbox
from mainstem.duologue.stats import DuologueStats
from mainstem.errors import Aborted, ClosedError, ConnectionLost, MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.operation import Operation
    from mainstem.aeron.client.publication import ExclusivePublication
    from mainstem.aeron.client.subscription import Image, Subscription
    from mainstem.duologue.crypto import Ciphers

MAX_RECEIVED = 256
"""Messages that came and that nobody has received; then the peer is not read, and feels back pressure."""


class StreamPair:
    """A subscription and a publication that are opened together, without blocking.

    The client conductor's thread adds available images to ``arrivals``.
    """

    def __init__(self, aeron: Aeron, subscription: str, publication: str, stream_id: int) -> None:
        self.arrivals: deque[Image] = deque()
        self._subscribing: Operation[Subscription] = aeron.async_add_subscription(
            subscription, stream_id, on_available_image=self.arrivals.append
        )
        self._publishing: Operation[ExclusivePublication] = aeron.async_add_exclusive_publication(
            publication, stream_id
        )
        self._open: list[Operation[Any]] = [self._publishing, self._subscribing]

    @property
    def subscription(self) -> Subscription | None:
        """The subscription, once the driver has made it. Raises RegistrationError or DriverTimeout."""
        return self._subscribing.poll()

    @property
    def publication(self) -> ExclusivePublication | None:
        """The publication, once the driver has made it. Raises RegistrationError or DriverTimeout."""
        return self._publishing.poll()

    @property
    def is_ready(self) -> bool:
        return self.subscription is not None and self.publication is not None

    @property
    def is_connected(self) -> bool:
        subscription, publication = self.subscription, self.publication
        return bool(subscription and publication and subscription.is_connected and publication.is_connected)

    def close(self, *, listens: bool = False) -> bool:
        """Close both, or with ``listens`` only the publication.

        Returns whether both are closed. Call it again until then: the driver has to respond to the commands first.
        """
        for operation in [each for each in self._open if each.is_done]:
            if operation is self._subscribing and listens:
                continue
            self._open.remove(operation)
            with suppress(MainstemError):
                resource = operation.poll()
                if resource is not None:
                    resource.close()
        return not self._open

    def abandon(self) -> None:
        self.close()
        for operation in self._open:
            operation.cancel()
        self._open.clear()


class Exchange:
    """The messages over both streams of an open duologue.

    ``inspect`` is called with each message before it can be received; an exception ends the duologue.
    """

    def __init__(
        self, streams: StreamPair, *, peer: str, name: str, ciphers: Ciphers | None, inspect: Callable[[bytes], None]
    ) -> None:
        subscription, publication = streams.subscription, streams.publication
        assert subscription is not None
        assert publication is not None
        self.publication = publication
        self.outbox = Outbox(publication, name=name, sealer=None if ciphers is None else ciphers.sealer)
        self.image: Image | None = None  # the peer's stream, once it has come
        self._subscription = subscription
        self._peer = peer
        self._opener = None if ciphers is None else ciphers.opener
        self._inspect = inspect
        self._arrived: deque[bytes] = deque()  # emptied by each duty cycle, except where it was interrupted
        self._received: deque[bytes] = deque()
        self._messages_received = self._bytes_received = 0

    def stats(self) -> DuologueStats:
        outbox = self.outbox
        return DuologueStats(outbox.messages_sent, outbox.bytes_sent, self._messages_received, self._bytes_received)

    @property
    def peer_listens(self) -> bool:
        """Whether the peer's stream has not ended, so that it may wait for this one's end."""
        image = self.image
        return image is not None and not (image.closed or image.end_of_stream_position < layout.NEVER_NS)

    def poll(self, limit: int) -> int:
        """Read up to ``limit`` messages; return how many."""
        arrived, received, opener = self._arrived, self._received, self._opener
        room = min(limit, MAX_RECEIVED - len(received)) - len(arrived)
        if room > 0:
            arrived.extend(polled(self._subscription.poll_bytes, room))
        work = len(arrived)
        while arrived:
            message = arrived[0] if opener is None else opener.open(arrived[0])
            length = len(message)
            self._inspect(message)
            # Calls nothing.
            received += (message,)
            del arrived[0]
            self._messages_received += 1
            self._bytes_received += length
            if opener is not None:
                opener.number += 1
        return work

    def take(self) -> bytes | None:
        """The oldest unreceived message, or None."""
        received = self._received
        if not received:
            return None
        message = received[0]
        # Calls nothing up to the caller.
        del received[0]
        return message

    def drop(self) -> None:
        self._received.clear()

    def check_peer(self) -> None:
        """Raise the reason if the peer has gone: ClosedError if it left in order. Everything it sent before has been read."""
        image, publication = self.image, self.publication
        if image is None:
            return
        # The driver stores the end after the revocation, so the end is read first.
        has_ended = image.is_end_of_stream
        if image.is_publication_revoked:
            raise Aborted(f"{self._peer} aborted the duologue")
        if has_ended:
            raise ClosedError(f"{self._peer} ended the duologue")
        if image.closed or not (publication.closed or publication.is_connected):
            raise ConnectionLost(f"no heartbeat from {self._peer}: it is presumed dead")


class Link(ABC):
    """One end of a duologue, without thread, clock or socket; common to client and server.

    Attributes:
        error: What ended the duologue, unless it ended in order.
        has_told: Whether ``offer`` or ``receive`` has raised it.
        exchange: Set once both streams are open.
    """

    def __init__(self, term_length: int) -> None:
        self.error: MainstemError | None = None
        self.has_told = False
        self.ciphers: Ciphers | None = None
        self.exchange: Exchange | None = None
        self._term_length = term_length

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether messages can be sent and received."""

    @property
    @abstractmethod
    def _end(self) -> str:
        """Why the duologue is not open, if ``error`` does not say it."""

    @property
    def max_message_length(self) -> int:
        """The longest message that can be sent, in bytes."""
        return longest_message(self._term_length, is_encrypted=self.ciphers is not None)

    def stats(self) -> DuologueStats:
        return DuologueStats() if self.exchange is None else self.exchange.stats()

    def offer(self, message: bytes) -> bool:
        """Send a message if there is space. Raises the error that ended the duologue."""
        return self._open_exchange().outbox.offer(message)

    def receive(self) -> bytes | None:
        """Take the oldest message; None if there is none. Raises the error that ended the duologue, once all are taken."""
        message = None if self.exchange is None else self.exchange.take()
        if message is None:
            self._open_exchange()
        return message

    def _open_exchange(self) -> Exchange:
        if self.exchange is None or self.error is not None or not self.is_open:
            self.has_told = True
            raise self.error or ClosedError(self._end)
        return self.exchange
