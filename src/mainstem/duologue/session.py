"""One client's duologue as the server sees it: no thread, no clock and no socket of its own.

The server's thread runs its duty cycles. The thread or task of its handler sends and receives, under `Session.changed`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from mainstem._internal.clock import seconds_ns
from mainstem.duologue.limits import address_of, longest_message
from mainstem.duologue.messages import BAD_MESSAGE, error_text
from mainstem.duologue.state import DuologueState, Lifetime
from mainstem.duologue.stats import DuologueStats
from mainstem.duologue.streams import Exchange, StreamPair
from mainstem.errors import (
    BadMessage,
    ClosedError,
    MainstemError,
    OfferError,
    RemoteProtocolError,
    Timeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mainstem.aeron.client.client import Aeron
    from mainstem.duologue.channels import ServerChannels
    from mainstem.duologue.crypto import Ciphers

MESSAGES_AT_ONCE = 10  # of one client in one duty cycle, so that a busy one does not hold up the others

State = DuologueState


class Condition(Protocol):
    """The lock of a session's state, which tells those who wait of changes: a ``threading.Condition``, or the event loop's."""

    def __enter__(self) -> bool | Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def notify_all(self) -> None: ...


class Alone:
    """A condition if one thread does everything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def notify_all(self) -> None: ...


class Session:
    """A pair of streams between the server and one client."""

    def __init__(
        self,
        channels: ServerChannels,
        *,
        owner: str,
        prefix: str,
        session_id: int,
        ports: tuple[int, int],
        now_ns: int,
        changed: Condition,
    ) -> None:
        settings = channels.settings
        self.owner = owner  # the client's address
        self.prefix = prefix
        self.session_id = session_id
        self.ports = ports
        self._closing_ns = seconds_ns(settings.closing_timeout)
        self.lifetime = Lifetime(
            join_ns=seconds_ns(settings.join_timeout),
            left_ns=seconds_ns(settings.left_timeout),
            idle_ns=None if settings.idle_timeout is None else seconds_ns(settings.idle_timeout),
            closing_ns=self._closing_ns,
            now_ns=now_ns,
        )
        self.changed = changed
        self.ciphers: Ciphers | None = None
        self.bad_messages = 0
        self.error: MainstemError | None = None  # what ended it, unless it ended in order
        self.reason = ""  # why it ended, in a few words
        self.has_told = False  # whether ``error`` was raised to the handler
        self.has_handler = False  # a handler that runs keeps the place of its client
        self.on_end: Callable[[], None] | None = None  # called in the server's thread
        self.on_ready: Callable[[], None] | None = None
        self.on_failed: Callable[[], None] | None = None
        self._channels = channels
        self._settings = settings
        self._now_ns = now_ns
        self._wants_room = False
        self._streams: StreamPair | None = None
        self._exchange: Exchange | None = None

    def begin(self, aeron: Aeron) -> None:
        """Ask the driver for both streams. Raises DriverTimeout if it accepts no more commands."""
        port, control_port = self.ports
        self._streams = StreamPair(
            aeron,
            self._channels.subscription(port, self.session_id),
            self._channels.publication(control_port, self.session_id),
            self._settings.stream_id,
        )

    @property
    def state(self) -> DuologueState:
        return self.lifetime.state

    @property
    def is_open(self) -> bool:
        """Whether the client is there and can be sent messages."""
        return self.lifetime.state is State.JOINED

    @property
    def peer_address(self) -> tuple[str, int]:
        image = None if self._exchange is None else self._exchange.image
        source = "" if image is None else image.source_identity
        return self.owner, int(source.rpartition(":")[2] or 0)

    @property
    def queued(self) -> int:
        """Messages that wait because the client's window is full."""
        return 0 if self._exchange is None else len(self._exchange.outbox)

    @property
    def max_message_length(self) -> int:
        """The longest message in either direction, in bytes."""
        return longest_message(self._settings.term_length, is_encrypted=self.ciphers is not None)

    def stats(self) -> DuologueStats:
        return DuologueStats() if self._exchange is None else self._exchange.stats()

    # -- the handler's side, under ``changed`` ---------------------------------------------------------------------

    def _open_exchange(self) -> Exchange:
        if self._exchange is None or not self.is_open:
            self.has_told = True
            raise self.error or ClosedError(f"duologue {self.session_id} ended: {self.reason or 'closed by this side'}")
        return self._exchange

    def offer(self, message: bytes) -> bool:
        """Send a message if there is room for it. Raises what ended the duologue."""
        is_sent = self._open_exchange().outbox.offer(message)
        if not is_sent:
            self._wants_room = True
        return is_sent

    def queue(self, message: bytes) -> None:
        """Send a message, or queue it; the duologue ends where it is not accepted for 500 ms. Raises BackPressured too."""
        self._open_exchange().outbox.queue(message, self._now_ns)

    def receive(self) -> bytes | None:
        """Take the oldest message; None if there is none yet. Raises what ended the duologue, once all are taken."""
        message = None if self._exchange is None else self._exchange.take()
        if message is None:
            self._open_exchange()
        return message

    def close(self, error: str = "") -> None:
        """End the duologue, after what was sent has gone out; with ``error`` as the last message, unless it is empty."""
        if not self.is_open:
            return
        if error:
            with suppress(OfferError, ClosedError):
                self.queue(error_text(error))
        self.lifetime.move(State.CLOSING, self._now_ns)
        self.changed.notify_all()

    def abort(self) -> None:
        """End the duologue at once; the client learns that it was aborted."""
        if self._exchange is not None and (self.is_open or self.state is State.CLOSING):
            self._exchange.publication.revoke()
            self._exchange.outbox.drop()
            self.close()

    # -- the server's side -----------------------------------------------------------------------------------------

    def do_work(self, now_ns: int, on_open: Callable[[Session], None]) -> tuple[int, str]:
        """Run one duty cycle; returns how much was done, and why the duologue must end now: empty while it goes on."""
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
            if self.state is State.CLOSING and not self.queued:
                # What the client must still receive is in the stream; the driver keeps it for a while after the close.
                return work, "closed by the server"
            reason = self.lifetime.on_time_event(now_ns)
            if reason and self.is_open:
                limit = self._settings.idle_timeout
                self.error = Timeout(f"{self.owner} sent no message for {limit:g} s (idle_timeout)", timeout=limit)
            return work, reason

    def _step(self, now_ns: int, on_open: Callable[[Session], None]) -> int:
        if self.state is State.OPENING:
            return self._finish_opening(now_ns)
        streams, exchange = self._streams, self._exchange
        assert streams is not None
        assert exchange is not None
        work = self._take_images(streams, exchange)
        image = exchange.image
        if self.state is State.WAITING and image and not image.closed and exchange.publication.is_connected:
            self.lifetime.move(State.JOINED, now_ns)
            on_open(self)
            work += 1
        work += exchange.outbox.do_work(now_ns)
        # A client that does not receive the responses is not read.
        if self.is_open and not exchange.outbox:
            try:
                work += exchange.poll(MESSAGES_AT_ONCE)
            except BadMessage:
                # What follows it is not read.
                self.bad_messages += 1
                self.close(BAD_MESSAGE)
        if self.is_open and self._has_left(exchange):
            self.lifetime.move(State.LEFT, now_ns)
            work += 1
        return work

    def _finish_opening(self, now_ns: int) -> int:
        assert self._streams is not None
        if not self._streams.is_ready:
            return 0
        self._exchange = Exchange(
            self._streams,
            peer=self.owner,
            name=f"duologue {self.session_id}",
            ciphers=self.ciphers,
            inspect=self._inspect,
        )
        self.lifetime.move(State.WAITING, now_ns)
        if self.on_ready is not None:
            self.on_ready()
        return 1

    def _take_images(self, streams: StreamPair, exchange: Exchange) -> int:
        work = 0
        while streams.arrivals:
            image = streams.arrivals.popleft()
            work += 1
            source = image.source_identity
            if self._settings.check_address and address_of(source) != self.owner:
                raise RemoteProtocolError(
                    f"{source} joined the duologue of {self.owner}", rule="guide 4.3", peer=source
                )
            exchange.image = image
        return work

    def _has_left(self, exchange: Exchange) -> bool:
        """Whether the client is gone; ``error`` says why, unless it left in order."""
        try:
            exchange.check_peer()
        except ClosedError:
            return True
        except MainstemError as error:
            self.error = error
            return True
        return False

    def _inspect(self, message: bytes) -> None:
        self.lifetime.heard(self._now_ns)
        if len(message) > self.max_message_length:
            raise BadMessage

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
        exchange, is_late = self._exchange, now_ns - self.lifetime.since_ns >= self._closing_ns
        listens = waits and not is_late and exchange is not None and exchange.peer_listens
        if self._streams is not None:
            self._streams.close(listens=listens)
        return self.is_released and not self.has_handler

    @property
    def is_released(self) -> bool:
        """Whether both streams are closed."""
        return self._streams is None or self._streams.is_closed

    def __repr__(self) -> str:
        return f"<Session {self.session_id} of {self.owner} on {self.ports}, {self.state.name.lower()}>"
