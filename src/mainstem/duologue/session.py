"""One client's duologue as the server sees it."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstem.aeron.client.polled import polled
from mainstem.duologue.limits import address_of, checked_message, longest_message
from mainstem.duologue.messages import BAD_MESSAGE, INTERNAL_ERROR, error_text
from mainstem.duologue.outbox import Outbox
from mainstem.duologue.state import DuologueState, Lifetime
from mainstem.errors import BadMessage, ClosedError, MainstemError, OfferError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client.asynchronous import AsyncOperation
    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.image import Image
    from mainstem.aeron.client.publication import ExclusivePublication
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.duologue.crypto import Ciphers
    from mainstem.duologue.handler import Handler
    from mainstem.duologue.settings import ServerSettings

logger = logging.getLogger(__name__)

MESSAGES_AT_ONCE = 10  # of one client in one duty cycle, so that a busy one does not hold up the others

State = DuologueState


class Duologue:
    """A pair of streams between the server and one client. Everything here belongs to the server's thread.

    Attributes:
        owner: The client's address.
        session_id: The session of both streams.
        user: For the program's own use.
        paused: While it is set, nothing is read from the client, which then feels back pressure.

    Example:
        >>> def handler(duologue: Duologue, message: bytes) -> None:
        ...     duologue.send(message)
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        owner: str,
        prefix: str,
        session_id: int,
        ports: tuple[int, int],
        lifetime: Lifetime,
        assert_thread: Callable[[], None],
    ) -> None:
        self.owner = owner
        self.prefix = prefix
        self.session_id = session_id
        self.ports = ports
        self.lifetime = lifetime
        self.ciphers: Ciphers | None = None
        self.user: object = None
        self.paused = False
        self.bad_messages = 0
        self.on_ready: Callable[[], None] | None = None
        self.on_failed: Callable[[], None] | None = None
        self._settings = settings
        self._assert_thread = assert_thread
        self._now_ns = lifetime.since_ns
        # Filled by the client conductor's thread, emptied by the server's: a deque is safe for that.
        self._images: deque[tuple[bool, str, int]] = deque()
        self._present: set[int] = set()
        self._arrived: deque[bytes] = deque()  # emptied by each duty cycle, except where it was interrupted
        self._outbox: Outbox | None = None
        self._publication: ExclusivePublication | None = None
        self._subscription: Subscription | None = None
        self.opening: list[AsyncOperation[Subscription] | AsyncOperation[ExclusivePublication]] = []
        self._subscribing: AsyncOperation[Subscription] | None = None
        self._publishing: AsyncOperation[ExclusivePublication] | None = None

    def begin(self, aeron: Aeron) -> None:
        """Ask the driver for both streams; called by the server.

        Args:
            aeron: The client of the driver.

        Raises:
            DriverTimeout: The driver accepts no more commands.

        Example:
            >>> duologue.begin(aeron)
        """
        settings, (port, control_port) = self._settings, self.ports
        self._subscribing = aeron.async_add_subscription(
            settings.duologue_subscription(port, self.session_id),
            settings.stream_id,
            on_available_image=lambda image: self._on_image(True, image),
            on_unavailable_image=lambda image: self._on_image(False, image),
        )
        self.opening.append(self._subscribing)
        self._publishing = aeron.async_add_exclusive_publication(
            settings.duologue_publication(control_port, self.session_id), settings.stream_id
        )
        self.opening.append(self._publishing)

    @property
    def state(self) -> DuologueState:
        """The state of the duologue."""
        return self.lifetime.state

    @property
    def is_open(self) -> bool:
        """Whether the client is there and can be sent messages."""
        return self.lifetime.state is State.JOINED

    @property
    def queued(self) -> int:
        """Messages that wait because the client's window is full."""
        return 0 if self._outbox is None else len(self._outbox)

    @property
    def max_message_length(self) -> int:
        """The longest message in either direction, in bytes."""
        return longest_message(self._settings.term_length, is_encrypted=self.ciphers is not None)

    def send(self, message: bytes | str) -> None:
        """Send a message, or queue it while the client's window is full: 500 ms at most, after which the duologue ends.

        Args:
            message: At most ``max_message_length`` bytes; text is encoded as UTF-8.

        Raises:
            ClosedError: The client has gone.
            BackPressured: Too many messages wait for this client.
            ValueError: The message is too long.
            TypeError: The message is neither text nor a bytes-like object.
            LocalProtocolError: Another thread than the server's calls.

        Example:
            >>> duologue.send("ECHO tide")
        """
        self._assert_thread()
        data = checked_message(message, self.max_message_length)
        if not self.is_open or self._outbox is None:
            raise ClosedError(f"duologue {self.session_id} is {self.state.name.lower()}")
        self._outbox.send(data, self._now_ns)

    def close(self, error: str = "") -> None:
        """End the duologue, after what was sent has gone out.

        Args:
            error: A reason that the client receives before; empty for none.

        Raises:
            LocalProtocolError: Another thread than the server's calls.

        Example:
            >>> duologue.close("see you tomorrow")
        """
        self._assert_thread()
        if not self.is_open:
            return
        if error and self._outbox is not None:
            with suppress(OfferError, ClosedError):
                self._outbox.send(error_text(error), self._now_ns)
        self.lifetime.move(State.CLOSING, self._now_ns)

    # -- the server's side -----------------------------------------------------------------------------------------

    def _on_image(self, available: bool, image: Image) -> None:
        self._images.append((available, image.source_identity, image.correlation_id))

    def do_work(self, now_ns: int, handler: Handler) -> tuple[int, str]:
        """Run one duty cycle; called by the server.

        Args:
            now_ns: The monotonic time.
            handler: What is called for a client that joined, and for its messages.

        Returns:
            How much was done, and why the duologue must end now: empty while it goes on.

        Example:
            >>> work, reason = duologue.do_work(now_ns, handler)
        """
        self._now_ns = now_ns
        try:
            work = self._step(now_ns, handler)
        except MainstemError as error:
            return 1, str(error)
        except Exception:
            logger.exception("[%d] the handler failed", self.session_id)
            return 1, INTERNAL_ERROR
        if self.state is State.CLOSING and not self._outbox:
            # What the client must still receive is in the stream; the driver keeps it for a while after the close.
            return work, "closed by the server"
        return work, self.lifetime.on_time_event(now_ns)

    def _step(self, now_ns: int, handler: Handler) -> int:
        if self.state is State.OPENING:
            return self._finish_opening(now_ns)
        work = self._take_images()
        publication, subscription, outbox = self._publication, self._subscription, self._outbox
        assert publication is not None
        assert subscription is not None
        assert outbox is not None
        if self.state is State.WAITING and self._present and publication.is_connected:
            self.lifetime.move(State.JOINED, now_ns)
            handler.on_open(self)
            work += 1
        elif self.state is State.JOINED and not (self._present and publication.is_connected):
            self.lifetime.move(State.LEFT, now_ns)
            work += 1
        work += outbox.do_work(now_ns)
        # A client that does not receive the responses is not read.
        if self.state is State.JOINED and not outbox and not self.paused:
            self._arrived.extend(polled(subscription.poll_bytes, MESSAGES_AT_ONCE - len(self._arrived)))
            work += len(self._arrived)
            self._hand_over(now_ns, handler)
        return work

    def _finish_opening(self, now_ns: int) -> int:
        assert self._subscribing is not None
        assert self._publishing is not None
        self._subscription = self._subscription or self._subscribing.poll()
        self._publication = self._publication or self._publishing.poll()
        if self._subscription is None or self._publication is None:
            return 0
        self._outbox = Outbox(self._publication, name=f"duologue {self.session_id}")
        if self.ciphers is not None:
            self._outbox.sealer = self.ciphers.sealer
        self.lifetime.move(State.WAITING, now_ns)
        if self.on_ready is not None:
            self.on_ready()
        return 1

    def _take_images(self) -> int:
        work = 0
        while self._images:
            available, source, correlation_id = self._images.popleft()
            work += 1
            if not available:
                self._present.discard(correlation_id)
            elif self._settings.check_address and address_of(source) != self.owner:
                raise RemoteProtocolError(f"{source} joined what {self.owner} asked for", rule="guide 4.3", peer=source)
            else:
                self._present.add(correlation_id)
        return work

    def _hand_over(self, now_ns: int, handler: Handler) -> None:
        arrived = self._arrived
        opener = None if self.ciphers is None else self.ciphers.opener
        # What follows a bad message is not read.
        while arrived and self.state is State.JOINED:
            self.lifetime.heard(now_ns)
            message = arrived[0] if opener is None else opener.open(arrived[0])
            # Calls nothing: from here on the message is the handler's.
            del arrived[0]
            if opener is not None:
                opener.number += 1
            self._on_message(message, handler)

    def _on_message(self, message: bytes, handler: Handler) -> None:
        if len(message) > self.max_message_length:
            self.bad_messages += 1
            self.close(BAD_MESSAGE)
            return
        try:
            handler.on_message(self, message)
        except BadMessage:
            self.bad_messages += 1
            self.close(BAD_MESSAGE)
        except MainstemError:
            raise
        except Exception:
            # A fault in the program's handler costs this client its duologue, and no other.
            logger.exception("[%d] the handler failed", self.session_id)
            self.close(INTERNAL_ERROR)

    def release(self, now_ns: int) -> bool:
        """Close the streams; called by the server.

        Args:
            now_ns: The monotonic time.

        Returns:
            Whether all is closed. While the driver has not responded to a command it is False, and this is to be called
            again.

        Example:
            >>> duologue.release(now_ns)
        """
        if self.state is not State.CLOSED:
            self.lifetime.move(State.CLOSED, now_ns)
        for operation in [each for each in self.opening if each.is_done]:
            self.opening.remove(operation)
            with suppress(MainstemError):
                result = operation.poll()
                if result is not None:
                    result.close()
        return not self.opening

    def __repr__(self) -> str:
        return f"<Duologue {self.session_id} of {self.owner} on {self.ports}, {self.state.name.lower()}>"
