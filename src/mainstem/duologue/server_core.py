"""The duologue server's state and duty cycle (docs/protocols/duologue.md, 4.4): no thread, no clock and no socket of its own."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstem.clock import NS_PER_SECOND, seconds_ns
from mainstem.duologue import messages
from mainstem.duologue.handshake import Handshake, Handshakes
from mainstem.duologue.limits import Quota, RateLimit, checked_message, longest_message
from mainstem.duologue.messages import Connect, Hello, Refusal, SealedHello, encrypt_session, parse_hello
from mainstem.duologue.outbox import Outbox
from mainstem.duologue.port_allocator import PortAllocator, SessionAllocator
from mainstem.duologue.session import Duologue
from mainstem.duologue.state import DuologueState, Lifetime
from mainstem.duologue.stats import ServerStats
from mainstem.errors import BackPressured, ClosedError, MainstemError, OfferError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.publication import Publication
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.duologue.crypto import ServerKey
    from mainstem.duologue.handler import Handler
    from mainstem.duologue.settings import ServerSettings

logger = logging.getLogger("mainstem.duologue.server")

# A duologue that no client has joined gives way to a new client of a full server once it is this old: an honest client
# joins within a few round trips.
GRACE_NS = NS_PER_SECOND


class ServerCore:
    """A server over a client of a media driver, without thread or clock.

    Everything but the image handlers belongs to one thread, which is asserted.

    Args:
        aeron: The client of the media driver.
        settings: The server's settings.
        handler: What is called for clients and their messages.
        chance: Makes session ids that cannot be guessed: a cryptographic generator, except in a simulation.
        key: The server's key pair, which switches encryption on.
        assert_thread: Raises in any other thread than the server's.

    Raises:
        RegistrationError: The driver cannot bind an address.

    Example:
        >>> core = ServerCore(aeron, settings, Echo(), chance=random.SystemRandom(), assert_thread=lambda: None)
        >>> while True:
        ...     core.do_work(time.monotonic_ns())
    """

    def __init__(
        self,
        aeron: Aeron,
        settings: ServerSettings,
        handler: Handler,
        *,
        chance: Random,
        key: ServerKey | None = None,
        assert_thread: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.stats = ServerStats()
        self._aeron = aeron
        self._handler = handler
        self._chance = chance
        self._key = key
        self._assert_thread = assert_thread
        # Each half of the range has one use: a port whose last stream lingers in the driver can be taken for the same use
        # again at once, but not for the other.
        half = settings.max_clients
        self._ports = PortAllocator(settings.base_port, half, chance)
        self._control_ports = PortAllocator(settings.base_port + half, half, chance)
        self._sessions = SessionAllocator(chance)
        self._quota = Quota(settings.max_per_address)
        self._rate = RateLimit(settings.hello_rate, settings.burst)
        self._handshakes = Handshakes(settings, self.stats, timeout_ns=seconds_ns(settings.handshake_timeout))
        self._duologues: dict[int, Duologue] = {}
        self._releasing: list[Duologue] = []
        self._calls: deque[Callable[[], object]] = deque()
        self._is_closed = False
        self._now_ns = 0
        self._publication: Publication = aeron.add_publication(settings.initial_publication, settings.stream_id)
        self._outbox = Outbox(self._publication, name="all clients")
        self._subscription: Subscription = aeron.add_subscription(
            settings.initial_subscription,
            settings.stream_id,
            on_available_image=self._handshakes.on_available,
            on_unavailable_image=self._handshakes.on_unavailable,
        )

    @property
    def duologues(self) -> list[Duologue]:
        """The duologues whose clients are there."""
        self._assert_thread()
        return [each for each in self._duologues.values() if each.is_open]

    @property
    def ports_in_use(self) -> frozenset[int]:
        """The ports of all duologues, also of those that no client has joined."""
        return self._ports.in_use | self._control_ports.in_use

    @property
    def sessions_in_use(self) -> frozenset[int]:
        """The session ids of all duologues."""
        return self._sessions.in_use

    def call_soon(self, function: Callable[[], object]) -> None:
        """Run a function in the server's thread, in its next duty cycle. The only method that other threads may call.

        What was taken before the server ends is run, at the latest by `close`.

        Args:
            function: Called without arguments; its result is dropped.

        Raises:
            ClosedError: The server has ended.

        Example:
            >>> core.call_soon(lambda: print(core.duologues))
        """
        self._calls.append(function)
        # Read after the append: a close that comes later finds the function in the queue.
        if self._is_closed:
            with suppress(ValueError):  # the close has run it
                self._calls.remove(function)
                raise ClosedError("the server has ended")

    @property
    def max_message_length(self) -> int:
        """The longest message in either direction, in bytes. May be read in any thread."""
        return longest_message(self.settings.term_length, is_encrypted=self._key is not None)

    def broadcast(self, message: bytes | str) -> None:
        """Send a message to every client that is there. A client whose queue is full is left out, and about to be ended.

        Args:
            message: At most ``max_message_length`` bytes; text is encoded as UTF-8.

        Raises:
            ValueError: The message is too long.
            TypeError: The message is neither text nor a bytes-like object.

        Example:
            >>> core.broadcast("the server ends at noon")
        """
        data = checked_message(message, self.max_message_length)
        for duologue in self.duologues:
            try:
                duologue.send(data)
            except (OfferError, ClosedError) as error:
                logger.debug("[%d] left out of a broadcast: %s", duologue.session_id, error)

    def do_work(self, now_ns: int) -> int:
        """Run one duty cycle.

        Args:
            now_ns: The monotonic time, in nanoseconds.

        Returns:
            How much was done; 0 for nothing.

        Raises:
            ClosedError: The client of the driver was closed.
            DriverTimeout: The driver has ended.
            LocalProtocolError: Another thread than the server's calls.

        Example:
            >>> core.do_work(time.monotonic_ns())
        """
        self._assert_thread()
        self._now_ns = now_ns
        if self._aeron.closed:
            raise self._aeron.error or ClosedError("the client of the media driver was closed")
        work = self._run_calls()
        work += self._handshakes.do_work(self._subscription, now_ns, self._on_request)
        work += self._send_responses(now_ns)
        for duologue in list(self._duologues.values()):
            before = duologue.state
            done, reason = duologue.do_work(now_ns, self._handler)
            work += done
            if duologue.state is DuologueState.JOINED and before is DuologueState.WAITING:
                self.stats.duologues_joined += 1
                logger.debug("[%d] client %s joined", duologue.session_id, duologue.owner)
            if reason:
                self._end(duologue, reason)
        for duologue in [each for each in self._releasing if each.release(now_ns)]:
            self._releasing.remove(duologue)
            self._give_back(duologue)
        return work

    def _run_calls(self) -> int:
        work = 0
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception:
                logger.exception("a call into the server's thread failed")
            work += 1
        return work

    def _send_responses(self, now_ns: int) -> int:
        try:
            return self._outbox.do_work(now_ns)
        except OfferError as error:
            logger.debug("a response was given up: %s", error)
            self.stats.answers_lost += 1
            self._outbox.drop_first()
            return 1

    # -- requests --------------------------------------------------------------------------------------------------

    def _on_request(self, client: Handshake, text: bytes) -> None:
        session_id = client.image.session_id
        prefix = self.settings.prefixes.of(client.address)
        self.stats.hellos += 1
        if not self._rate.take(prefix, self._now_ns):
            self.stats.hellos_ignored += 1
            return
        logger.debug("[%d] received from %s: %r", session_id, client.address, text[:80])
        try:
            hello = parse_hello(text, client.address)
            key, secret = self._unseal(hello)
        except RemoteProtocolError as error:
            self.stats.bad_hellos += 1
            logger.debug("[%d] %s", session_id, error)
            self._respond(Refusal(session_id, messages.BAD_MESSAGE))
            self._handshakes.refuse(client, messages.BAD_MESSAGE)
            return
        refused = self._reason_to_refuse(hello, prefix)
        if refused:
            self._respond(Refusal(session_id, refused))
            return
        self._open(client, prefix, hello, key, secret)

    def _unseal(self, hello: Hello | SealedHello) -> tuple[int, bytes]:
        if isinstance(hello, Hello):
            return hello.key, b""
        return (0, b"") if self._key is None else self._key.open_hello(hello)

    def _reason_to_refuse(self, hello: Hello | SealedHello, prefix: str) -> str:
        if isinstance(hello, Hello) and self._key is not None:
            return messages.ENCRYPTION_REQUIRED
        if isinstance(hello, SealedHello) and self._key is None:
            return messages.ENCRYPTION_NOT_OFFERED
        if not self._ports.free_count and not self._evict():
            self.stats.refused_full += 1
            return messages.SERVER_FULL
        if self._quota.count(prefix) >= self._quota.limit:
            self.stats.refused_address += 1
            return messages.TOO_MANY_CONNECTIONS
        return ""

    def _evict(self) -> bool:
        """End the oldest duologue that no client has joined, if it had its chance; False where there is none."""
        waiting = [
            each
            for each in self._duologues.values()
            if each.state is DuologueState.WAITING and self._now_ns - each.lifetime.since_ns >= GRACE_NS
        ]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda each: each.lifetime.since_ns)
        self.stats.duologues_evicted += 1
        self._end(oldest, "nobody joined, and the server is full")
        is_released = oldest.release(self._now_ns)
        assert is_released, "a duologue that waits for its client has both of its streams"
        self._releasing.remove(oldest)
        self._give_back(oldest)
        return True

    def _open(self, client: Handshake, prefix: str, hello: Hello | SealedHello, key: int, secret: bytes) -> None:
        ports = (self._ports.allocate(), self._control_ports.allocate())
        duologue_session = self._sessions.allocate()
        assert ports[0] is not None
        assert ports[1] is not None
        assert duologue_session is not None
        self._quota.take(prefix)
        settings = self.settings
        duologue = Duologue(
            settings,
            owner=client.address,
            prefix=prefix,
            session_id=duologue_session,
            ports=(ports[0], ports[1]),
            lifetime=Lifetime(
                join_ns=seconds_ns(settings.join_timeout),
                left_ns=seconds_ns(settings.left_timeout),
                silence_ns=None if settings.idle_timeout is None else seconds_ns(settings.idle_timeout),
                closing_ns=seconds_ns(settings.closing_timeout),
                now_ns=self._now_ns,
            ),
            assert_thread=self._assert_thread,
        )
        self._duologues[duologue_session] = duologue
        self.stats.duologues_opened += 1
        logger.debug(
            "creating new duologue at %s %s session %d for %s",
            settings.address,
            ports,
            duologue_session,
            client.address,
        )
        session_id = client.image.session_id
        response = Connect(session_id, ports[0], ports[1], encrypt_session(duologue_session, key))
        if isinstance(hello, SealedHello) and self._key is not None:
            response, duologue.ciphers = self._key.respond(
                response, hello, secret, duologue_session=duologue_session, chance=self._chance
            )
        # The client receives the response once there is something to join.
        duologue.on_ready = lambda: self._respond(response)
        duologue.on_failed = lambda: self._respond(Refusal(session_id, messages.INTERNAL_ERROR))
        try:
            duologue.begin(self._aeron)
        except MainstemError as error:
            self._end(duologue, str(error))

    def _respond(self, response: Connect | Refusal) -> None:
        text = response.encode()
        logger.debug("send: %s", text.decode(errors="replace"))
        try:
            self._outbox.send(text, self._now_ns)
        except BackPressured:
            self.stats.answers_lost += 1

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, duologue: Duologue, reason: str) -> None:
        if duologue.state is DuologueState.OPENING and duologue.on_failed is not None:
            duologue.on_failed()
        joined = duologue.state in (DuologueState.JOINED, DuologueState.LEFT, DuologueState.CLOSING)
        logger.debug("[%d] duologue ended: %s", duologue.session_id, reason)
        self._duologues.pop(duologue.session_id, None)
        self.stats.duologues_closed += 1
        self.stats.bad_messages += duologue.bad_messages
        duologue.lifetime.move(DuologueState.CLOSED, self._now_ns)
        self._releasing.append(duologue)
        if joined:
            try:
                self._handler.on_close(duologue, reason)
            except Exception:
                logger.exception("[%d] the handler failed", duologue.session_id)

    def _give_back(self, duologue: Duologue) -> None:
        port, control_port = duologue.ports
        self._ports.release(port)
        self._control_ports.release(control_port)
        self._sessions.release(duologue.session_id)
        self._quota.give_back(duologue.prefix)

    def close(self, reason: str = "the server was closed") -> None:
        """Run the calls that wait, then end every duologue and both streams of the all-clients channel. May be called again.

        Args:
            reason: Why, which the handler receives.

        Example:
            >>> core.close()
        """
        self._is_closed = True
        self._run_calls()
        for duologue in list(self._duologues.values()):
            self._end(duologue, reason)
        self._releasing = [each for each in self._releasing if not each.release(self._now_ns)]
        with suppress(MainstemError):
            self._publication.close()
            self._subscription.close()
