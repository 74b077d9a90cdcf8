"""The steps and the duty cycle of a client, without threads, clock or sockets (docs/protocols/duologue.md, 4.4 and 4.6)."""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING

from mainstem._internal.clock import seconds_ns
from mainstem.duologue.messages import KEY_BITS, SAYS_END, Connect, Hello, decrypt_session, error_of, parse_response
from mainstem.duologue.streams import Exchange, Link, StreamPair, driver_lost
from mainstem.errors import ConnectRefused, ConnectTimeout, Delivery, MainstemError, RemoteProtocolError

if TYPE_CHECKING:
    from random import Random

    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.client import Aeron
    from mainstem.duologue.channels import ClientChannels
    from mainstem.duologue.crypto import ClientHandshake

logger = logging.getLogger("mainstem.duologue")

RESPONSES_AT_ONCE = 10  # on the all-clients channel; most are meant for other clients
MESSAGES_AT_ONCE = 64


class Step(Enum):
    """The steps of connecting, in order. The value says what the step waits for."""

    OPEN_ALL_CLIENTS = "the driver opens the all-clients channel"
    REACH_SERVER = "the server's all-clients channel is reached"
    REQUEST = "the server responds to HELLO"
    OPEN_DUOLOGUE = "the driver opens the duologue"
    JOIN_DUOLOGUE = "the server's duologue is reached"
    READY = "nothing: the duologue is open"
    CLOSED = "nothing: the duologue is closed"


# The log message at the start of each step.
_REACHED = {
    Step.REACH_SERVER: "all-clients channel opened",
    Step.REQUEST: "initial subscription and publication connected, waiting for response",
    Step.OPEN_DUOLOGUE: "opening the duologue",
    Step.JOIN_DUOLOGUE: "duologue opened",
    Step.READY: "CONNECT subscription and publication connected",
}
_NEXT = dict(zip(list(Step), list(Step)[1:], strict=False))


