"""One client's duologue as the server sees it: no thread, no clock and no socket of its own.

The server's thread runs its duty cycles. The thread or task of its handler sends and receives, under `Session.changed`.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from mainstem._core import layout
from mainstem.aeron.client.polled import polled
from mainstem.clock import seconds_ns
from mainstem.duologue.limits import address_of, longest_message
from mainstem.duologue.messages import BAD_MESSAGE, error_text
from mainstem.duologue.outbox import Outbox
from mainstem.duologue.state import DuologueState, Lifetime
from mainstem.duologue.stats import DuologueStats
from mainstem.errors import (
    Aborted,
    ClosedError,
    ConnectionLost,
    MainstemError,
    OfferError,
    RemoteProtocolError,
    Timeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.operation import Operation
    from mainstem.aeron.client.publication import ExclusivePublication
    from mainstem.aeron.client.subscription import Image, Subscription
    from mainstem.duologue.crypto import Ciphers
    from mainstem.duologue.settings import ServerSettings

MESSAGES_AT_ONCE = 10  # of one client in one duty cycle, so that a busy one does not hold up the others
MAX_RECEIVED = 256
"""Messages of one client that its handler has not received; then the client feels back pressure."""

State = DuologueState


class Condition(Protocol):
    """The lock of a session's state, and what waits for a change of it: a ``threading.Condition``, or what the event loop has."""

    def __enter__(self) -> bool | Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def notify_all(self) -> None:
        """Wake everyone who waits."""
        ...


