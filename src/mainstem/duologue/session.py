"""The server's end of one client's duologue, without threads, clock or sockets.

The server's thread runs the duty cycles. The handler's thread or task sends and receives while it holds `Session.changed`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from mainstem._internal.address_prefixes import address_of
from mainstem._internal.clock import seconds_ns
from mainstem.duologue.messages import BAD_MESSAGE, error_text
from mainstem.duologue.streams import Exchange, Link, StreamPair
from mainstem.errors import (
    BadMessage,
    ClosedError,
    ConnectionLost,
    InternalError,
    MainstemError,
    OfferError,
    RemoteProtocolError,
    Timeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.subscription import Image
    from mainstem.duologue.channels import ServerChannels
    from mainstem.duologue.messages import Connect
    from mainstem.duologue.settings import Settings


# -- the states of a duologue (docs/protocols/duologue.md, 4.3 and 4.4) ------------------------------------------------


class DuologueState(Enum):
    OPENING = "its publication and subscription are being made"
    WAITING = "the client has its address and has not joined"
    JOINED = "the client is there"
    LEFT = "the client has gone"
    CLOSING = "the last message is on its way"
    CLOSED = "everything is released"


S = DuologueState

SUCCESSORS: dict[S, frozenset[S]] = {
    S.OPENING: frozenset({S.WAITING, S.CLOSED}),
    S.WAITING: frozenset({S.JOINED, S.CLOSED}),
    S.JOINED: frozenset({S.LEFT, S.CLOSING, S.CLOSED}),
    S.LEFT: frozenset({S.CLOSED}),
    S.CLOSING: frozenset({S.CLOSED}),
    S.CLOSED: frozenset(),
}

# The setting that limits each state, and the reason why a duologue ends when the limit has passed.
LIMITS = {
    S.OPENING: ("join_timeout", "the driver did not make it in time"),
    S.WAITING: ("join_timeout", "nobody joined"),
    S.JOINED: ("idle_timeout", "idle for too long"),
    S.LEFT: ("left_timeout", "everybody left"),
    S.CLOSING: ("closing_timeout", "closed by the server"),
    S.CLOSED: ("closing_timeout", "the client was not heard to leave"),
}


class Lifetime:
    """A duologue's state, and the time at which it began or, if later, the client's last message arrived."""

    def __init__(self, settings: Settings, now_ns: int) -> None:
        self.state = S.OPENING
        self.since_ns = now_ns
        self._limits: dict[S, tuple[int, str]] = {}
        for state, (name, reason) in LIMITS.items():
            limit = getattr(settings, name)
            if limit is not None:
                self._limits[state] = seconds_ns(limit), reason

    def move(self, state: S, now_ns: int) -> None:
        """Change to a successor of the current state. Raises InternalError for any other state."""
        if state not in SUCCESSORS[self.state]:
            raise InternalError(f"a duologue does not go from {self.state.name} to {state.name}")
        self.state = state
        self.since_ns = now_ns

    def heard(self, now_ns: int) -> None:
        self.since_ns = now_ns

    def expired(self, now_ns: int) -> str:
        """Return why the duologue must end, in a few words; empty if it may continue."""
        limit = self._limits.get(self.state)
        return limit[1] if limit is not None and now_ns - self.since_ns >= limit[0] else ""


MESSAGES_AT_ONCE = 10  # per client and duty cycle, so that a busy client does not delay the others

State = DuologueState


class Condition(AbstractContextManager[object, None], Protocol):
    """The lock for a session's state, which can also notify waiters: a ``threading.Condition``, or one for the event loop."""

    def notify_all(self) -> None: ...


class Unlocked(nullcontext[None]):
    """A condition for use in a single thread."""

    def notify_all(self) -> None: ...


