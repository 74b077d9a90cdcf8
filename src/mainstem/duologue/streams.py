"""The two streams of a duologue, at either end: opening, closing, sending and receiving.

A signal handler may raise in the thread that runs the duty cycles, after any call. Messages pass from the log to their receiver as
Aeron's ``polled.py`` describes, and are counted in the same statements, so none is lost or duplicated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mainstem._core import layout
from mainstem._internal.clock import NS_PER_MS
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.aeron.client.polled import polled
from mainstem.aeron.logbuffer import framed_length
from mainstem.duologue.messages import SAYS_END, longest_message
from mainstem.duologue.stats import DuologueStats
from mainstem.errors import Aborted, BackPressured, ClosedError, ConnectionLost, MainstemError, NotConnected

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.log.read import Message
    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.operation import Operation
    from mainstem.aeron.client.publication import ExclusivePublication
    from mainstem.aeron.client.subscription import Image, Subscription
    from mainstem.duologue.crypto import Ciphers, Sealer


# -- messages that wait to be sent -------------------------------------------------------------------------------------
#
# `Outbox.offer` sends a message immediately or not at all. `Outbox.queue` is for messages that no caller waits for: responses,
# broadcasts, and reasons for an end. ``do_work`` retries them for 500 ms (docs/protocols/duologue.md, 4.5).
#
# A signal handler may raise in the sending thread after any call. So a message is offered, numbered and removed from the queue in
# statements without further calls, which sends it exactly once or not at all.


RETRY_NS = 500 * NS_PER_MS
# A peer that leaves stops reading. What it said before may arrive up to this time later.
LAST_WORDS_NS = 500 * NS_PER_MS
# When a queue is this long, the peer is not reading. Further messages are refused instead of queued.
MAX_QUEUED = 256
MAX_QUEUED_BYTES = 1 << 20


class Offers(Protocol):
    def offer(self, data: bytes, /, *, reserved_value: int = 0) -> int: ...


class Outbox:
    """The messages that wait for one publication, in order. It never blocks.

    ``reserved_value`` is written into the header of each message. ``room`` restricts messages so that there is always space for the
    end.
    """

    def __init__(
        self,
        publication: Offers,
        *,
        name: str,
        retry_ns: int = RETRY_NS,
        sealer: Sealer | None = None,
        reserved_value: int = 0,
        room: RoomForEnd | None = None,
    ) -> None:
        self._publish = (
            partial(publication.offer, reserved_value=reserved_value) if reserved_value else publication.offer
        )
        self._publish_end = partial(publication.offer, reserved_value=SAYS_END)
        self._room = room
        self._name = name
        self._retry_ns = retry_ns
        self.sealer = sealer
        # The most recently refused message, sealed under its number, which is still the next number.
        self._sealed: tuple[bytes, int, bytes] = (b"", -1, b"")
        self._queue: deque[bytes] = deque()
        self._nbytes = 0
        self._since_ns = -1
        self._has_ended = False
        self.messages_sent = self.bytes_sent = 0

    def __len__(self) -> int:
        return len(self._queue)

    def offer(self, message: bytes) -> bool:
        """Send a message unless others wait or there is no space. Returns whether it was sent."""
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
        # No calls from here, so no signal handler can raise.
        queue += (message,)
        self._nbytes += length
        if is_first:
            # If other messages wait, this one waits for ``do_work``, which also raises the failure of an earlier one.
            self.do_work(now_ns)

    def do_work(self, now_ns: int) -> int:
        """Offer queued messages. Returns how many were accepted. Raises an OfferError if the first was refused for 500 ms."""
        sent = 0
        queue = self._queue
        while queue:
            message = queue[0]
            length = len(message)
            status = self._offer(message)
            # No calls after the offer, so no signal handler can raise.
            if status > 0:
                del queue[0]
                self._nbytes -= length
                self._since_ns = -1
                sent += 1
            else:
                self._refused(status, now_ns)
                break
        return sent

    def end(self, read: int) -> bool:
        """Say that nothing follows, and how many messages this end has read. Returns False if there is no space; call it again."""
        sealer = self.sealer
        text = read.to_bytes(COUNT_LENGTH, "little")
        for _ in range(2):  # the first attempt may find a term full
            if self._has_ended:
                break
            sealed = text if sealer is None else sealer.seal(text, is_end=True)
            (status,) = map(self._publish_end, (sealed,))
            self._has_ended = status > 0 or OfferStatus(status).is_final
        return self._has_ended

    def drop(self) -> None:
        self._queue.clear()
        self._nbytes = 0

    def drop_first(self) -> None:
        """Drop the first message, which was refused. Restart the time limit for the next one."""
        length = len(self._queue[0])
        del self._queue[0]
        self._nbytes -= length
        self._since_ns = -1

    def _offer(self, message: bytes) -> int:
        sealer, length = self.sealer, len(message)
        sealed = message if sealer is None else self._seal(sealer, message)
        if self._room is not None and not self._room.allows(len(sealed)):
            return OfferStatus.BACK_PRESSURED
        # The assignment makes the offer without a Python call, so no signal handler runs until the message is counted.
        (status,) = map(self._publish, (sealed,))
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
        # An end of a duologue that was closed offers nothing, so something else has closed the publication.
        if status in (OfferStatus.CLOSED, OfferStatus.MAX_POSITION_EXCEEDED):
            raise ConnectionLost(f"{self._name}: the publication is closed or has used all of its positions")

    def _refused(self, status: int, now_ns: int) -> None:
        self._check_open(status)
        if self._since_ns < 0:
            self._since_ns = now_ns
        elif now_ns - self._since_ns >= self._retry_ns:
            kind = NotConnected if status == OfferStatus.NOT_CONNECTED else BackPressured
            reason = "nobody is connected" if kind is NotConnected else "the peer does not read"
            raise kind(f"{self._name}: could not send a message for {self._retry_ns // NS_PER_MS} ms: {reason}")


class RoomForEnd:
    """Keeps space in a publication's window for the end, so that it can be said while the peer does not read.

    A publication accepts any message that begins below its limit. This accepts only one that also ends below it. In a window that
    is not longer than one message, none would be accepted, so there the end may have to wait.
    """

    def __init__(self, publication: ExclusivePublication) -> None:
        self._publication = publication
        self._widest = 0

    def allows(self, length: int) -> bool:
        """Return whether to offer a message of this length. If the publication would refuse it, it may say why."""
        publication = self._publication
        window = publication.available_window
        if window <= 0:
            return True
        self._widest = max(self._widest, window)
        needed = framed_length(length, publication.max_payload_length)
        left = publication.term_length - publication.position % publication.term_length
        if needed > left:  # the rest of the term becomes padding
            needed += left
        return window > min(needed, self._widest - 1)


def driver_lost(aeron: Aeron) -> ConnectionLost:
    """Return the error for an end whose client of the media driver has ended."""
    cause = aeron.error
    error = ConnectionLost(f"the connection to the media driver was lost: {cause or 'the driver client was closed'}")
    error.__cause__ = cause
    return error


COUNT_LENGTH = 8
MAX_RECEIVED = 256
MAX_RECEIVED_BYTES = 1 << 20
"""How many messages and bytes may wait to be received. Beyond that, the peer is not read and gets back pressure."""


class StreamPair:
    """A subscription and a publication that are opened together, without blocking.

    The client conductor's thread adds new images to ``arrivals``.
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
        """The subscription, or None until the driver has made it. Raises RegistrationError or DriverTimeout."""
        return self._subscribing.poll()

    @property
    def publication(self) -> ExclusivePublication | None:
        """The publication, or None until the driver has made it. Raises RegistrationError or DriverTimeout."""
        return self._publishing.poll()

    @property
    def is_ready(self) -> bool:
        return self.subscription is not None and self.publication is not None

    @property
    def is_connected(self) -> bool:
        subscription, publication = self.subscription, self.publication
        return bool(subscription and publication and subscription.is_connected and publication.is_connected)

    def close(self, *, listens: bool = False) -> bool:
        """Close both streams, or with ``listens`` only the publication.

        Returns whether both are closed. Call it again until then, because the driver must first respond to the commands.
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
    """The messages on both streams of an open duologue.

    ``inspect`` is called with each message before it can be received, and ``accept`` with the peer's stream. If one raises, the
    duologue ends. ``says_end`` is whether both ends say that they have ended.
    """

    def __init__(
        self,
        streams: StreamPair,
        *,
        peer: str,
        name: str,
        ciphers: Ciphers | None,
        inspect: Callable[[bytes], None],
        says_end: bool,
        accept: Callable[[Image], None] | None = None,
    ) -> None:
        subscription, publication = streams.subscription, streams.publication
        assert subscription is not None
        assert publication is not None
        self.publication = publication
        self.outbox = Outbox(
            publication,
            name=name,
            sealer=None if ciphers is None else ciphers.sealer,
            room=RoomForEnd(publication) if says_end else None,
        )
        self.image: Image | None = None  # the peer's stream, once it has arrived
        self.peer_has_ended = False  # whether the peer said so
        self._unread_since_ns: int | None = None  # since when the peer reads no more
        self._read_by_peer = -1  # how many messages of this end it had read by then
        self._says_end = says_end
        self._arrivals = streams.arrivals
        self._accept = accept
        self._subscription = subscription
        self._peer = peer
        self._opener = None if ciphers is None else ciphers.opener
        self._inspect = inspect
        self._arrived: deque[Message] = deque()  # each duty cycle empties it, unless interrupted
        self._received: deque[bytes] = deque()
        self._messages_received = self._bytes_received = self._bytes_taken = 0
        self.is_reader_gone = False  # whether the application reads no more, so that received messages stay unread

    def stats(self) -> DuologueStats:
        outbox = self.outbox
        return DuologueStats(outbox.messages_sent, outbox.bytes_sent, self._messages_received, self._bytes_received)

    @property
    def peer_listens(self) -> bool:
        """Whether the peer's stream has not ended, so the peer may be waiting for this stream's end."""
        image = self.image
        return image is not None and not (image.closed or image.end_of_stream_position < layout.NEVER_NS)

    def take_images(self) -> int:
        """Take the peer's stream. Raises ConnectionLost if it is a second one. Returns how many there were."""
        work = 0
        while self._arrivals:
            image = self._arrivals.popleft()
            work += 1
            if self._accept is not None:
                self._accept(image)
            if self.image is not None:
                # What the peer sent between the end of one and the start of the other is missing.
                raise ConnectionLost(f"the stream of {self._peer} was interrupted")
            self.image = image
        return work

    def say_end(self) -> bool:
        """Say that this end has sent everything, if the peer understands that. Returns False if it must be said again."""
        return not self._says_end or self.outbox.end(
            self._messages_received - (len(self._received) if self.is_reader_gone else 0)
        )

    @property
    def unread(self) -> int:
        """How many of this end's messages the peer has left unread, as it said with its end; 0 if it has not said so."""
        return 0 if self._read_by_peer < 0 else max(0, self.outbox.messages_sent - self._read_by_peer)

    def poll(self, limit: int) -> int:
        """Read up to ``limit`` messages. Returns how many were read."""
        arrived, received, opener = self._arrived, self._received, self._opener
        room = min(limit, MAX_RECEIVED - len(received)) - len(arrived)
        if room > 0 and self._bytes_received - self._bytes_taken < MAX_RECEIVED_BYTES:
            arrived.extend(polled(self._subscription.poll_with_metadata, room))
        self.take_images()  # a stream arrives before its first message
        work = len(arrived)
        while arrived:
            message = arrived[0].payload
            is_end = self._says_end and arrived[0].reserved_value == SAYS_END
            if opener is not None:
                message = opener.open(message, is_end=is_end)
            if is_end:
                self.peer_has_ended = True
                if len(message) == COUNT_LENGTH:
                    self._read_by_peer = int.from_bytes(message, "little")
                arrived.clear()
                break
            length = len(message)
            self._inspect(message)
            # No calls from here, so no signal handler can raise.
            received += (message,)
            del arrived[0]
            self._messages_received += 1
            self._bytes_received += length
            if opener is not None:
                opener.number += 1
        return work

    def take(self) -> bytes | None:
        """Remove and return the oldest unreceived message, or None."""
        received = self._received
        if not received:
            return None
        message = received[0]
        length = len(message)
        # No calls until the return to the caller, so no signal handler can raise.
        del received[0]
        self._bytes_taken += length
        return message

    def drop(self) -> None:
        self._received.clear()
        self._bytes_taken = self._bytes_received

    def check_peer(self, now_ns: int, *, has_left: bool = False) -> None:
        """Raise if the peer is gone: ClosedError if it said that it has ended, else ConnectionLost or Aborted.

        The end of its stream alone says nothing: a driver ends it for a client that died. Only if the peer never says its end, and
        this end ``has_left``, is it taken for the response to that.
        """
        image, publication = self.image, self.publication
        if self.peer_has_ended:
            raise ClosedError(f"{self._peer} ended the duologue")
        if image is None:
            return
        # The driver stores the revocation before the end of stream, so read the end first.
        has_ended = image.is_end_of_stream
        if image.is_publication_revoked:
            raise Aborted(f"{self._peer} aborted the duologue")
        if has_ended and has_left and not self._says_end:
            raise ClosedError(f"{self._peer} ended the duologue")
        if has_ended:
            raise ConnectionLost(f"the stream of {self._peer} ended, but {self._peer} did not say that it was complete")
        if publication.closed or publication.is_connected:
            self._unread_since_ns = None
        elif self._unread_since_ns is None:
            self._unread_since_ns = now_ns
        since_ns = self._unread_since_ns
        if image.closed or (since_ns is not None and now_ns - since_ns >= LAST_WORDS_NS):
            raise ConnectionLost(f"no heartbeat from {self._peer}: it is presumed dead")


