"""The server's state and duty cycle, without threads, clock or sockets (docs/protocols/duologue.md, 4.4)."""

from __future__ import annotations

import logging
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._internal.address_prefixes import address_of
from mainstem._internal.clock import NS_PER_SECOND, seconds_ns
from mainstem.aeron.admission import RateLimit
from mainstem.duologue import messages
from mainstem.duologue.messages import MAX_TEXT_LENGTH, SAYS_END, Connect, Hello, Refusal, SealedHello
from mainstem.duologue.session import DuologueState, Session, Unlocked
from mainstem.duologue.settings import FIRST_SESSION_ID, LAST_SESSION_ID
from mainstem.duologue.stats import ServerStats
from mainstem.duologue.streams import Outbox, driver_lost
from mainstem.errors import BackPressured, ClosedError, ConnectionLost, MainstemError, OfferError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.subscription import Image, Subscription
    from mainstem.duologue.channels import ServerChannels
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.session import Condition
    from mainstem.duologue.settings import Settings


# -- the all-clients channel -------------------------------------------------------------------------------------------


UNFRAGMENTED = 0xC0
MESSAGES_AT_ONCE = 10  # per duty cycle, so that a flood of HELLOs leaves time for clients that have joined
# Requests that are processed per stream. A client whose request was refused may try again, but not forever.
MAX_REQUESTS = 4


@dataclass(slots=True)
class Handshake:
    """A client on the all-clients channel."""

    image: Image
    address: str
    since_ns: int
    requests: int = 0
    says_end: bool = False


class Handshakes:
    """The clients on the all-clients channel, by session id. Image handlers run in the conductor's thread, so they only queue."""

    def __init__(self, settings: Settings, stats: ServerStats) -> None:
        self._stats = stats
        self._timeout_ns = seconds_ns(settings.handshake_timeout)
        self._max_term_length = settings.max_term_length
        self._changes: deque[tuple[bool, Image]] = deque()
        self._clients: dict[int, Handshake] = {}

    def on_available(self, image: Image) -> None:
        self._changes.append((True, image))

    def on_unavailable(self, image: Image) -> None:
        self._changes.append((False, image))

    def do_work(self, subscription: Subscription, now_ns: int, on_request: Callable[[Handshake, bytes], None]) -> int:
        """Run one duty cycle. Calls ``on_request`` with every request to process."""
        work = self._take_changes(now_ns)
        work += subscription.poll(lambda fragment: self._on_fragment(fragment, now_ns, on_request), MESSAGES_AT_ONCE)
        silent = [each for each in self._clients.values() if now_ns - each.since_ns >= self._timeout_ns]
        for client in silent:
            self.refuse(client, "nothing more to say here")
        return work

    def _take_changes(self, now_ns: int) -> int:
        work = 0
        while self._changes:
            available, image = self._changes.popleft()
            work += 1
            if not available:
                client = self._clients.get(image.session_id)
                if client is not None and client.image is image:
                    del self._clients[image.session_id]
                continue
            self._stats.handshakes += 1
            client = Handshake(image, address_of(image.source_identity), now_ns)
            self._clients[image.session_id] = client
            if image.term_length > self._max_term_length:
                self.refuse(client, f"a term of {image.term_length} bytes is too long")
        return work

    def _on_fragment(self, fragment: Fragment, now_ns: int, on_request: Callable[[Handshake, bytes], None]) -> None:
        # The image's handler ran before this first message could be polled, but perhaps after the queue was emptied above.
        self._take_changes(now_ns)
        client = self._clients.get(fragment.header.session_id)
        if client is None:
            return
        client.requests += 1
        if client.requests > MAX_REQUESTS:
            self.refuse(client, "too many requests")
            return
        client.since_ns = now_ns
        client.says_end = fragment.header.reserved_value == SAYS_END
        # A message of several frames cannot be a HELLO, and is never reassembled.
        whole = fragment.header.flags & UNFRAGMENTED == UNFRAGMENTED and len(fragment) <= MAX_TEXT_LENGTH
        on_request(client, bytes(fragment) if whole else b"")

    def refuse(self, client: Handshake, reason: str) -> None:
        """Ask the driver to end the client's stream."""
        if self._clients.get(client.image.session_id) is client:
            del self._clients[client.image.session_id]
        self._stats.handshakes_refused += 1
        if not client.image.closed:
            # Under a flood, the driver may be behind with its commands. The stream then ends later by itself.
            with suppress(MainstemError):
                client.image.async_reject(reason)