class Session(Link):
    """A pair of streams between the server and one client.

    Creating one asks the driver for both streams. Raises DriverTimeout if the driver accepts no more commands.

    Attributes:
        response: The response that the client gets on the all-clients channel once it can join.
        reason: Why the duologue ended, in a few words.
        has_handler: Whether a handler is running. It keeps the client's slot in use.
        on_end: A function to call in the server's thread when the duologue ends.
    """

    def __init__(
        self,
        aeron: Aeron,
        channels: ServerChannels,
        *,
        response: Connect,
        session_id: int,
        address: str,
        prefix: str,
        now_ns: int,
        changed: Condition,
    ) -> None:
        self._settings = settings = channels.settings
        super().__init__(settings.term_length)
        self.response = response
        self.session_id = session_id
        self.address = address
        self.prefix = prefix
        self.lifetime = Lifetime(settings, now_ns)
        self.changed = changed
        self.is_left = False
        self.bad_messages = 0
        self.reason = ""
        self.has_handler = False
        self.on_end: Callable[[], None] | None = None
        self._now_ns = now_ns
        self._wants_room = False
        self._owes_end = False  # whether the end could not be said yet
        self._streams = StreamPair(
            aeron,
            channels.subscription(response.port, session_id),
            channels.publication(response.control_port, session_id),
            settings.stream_id,
        )

    def leave_to_parent(self) -> None:
        """End the handler's use of the duologue in a forked child. Another thread of the parent may have held the lock."""
        self.is_left = True
        self.changed = type(self.changed)()

    @property
    def state(self) -> DuologueState:
        return self.lifetime.state

    @property
    def is_open(self) -> bool:
        return self.lifetime.state is State.JOINED

    @property
    def _end(self) -> str:
        return f"duologue {self.session_id} ended: {self.reason or 'closed by this side'}"

    @property
    def peer_address(self) -> tuple[str, int]:
        image = None if self.exchange is None else self.exchange.image
        source = "" if image is None else image.source_identity
        return self.address, int(source.rpartition(":")[2] or 0)

    @property
    def queued(self) -> int:
        """The number of messages that wait because the client's window is full."""
        return 0 if self.exchange is None else len(self.exchange.outbox)

    # -- the handler's side, under ``changed`` ---------------------------------------------------------------------

    def offer(self, message: bytes) -> bool:
        is_sent = super().offer(message)
        if not is_sent:
            self._wants_room = True
        return is_sent

    def queue(self, message: bytes) -> None:
        """Send or queue a message. If it is not accepted for 500 ms, the duologue ends. May raise BackPressured."""
        self._open_exchange().outbox.queue(message, self._now_ns)

    def close(self, error: str = "") -> None:
        """End the duologue once everything has been sent, with ``error`` as the last message unless it is empty."""
        if not self.is_open:
            return
        if error:
            with suppress(OfferError, ClosedError, ConnectionLost):
                self.queue(error_text(error))
        self.lifetime.move(State.CLOSING, self._now_ns)
        self.changed.notify_all()

    def abort(self) -> None:
        if self.exchange is not None and self.state in (State.JOINED, State.CLOSING):
            self.exchange.publication.revoke()
            self.exchange.outbox.drop()
            self.close()

    # -- the server's side -----------------------------------------------------------------------------------------

    def do_work(self, now_ns: int, on_open: Callable[[Session], None]) -> tuple[int, str]:
        """Run one duty cycle. Returns how much work was done, and why the duologue must end now (empty if it continues)."""
        self._now_ns = now_ns
        with self.changed:
            try:
                work = self._step(now_ns, on_open)
            except MainstemError as error:
                self.error = error
                return 1, str(error)
            if work or self._wants_room:
                # Nothing notifies waiters of free space, so let them check again.
                self._wants_room = False
                self.changed.notify_all()
            if self.state is State.CLOSING and not self.queued and self._say_end():
                # The client still has to receive messages in the stream. The driver keeps it for a while after the close.
                return work, "closed by the server"
            reason = self.lifetime.expired(now_ns)
            if reason and self.state is State.CLOSING and not self.queued:
                self.error = ConnectionLost(
                    f"{self.address} did not take the end of the duologue within {self._settings.closing_timeout:g} s"
                    " (closing_timeout)"
                )
            if reason and self.is_open:
                limit = self._settings.idle_timeout
                with suppress(OfferError, ConnectionLost):
                    self.queue(error_text(reason))
                self.error = Timeout(f"{self.address} sent no message for {limit:g} s (idle_timeout)", timeout=limit)
            return work, reason

    def _step(self, now_ns: int, on_open: Callable[[Session], None]) -> int:
        exchange = self.exchange
        if exchange is None:
            if not self._streams.is_ready:
                return 0
            name = f"duologue {self.session_id}"
            self.exchange = Exchange(
                self._streams,
                peer=self.address,
                name=name,
                ciphers=self.ciphers,
                inspect=self._inspect,
                accept=self._accept,
                says_end=self.peer_says_end,
            )
            self.lifetime.move(State.WAITING, now_ns)
            return 1
        work = exchange.take_images()
        image = exchange.image
        if self.state is State.WAITING and image and not image.closed and exchange.publication.is_connected:
            self.lifetime.move(State.JOINED, now_ns)
            on_open(self)
            work += 1
        work += exchange.outbox.do_work(now_ns)
        # If the client does not receive the responses, do not read from it.
        if self.is_open and not exchange.outbox:
            try:
                work += exchange.poll(MESSAGES_AT_ONCE)
            except BadMessage:
                # Do not read the messages after a bad one.
                self.bad_messages += 1
                self.close(BAD_MESSAGE)
        if self.is_open:
            try:
                exchange.check_peer(now_ns)
            except MainstemError as error:
                if not isinstance(error, ClosedError):
                    self.error = error
                self.lifetime.move(State.LEFT, now_ns)
                work += 1
        return work

    def _accept(self, image: Image) -> None:
        source = image.source_identity
        if self._settings.check_address and address_of(source) != self.address:
            raise RemoteProtocolError(f"{source} joined the duologue of {self.address}", rule="guide 4.3", peer=source)

    def _inspect(self, message: bytes) -> None:
        self.lifetime.heard(self._now_ns)
        if len(message) > self.max_message_length:
            raise BadMessage

    def _say_end(self) -> bool:
        if self.exchange is None:
            return True
        # After the client has left, a handler that still runs reads the rest.
        self.exchange.is_reader_gone = self.state is State.CLOSING or not self.has_handler
        return self.exchange.say_end()

    def end(self, reason: str, now_ns: int) -> None:
        """Record that the duologue has ended, and why. `release` does the rest."""
        with self.changed:
            self.reason = str(self.error) if self.error else reason
            if self.error is None and (self.state is State.LEFT or not self.queued):
                self._owes_end = not self._say_end()
            if self.error is None and self.is_open:
                # Neither the client nor the handler has ended the duologue, so the handler must not take this for an orderly end.
                self.error = ClosedError(self._end)
            self.lifetime.move(State.CLOSED, now_ns)
            self.changed.notify_all()
        if self.on_end is not None:
            self.on_end()

    def release(self, now_ns: int, *, waits: bool = True) -> bool:
        """Close the streams. Returns True once both are closed; call it again until then.

        The subscription stays open until the client's stream has ended too, for up to ``closing_timeout``, because only then is it
        certain that the client knows of the end. With ``waits=False`` it closes at once. If the client joined only now, the
        driver may take no message for it yet, not even the end. Then the publication stays open as well, in any case.
        """
        exchange = self.exchange
        listens = False
        if exchange is not None and not self.lifetime.expired(now_ns):
            with suppress(MainstemError):
                exchange.take_images()
            listens = exchange.peer_listens
        if self._owes_end:
            with self.changed:
                self._owes_end = listens and not self._say_end()
        return not self._owes_end and self._streams.close(listens=listens and waits)

    def abandon(self) -> None:
        """Close the streams without waiting."""
        self._streams.abandon()

    def __repr__(self) -> str:
        ports = (self.response.port, self.response.control_port)
        return f"<Session {self.session_id} of {self.address} on {ports}, {self.state.name.lower()}>"