class Link(ABC):
    """One end of a duologue, without threads, clock or sockets. The base for client and server.

    Attributes:
        error: The error that ended the duologue. None if it ended in order.
        has_told: Whether ``offer`` or ``receive`` has raised ``error``.
        exchange: The messages of the duologue, once both streams are open.
        peer_says_end: Whether the peer says when it has ended, as Mainstem does.
    """

    def __init__(self, term_length: int) -> None:
        self.error: MainstemError | None = None
        self.has_told = False
        self.ciphers: Ciphers | None = None
        self.peer_says_end = False
        self.exchange: Exchange | None = None
        self._term_length = term_length

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether messages can be sent and received."""

    @property
    @abstractmethod
    def _end(self) -> str:
        """Why the duologue is not open, unless ``error`` says so."""

    @property
    def max_message_length(self) -> int:
        """The maximum message length, in bytes."""
        return longest_message(self._term_length, is_encrypted=self.ciphers is not None)

    def stats(self) -> DuologueStats:
        return DuologueStats() if self.exchange is None else self.exchange.stats()

    def offer(self, message: bytes) -> bool:
        """Send a message if there is space. Returns whether it was sent. Raises the error that ended the duologue."""
        return self._open_exchange().outbox.offer(message)

    def receive(self) -> bytes | None:
        """Take the oldest message, or None. Raises the error that ended the duologue once all messages are taken."""
        message = None if self.exchange is None else self.exchange.take()
        if message is None:
            self._open_exchange()
        return message

    def _open_exchange(self) -> Exchange:
        if self.exchange is None or self.error is not None or not self.is_open:
            self.has_told = True
            raise self.error or ClosedError(self._end)
        return self.exchange