# -- ports -------------------------------------------------------------------------------------------------------------


class PortAllocator:
    """An allocator of random ports. It needs O(n) memory for n ports, and O(1) time to allocate or release one."""

    def __init__(self, ports: range, rng: Random) -> None:
        self._rng = rng
        self._free = list(ports)
        self.in_use: set[int] = set()

    @property
    def free_count(self) -> int:
        return len(self._free)

    def allocate(self) -> int:
        """Allocate a random free port. The caller must ensure that one is free."""
        free = self._free
        chosen = self._rng.randrange(len(free))
        free[chosen], free[-1] = free[-1], free[chosen]
        port = free.pop()
        self.in_use.add(port)
        return port

    def release(self, port: int) -> None:
        self.in_use.remove(port)
        self._free.append(port)


logger = logging.getLogger("mainstem.duologue")

# -- the server --------------------------------------------------------------------------------------------------------

# When the server is full, a new client may replace a duologue that no client has joined, once it is this old. A well-behaved client
# joins within a few round trips.
GRACE_NS = NS_PER_SECOND

State = DuologueState
ALIVE = (State.OPENING, State.WAITING, State.JOINED, State.LEFT, State.CLOSING)


class ServerCore:
    """A server that uses a client of a media driver, without threads or clock.

    One thread runs the duty cycles and calls ``on_open`` with the session of each client that joined. Any thread may call
    `broadcast`, and may use a `Session` while it holds its ``changed``. ``rng`` must be cryptographically secure, except in a
    simulation. ``condition`` makes each session's lock.
    """

    def __init__(
        self,
        aeron: Aeron,
        channels: ServerChannels,
        on_open: Callable[[Session], None],
        *,
        rng: Random,
        key: ServerKey | None = None,
        condition: Callable[[], Condition] = Unlocked,
    ) -> None:
        self.channels = channels
        self.settings = settings = channels.settings
        self.stats = ServerStats()
        self._aeron = aeron
        self._on_open = on_open
        self._rng = rng
        self._key = key
        self._condition = condition
        # Each half of the range has one use. If a port's last stream lingers in the driver, the port can be reused for the same
        # purpose at once, but not for the other.
        middle = channels.base_port + settings.max_clients
        self._ports = PortAllocator(range(channels.base_port, middle), rng)
        self._control_ports = PortAllocator(range(middle, middle + settings.max_clients), rng)
        self._clients = Counter[str]()  # by address prefix
        self._rate = RateLimit(settings.hello_rate, settings.burst)
        self._handshakes = Handshakes(settings, self.stats)
        self._sessions: dict[int, Session] = {}  # kept until their streams are closed and their handlers have returned
        self._is_accepting = True
        self._now_ns = 0
        self._publication = aeron.add_publication(channels.publication(), settings.stream_id)
        self._outbox = Outbox(self._publication, name="all clients", reserved_value=SAYS_END)
        self._subscription = aeron.add_subscription(
            channels.subscription(),
            settings.stream_id,
            on_available_image=self._handshakes.on_available,
            on_unavailable_image=self._handshakes.on_unavailable,
        )

    def leave_to_parent(self) -> None:
        """Leave the duologues to the parent of this process, which was forked."""
        for session in list(self._sessions.values()):
            session.leave_to_parent()

    @property
    def sessions(self) -> list[Session]:
        return self._having_state(State.JOINED)

    @property
    def ports_in_use(self) -> set[int]:
        return self._ports.in_use | self._control_ports.in_use

    @property
    def sessions_in_use(self) -> set[int]:
        return set(self._sessions)

    @property
    def max_message_length(self) -> int:
        """The maximum message length in either direction, in bytes. Any thread may read it."""
        return messages.longest_message(self.settings.term_length, is_encrypted=self._key is not None)

    def broadcast(self, message: bytes | str) -> None:
        """Send a message to every connected client. If a client's queue is full, skip it and end its duologue soon."""
        data = messages.checked_message(message, self.max_message_length)
        for session in self.sessions:
            try:
                with session.changed:
                    session.queue(data)
            except (OfferError, ClosedError, ConnectionLost) as error:
                logger.debug("[%d] left out of a broadcast: %s", session.session_id, error)

    def stop_accepting(self) -> None:
        self._is_accepting = False

    def do_work(self, now_ns: int) -> int:
        """Run one duty cycle. Returns how much work was done. Raises ConnectionLost once the driver is gone."""
        self._now_ns = now_ns
        if self._aeron.closed:
            raise driver_lost(self._aeron)
        work = self._handshakes.do_work(self._subscription, now_ns, self._on_request)
        work += self._send_responses(now_ns)
        for session in self._having_state(*ALIVE):
            before = session.state
            done, reason = session.do_work(now_ns, self._on_joined)
            work += done
            if before is State.OPENING and session.state is State.WAITING:
                self._respond(session.response)
            if reason:
                self._end(session, reason)
        self.release(now_ns)
        return work

    def _having_state(self, *states: State) -> list[Session]:
        return [each for each in list(self._sessions.values()) if each.state in states]

    def _on_joined(self, session: Session) -> None:
        self.stats.duologues_joined += 1
        logger.debug("[%d] client %s joined", session.session_id, session.address)
        self._on_open(session)

    def _send_responses(self, now_ns: int) -> int:
        try:
            return self._outbox.do_work(now_ns)
        except OfferError as error:
            logger.debug("a response was given up: %s", error)
            self.stats.responses_lost += 1
            self._outbox.drop_first()
            return 1

    # -- requests --------------------------------------------------------------------------------------------------

    def _on_request(self, client: Handshake, text: bytes) -> None:
        session_id = client.image.session_id
        prefix = self.settings.prefixes.prefix_of(client.address)
        self.stats.hellos += 1
        if not self._rate.take(prefix, self._now_ns):
            self.stats.hellos_ignored += 1
            return
        logger.debug("[%d] received from %s: %r", session_id, client.address, text[:80])
        try:
            hello = messages.parse_hello(text, client.address)
            key, secret = self._unseal(hello)
        except RemoteProtocolError as error:
            self.stats.bad_hellos += 1
            logger.debug("[%d] %s", session_id, error)
            self._respond(Refusal(session_id, messages.BAD_MESSAGE))
            self._handshakes.refuse(client, messages.BAD_MESSAGE)
            return
        refused = self._reason_to_refuse(hello, prefix) or self._open(client, prefix, hello, key, secret)
        if refused:
            self._respond(Refusal(session_id, refused))

    def _unseal(self, hello: Hello | SealedHello) -> tuple[int, bytes]:
        if isinstance(hello, Hello):
            return hello.key, b""
        return (0, b"") if self._key is None else self._key._open_hello(hello)

    def _reason_to_refuse(self, hello: Hello | SealedHello, prefix: str) -> str:
        if isinstance(hello, Hello) and self._key is not None:
            return messages.ENCRYPTION_REQUIRED
        if isinstance(hello, SealedHello) and self._key is None:
            return messages.ENCRYPTION_NOT_OFFERED
        if not self._is_accepting:
            return messages.SHUTTING_DOWN
        if not self._ports.free_count and not self._evict():
            self.stats.refused_full += 1
            return messages.SERVER_FULL
        if self._clients[prefix] >= self.settings.max_clients_per_address:
            self.stats.refused_address += 1
            return messages.TOO_MANY_CONNECTIONS
        return ""

    def _evict(self) -> bool:
        """End the oldest duologue that no client has joined, if it is older than ``GRACE_NS``. Returns False if there is none."""
        waiting = self._having_state(State.WAITING)
        oldest = min(waiting, key=lambda each: each.lifetime.since_ns, default=None)
        if oldest is None or self._now_ns - oldest.lifetime.since_ns < GRACE_NS:
            return False
        self.stats.duologues_evicted += 1
        self._end(oldest, "nobody joined, and the server is full")
        oldest.abandon()
        self._give_back(oldest)
        return True

    def _open(self, client: Handshake, prefix: str, hello: Hello | SealedHello, key: int, secret: bytes) -> str:
        """Open a duologue. Returns the reason if that is impossible."""
        port, control_port = self._ports.allocate(), self._control_ports.allocate()
        while (duologue_session := self._rng.randint(FIRST_SESSION_ID, LAST_SESSION_ID)) in self._sessions:
            pass
        logger.debug(
            "creating new duologue at %s (%d, %d) session %d for %s",
            self.channels.host,
            port,
            control_port,
            duologue_session,
            client.address,
        )
        encrypted = messages.encrypt_session(duologue_session, key)
        response = Connect(client.image.session_id, port, control_port, encrypted)
        ciphers = None
        if isinstance(hello, SealedHello) and self._key is not None:
            response, ciphers = self._key._respond(
                response, hello, secret, duologue_session=duologue_session, rng=self._rng
            )
        try:
            session = Session(
                self._aeron,
                self.channels,
                response=response,
                session_id=duologue_session,
                address=client.address,
                prefix=prefix,
                now_ns=self._now_ns,
                changed=self._condition(),
            )
        except MainstemError as error:
            logger.debug("[%d] duologue not opened: %s", duologue_session, error)
            self._ports.release(port)
            self._control_ports.release(control_port)
            return messages.INTERNAL_ERROR
        session.ciphers = ciphers
        session.peer_says_end = client.says_end or ciphers is not None
        self._sessions[duologue_session] = session
        self._clients[prefix] += 1
        self.stats.duologues_opened += 1
        return ""

    def _respond(self, response: Connect | Refusal) -> None:
        text = response.encode()
        logger.debug("send: %s", text.decode(errors="replace"))
        try:
            self._outbox.queue(text, self._now_ns)
        except BackPressured:
            self.stats.responses_lost += 1

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, session: Session, reason: str) -> None:
        if session.state is State.OPENING:
            self._respond(Refusal(session.response.session_id, messages.INTERNAL_ERROR))
        self.stats.duologues_closed += 1
        self.stats.bad_messages += session.bad_messages
        session.end(reason, self._now_ns)
        logger.debug("[%d] duologue ended: %s", session.session_id, session.reason)

    def _give_back(self, session: Session) -> None:
        del self._sessions[session.session_id]
        self._ports.release(session.response.port)
        self._control_ports.release(session.response.control_port)
        self._clients[session.prefix] -= 1
        if not self._clients[session.prefix]:
            del self._clients[session.prefix]

    def abort(self) -> None:
        for session in self.sessions:
            with session.changed:
                session.abort()

    def close(self, error: MainstemError | None = None) -> None:
        """End every duologue, with ``error`` if it is given, and the all-clients channel. Idempotent."""
        for session in self._having_state(*ALIVE):
            session.error = error
            self._end(session, "the server was closed")
        self.release(self._now_ns)
        with suppress(MainstemError):
            self._publication.close()
            self._subscription.close()

    def release(self, now_ns: int, *, waits: bool = True) -> bool:
        """Free ended duologues whose handlers have returned. Returns True once all of their streams are closed."""
        all_closed = True
        for session in self._having_state(State.CLOSED):
            is_closed = session.release(now_ns, waits=waits)
            all_closed &= is_closed
            if is_closed and not session.has_handler:
                self._give_back(session)
        return all_closed

    def abandon(self) -> None:
        """Free everything that remains after `close`, without waiting for clients or handlers."""
        for session in list(self._sessions.values()):
            session.abandon()
            self._give_back(session)