class ClientCore(Link):
    """One client of a duologue server, without threads, clock or sockets.

    Call ``do_work`` until ``is_open`` is true, then ``offer``, ``receive`` and ``do_work``. ``rng`` must be cryptographically
    secure, except in a simulation. Each step of connecting may take up to ``timeout`` seconds.
    """

    def __init__(
        self,
        aeron: Aeron,
        channels: ClientChannels,
        *,
        rng: Random,
        now_ns: int,
        timeout: float | None = None,
        server_key: bytes = b"",
    ) -> None:
        super().__init__(channels.settings.term_length)
        self.channels = channels
        self.peer = channels.name
        self.step = Step.OPEN_ALL_CLIENTS
        self.duologue_session = 0
        self._aeron = aeron
        self._timeout = timeout
        self._since_ns = now_ns
        self._key = rng.getrandbits(KEY_BITS)
        self._handshake: ClientHandshake | None = None
        if server_key:
            from mainstem.duologue.crypto import ClientHandshake

            self._handshake = ClientHandshake(server_key, self._key, rng)
        self._response: Connect | None = None
        self._has_asked = self._is_finishing = False
        self._pairs: list[StreamPair] = []  # pairs that are not closed yet; the last one is in use
        self._add_pair(channels.subscription(), channels.publication())

    def _add_pair(self, subscription: str, publication: str) -> None:
        self._streams = StreamPair(self._aeron, subscription, publication, self.channels.settings.stream_id)
        self._pairs.append(self._streams)

    @property
    def is_open(self) -> bool:
        return self.step is Step.READY

    @property
    def _end(self) -> str:
        return f"the duologue with {self.peer} is not open"

    @property
    def session_id(self) -> int:
        """The session id of the duologue, or before it exists, that on the all-clients channel; 0 if there is neither."""
        if self.duologue_session:
            return self.duologue_session
        publication = self._streams.publication
        return 0 if publication is None else publication.session_id

    def do_work(self, now_ns: int) -> None:
        """Run one duty cycle.

        While connecting, it raises failures: ConnectTimeout, ConnectRefused, RemoteProtocolError, RegistrationError. An error that
        ends the open duologue becomes its ``error``. `offer` raises that at once, and `receive` once all messages are taken.
        """
        if self.error is not None or self.step is Step.CLOSED:
            return
        try:
            if self._aeron.closed:
                raise driver_lost(self._aeron)
            if self.exchange is not None:
                self._work_open(self.exchange, now_ns)
            elif self._is_step_done():
                self._advance(now_ns)
            elif self._timeout is not None and now_ns - self._since_ns >= seconds_ns(self._timeout):
                raise ConnectTimeout(
                    f"{self.peer}: timed out after {self._timeout:g} s waiting until {self.step.value}",
                    step=self.step.value,
                    timeout=self._timeout,
                )
        except MainstemError as error:
            self.error = error
            if not self.is_open:
                raise

    # -- the steps of connecting -----------------------------------------------------------------------------------

    def _is_step_done(self) -> bool:
        match self.step:
            case Step.OPEN_ALL_CLIENTS | Step.OPEN_DUOLOGUE:
                return self._streams.is_ready
            case Step.REQUEST:
                return self._request()
            case _:
                return self._streams.is_connected

    def _advance(self, now_ns: int) -> None:
        if self.step is Step.REQUEST:
            self._accept()
        elif self.step is Step.JOIN_DUOLOGUE:
            name = f"duologue {self.duologue_session}"
            self.exchange = Exchange(
                self._streams,
                peer=self.peer,
                name=name,
                ciphers=self.ciphers,
                inspect=self._inspect,
                says_end=self.peer_says_end,
            )
        self.step = _NEXT[self.step]
        logger.debug("[%d] %s", self.session_id, _REACHED[self.step])
        self._since_ns = now_ns

    def _request(self) -> bool:
        subscription, publication = self._streams.subscription, self._streams.publication
        assert subscription is not None
        assert publication is not None
        if not self._has_asked:
            hello = Hello(self._key) if self._handshake is None else self._handshake.hello
            self._has_asked = publication.offer(hello.encode(), reserved_value=SAYS_END) > 0
            if self._has_asked:
                logger.debug("[%d] send: HELLO", self.session_id)
        subscription.poll_messages(self._on_response, RESPONSES_AT_ONCE)
        return self._response is not None

    def _on_response(self, fragment: Fragment) -> None:
        if self._response is not None:
            return
        try:
            response = parse_response(bytes(fragment), self.peer)
        except RemoteProtocolError as error:
            # Anyone who can reach this subscription can send to it, so only messages for this session count.
            logger.debug("[%d] ignored: %s", self.session_id, error)
            return
        if response.session_id != self.session_id:
            return
        if isinstance(response, Connect):
            self._response = response
            self.peer_says_end = self._handshake is not None or fragment.header.reserved_value == SAYS_END
        else:
            raise ConnectRefused(
                f"{self.peer} refused this client: {response.message}",
                reason=response.message,
                peer=self.peer,
                delivery=Delivery.NONE,
            )

    def _accept(self) -> None:
        response = self._response
        assert response is not None
        session_id = decrypt_session(response.encrypted_session, self._key)
        logger.debug("[%d] connect %d %d", self.session_id, response.port, response.control_port)
        if self._handshake is not None:
            self.ciphers = self._handshake.finish(response, session_id)
        self._streams.close()
        self.duologue_session = session_id
        self._add_pair(
            self.channels.subscription(response.control_port, session_id),
            self.channels.publication(response.port, session_id),
        )

    # -- the open duologue -----------------------------------------------------------------------------------------

    def _work_open(self, exchange: Exchange, now_ns: int) -> None:
        exchange.take_images()
        if self._is_finishing:
            exchange.drop()
            self.finish()
        exchange.poll(MESSAGES_AT_ONCE)
        exchange.check_peer(now_ns, has_left=self._is_finishing)

    def _inspect(self, message: bytes) -> None:
        reason = error_of(message)
        if reason is not None:
            raise ConnectRefused(f"{self.peer} ended the duologue: {reason}", reason=reason, peer=self.peer)

    @property
    def unread(self) -> int:
        """How many messages the server has left unread, as it said with its end."""
        return 0 if self.exchange is None else self.exchange.unread

    def finish(self) -> None:
        """End the stream to the server, as soon as it has space for that. Later messages are dropped.

        The duologue ends once the server has received everything.
        """
        self._is_finishing = True
        if self.is_open and self.exchange is not None and self.exchange.say_end():
            self.exchange.publication.close()

    def abort(self) -> None:
        if self.is_open and self.exchange is not None:
            self.exchange.publication.revoke()
        self.close()

    def close(self) -> bool:
        """Close both pairs of streams. Returns False if the driver has not responded yet; call it again later."""
        self.step = Step.CLOSED
        self._pairs = [pair for pair in self._pairs if not pair.close()]
        return not self._pairs