class Alone:
    """A condition for where one thread does everything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def notify_all(self) -> None:
        """Nobody waits."""


class Session:
    """A pair of streams between the server and one client.

    Attributes:
        owner: The client's address.
        session_id: The session of both streams.
        changed: The lock of this session.
        error: Why it ended, where that is an error; None while it is open, and after an end in order.
        reason: Why it ended, in a few words; empty before.
        has_told: Whether ``error`` was raised to the handler.
        has_handler: Whether its handler runs, which keeps its place.
        on_end: Called when it has ended, in the server's thread.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        owner: str,
        prefix: str,
        session_id: int,
        ports: tuple[int, int],
        now_ns: int,
        changed: Condition,
    ) -> None:
        self.owner = owner
        self.prefix = prefix
        self.session_id = session_id
        self.ports = ports
        self._closing_ns = seconds_ns(settings.closing_timeout)
        self.lifetime = Lifetime(
            join_ns=seconds_ns(settings.join_timeout),
            left_ns=seconds_ns(settings.left_timeout),
            silence_ns=None if settings.idle_timeout is None else seconds_ns(settings.idle_timeout),
            closing_ns=self._closing_ns,
            now_ns=now_ns,
        )
        self.changed = changed
        self.ciphers: Ciphers | None = None
        self.bad_messages = 0
        self.error: MainstemError | None = None
        self.reason = ""
        self.has_told = False
        self.has_handler = False
        self.on_end: Callable[[], None] | None = None
        self.on_ready: Callable[[], None] | None = None
        self.on_failed: Callable[[], None] | None = None
        self._settings = settings
        self._now_ns = now_ns
        # Filled by the client conductor's thread, emptied by the server's: a deque is safe for that.
        self._images: deque[Image] = deque()
        self._image: Image | None = None
        self._arrived: deque[bytes] = deque()  # emptied by each duty cycle, except where it was interrupted
        self._received: deque[bytes] = deque()
        self._messages_received = self._bytes_received = 0
        self._outbox: Outbox | None = None
        self._wants_room = False
        self._publication: ExclusivePublication | None = None
        self._subscription: Subscription | None = None
        self._opening: list[Operation[Subscription] | Operation[ExclusivePublication]] = []
        self._subscribing: Operation[Subscription] | None = None
        self._publishing: Operation[ExclusivePublication] | None = None

    def begin(self, aeron: Aeron) -> None:
        """Ask the driver for both streams. Raises DriverTimeout if it accepts no more commands."""
        settings, (port, control_port) = self._settings, self.ports
        self._subscribing = aeron.async_add_subscription(
            settings.duologue_subscription(port, self.session_id),
            settings.stream_id,
            on_available_image=self._images.append,
        )
        self._opening.append(self._subscribing)
        self._publishing = aeron.async_add_exclusive_publication(
            settings.duologue_publication(control_port, self.session_id), settings.stream_id
        )
        self._opening.append(self._publishing)

    @property
    def state(self) -> DuologueState:
        """The state of the duologue."""
        return self.lifetime.state

    @property
    def is_open(self) -> bool:
        """Whether the client is there and can be sent messages."""
        return self.lifetime.state is State.JOINED

    @property
    def peer_address(self) -> tuple[str, int]:
        """The client's address and port."""
        source = "" if self._image is None else self._image.source_identity
        return self.owner, int(source.rpartition(":")[2] or 0)

    @property
    def queued(self) -> int:
        """Messages that wait because the client's window is full."""
        return 0 if self._outbox is None else len(self._outbox)

    @property
    def max_message_length(self) -> int:
        """The longest message in either direction, in bytes."""
        return longest_message(self._settings.term_length, is_encrypted=self.ciphers is not None)

    def stats(self) -> DuologueStats:
        """What was sent and received."""
        sent = (0, 0) if self._outbox is None else (self._outbox.messages_sent, self._outbox.bytes_sent)
        return DuologueStats(*sent, self._messages_received, self._bytes_received)

    # -- the handler's side, under ``changed`` ---------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self.is_open:
            self.has_told = True
            raise self.error or ClosedError(f"duologue {self.session_id} ended: {self.reason or 'closed by this side'}")

    def offer(self, message: bytes) -> bool:
        """Send a message if there is room for it. Raises what ended the duologue."""
        self._check_open()
        assert self._outbox is not None
        is_sent = self._outbox.offer(message)
        if not is_sent:
            self._wants_room = True
        return is_sent

    def queue(self, message: bytes) -> None:
        """Send a message, or queue it; the duologue ends where it is not accepted for 500 ms. Raises BackPressured too."""
        self._check_open()
        assert self._outbox is not None
        self._outbox.queue(message, self._now_ns)

    def receive(self) -> bytes | None:
        """Take the oldest message; None if there is none yet. Raises what ended the duologue, once all are taken."""
        if self._received:
            return self._received.popleft()
        self._check_open()
        return None

    def close(self, error: str = "") -> None:
        """End the duologue, after what was sent has gone out; with ``error`` as the last message, unless it is empty."""
        if not self.is_open:
            return
        if error and self._outbox is not None:
            with suppress(OfferError, ClosedError):
                self._outbox.queue(error_text(error), self._now_ns)
        self.lifetime.move(State.CLOSING, self._now_ns)
        self.changed.notify_all()

    def abort(self) -> None:
        """End the duologue at once; the client learns that it was aborted."""
        if self.is_open or self.state is State.CLOSING:
            if self._publication is not None:
                self._publication.revoke()
            if self.is_open:
                self.lifetime.move(State.CLOSING, self._now_ns)
            self._outbox = None
            self.changed.notify_all()

    # -- the server's side -----------------------------------------------------------------------------------------

    def do_work(self, now_ns: int, on_open: Callable[[Session], None]) -> tuple[int, str]:
        """Run one duty cycle.

        Args:
            now_ns: The monotonic time.
            on_open: Called for a client that joined.

        Returns:
            How much was done, and why the duologue must end now: empty while it goes on.
        """
        self._now_ns = now_ns
        with self.changed:
            try:
                work = self._step(now_ns, on_open)
            except MainstemError as error:
                self.error = error
                return 1, str(error)
            if work or self._wants_room:
                # Nothing tells when there is room: who waits for it looks again.
                self._wants_room = False
                self.changed.notify_all()
            if self.state is State.CLOSING and not self._outbox:
                # What the client must still receive is in the stream; the driver keeps it for a while after the close.
                return work, "closed by the server"
            reason = self.lifetime.on_time_event(now_ns)
            if reason and self.is_open:
                limit = self._settings.idle_timeout
                self.error = Timeout(f"{self.owner} sent nothing for {limit:g} s", timeout=limit)
            return work, reason

    def _step(self, now_ns: int, on_open: Callable[[Session], None]) -> int:
        if self.state is State.OPENING:
            return self._finish_opening(now_ns)
        work = self._take_images()
        publication, subscription = self._publication, self._subscription
        assert publication is not None
        assert subscription is not None
        if self.state is State.WAITING and self._image and not self._image.closed and publication.is_connected:
            self.lifetime.move(State.JOINED, now_ns)
            on_open(self)
            work += 1
        if self._outbox is not None:
            work += self._outbox.do_work(now_ns)
        # A client that does not receive the responses is not read.
        room = min(MESSAGES_AT_ONCE, MAX_RECEIVED - len(self._received)) - len(self._arrived)
        if self.state is State.JOINED and not self._outbox and room > 0:
            self._arrived.extend(polled(subscription.poll_bytes, room))
            work += len(self._arrived)
            self._take_in(now_ns)
        if self.state is State.JOINED and self._has_left(publication):
            self.lifetime.move(State.LEFT, now_ns)
            work += 1
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
            image = self._images.popleft()
            work += 1
            source = image.source_identity
            if self._settings.check_address and address_of(source) != self.owner:
                raise RemoteProtocolError(f"{source} joined what {self.owner} asked for", rule="guide 4.3", peer=source)
            self._image = image
        return work

    def _has_left(self, publication: ExclusivePublication) -> bool:
        """Whether the client is gone; ``error`` says why, unless it left in order and all that it sent was received."""
        image = self._image
        assert image is not None
        if image.is_publication_revoked:
            self.error = Aborted(f"{self.owner} aborted the duologue")
        elif image.is_end_of_stream:
            return True
        elif image.closed or not publication.is_connected:
            self.error = ConnectionLost(f"nothing was heard from {self.owner} for too long")
        else:
            return False
        return True

    def _take_in(self, now_ns: int) -> None:
        arrived = self._arrived
        opener = None if self.ciphers is None else self.ciphers.opener
        while arrived:
            self.lifetime.heard(now_ns)
            message = arrived[0] if opener is None else opener.open(arrived[0])
            length = len(message)
            if length > self.max_message_length:
                # What follows a bad message is not read.
                self.bad_messages += 1
                self.close(BAD_MESSAGE)
                return
            # Calls nothing.
            self._received += (message,)
            del arrived[0]
            self._messages_received += 1
            self._bytes_received += length
            if opener is not None:
                opener.number += 1

    def end(self, reason: str, now_ns: int) -> None:
        """Note that it has ended, and why; `release` goes on."""
        with self.changed:
            self.reason = str(self.error) if self.error else reason
            self.lifetime.move(State.CLOSED, now_ns)
            self.changed.notify_all()
        if self.on_end is not None:
            self.on_end()

    def release(self, now_ns: int, *, waits: bool = True) -> bool:
        """Close the streams; True once all is closed, and the handler has ended. To be called again until then.

        The subscription is kept until the client's stream has ended too, ``closing_timeout`` at most: only then is it certain
        that the client has learned of the end. ``waits=False`` does not wait for that.
        """
        waits = waits and self._client_goes_on and now_ns - self.lifetime.since_ns < self._closing_ns
        for operation in [each for each in self._opening if each.is_done]:
            if operation is self._subscribing and waits:
                continue
            self._opening.remove(operation)
            with suppress(MainstemError):
                result = operation.poll()
                if result is not None:
                    result.close()
        return self.is_released and not self.has_handler

    @property
    def is_released(self) -> bool:
        """Whether both streams are closed."""
        return not self._opening

    @property
    def _client_goes_on(self) -> bool:
        image = self._image
        return image is not None and not (image.closed or image.end_of_stream_position < layout.NEVER_NS)

    def __repr__(self) -> str:
        return f"<Session {self.session_id} of {self.owner} on {self.ports}, {self.state.name.lower()}>"
