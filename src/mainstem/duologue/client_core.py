"""The duologue client's steps and duty cycle: no thread, no clock and no socket of its own.

See docs/protocols/duologue.md, 4.4 and 4.6.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING

from mainstem._internal.clock import seconds_ns
from mainstem.duologue.limits import longest_message
from mainstem.duologue.messages import KEY_BITS, Connect, Hello, decrypt_session, error_of, parse_response
from mainstem.duologue.stats import DuologueStats
from mainstem.duologue.streams import Exchange, StreamPair
from mainstem.errors import (
    ClosedError,
    ConnectRefused,
    ConnectTimeout,
    Delivery,
    MainstemError,
    RemoteProtocolError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.client import Aeron
    from mainstem.duologue.channels import ClientChannels
    from mainstem.duologue.crypto import Ciphers, ClientHandshake

logger = logging.getLogger("mainstem.duologue.client")

RESPONSES_AT_ONCE = 10  # of the all-clients channel, most of which are meant for others
MESSAGES_AT_ONCE = 64


class Step(Enum):
    """The steps of connecting; the value is what the step waits for."""

    INTRODUCE = "the driver opens the all-clients channel"
    REACH = "the server's all-clients channel is reached"
    ASK = "the server responds to HELLO"
    OPEN = "the driver opens the duologue"
    JOIN = "the server's duologue is reached"
    TALK = "nothing: the duologue is open"
    CLOSED = "nothing: the duologue is closed"


class ClientCore:
    """One client of a duologue server, without thread, clock or socket.

    ``do_work`` until ``is_open``, then ``offer``, ``receive`` and ``do_work``.

    ``rng`` is a cryptographic generator, except in a simulation. Each step of connecting may take ``timeout`` seconds.
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
        self.channels = channels
        self.step = Step.INTRODUCE
        self.duologue_session = 0
        self.error: MainstemError | None = None
        self.has_told = False  # whether `offer` or `receive` has raised it
        self._aeron = aeron
        self._timeout = timeout
        self._since_ns = now_ns
        self.peer = channels.name
        self._key = rng.getrandbits(KEY_BITS)
        self._handshake: ClientHandshake | None = None
        if server_key:
            from mainstem.duologue.crypto import ClientHandshake

            self._handshake = ClientHandshake(server_key, self._key, rng)
        self._ciphers: Ciphers | None = None
        self._response: Connect | None = None
        self._has_asked = self._is_finishing = False
        self._pairs: list[StreamPair] = []
        self._all_clients = self._pair(channels.subscription(), channels.publication())
        self._duologue: StreamPair | None = None
        self._exchange: Exchange | None = None

    def _pair(self, subscription: str, publication: str) -> StreamPair:
        pair = StreamPair(self._aeron, subscription, publication, self.channels.settings.stream_id)
        self._pairs.append(pair)
        return pair

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent and received."""
        return self.step is Step.TALK

    @property
    def session_id(self) -> int:
        """The session of the stream on the all-clients channel, and then of the duologue's; 0 while there is none."""
        if self.duologue_session:
            return self.duologue_session
        publication = self._all_clients.publication
        return 0 if publication is None else publication.session_id

    @property
    def max_message_length(self) -> int:
        """The longest message that can be sent, in bytes."""
        return longest_message(self.channels.settings.term_length, is_encrypted=self._ciphers is not None)

    def stats(self) -> DuologueStats:
        return DuologueStats() if self._exchange is None else self._exchange.stats()

    def do_work(self, now_ns: int) -> int:
        """Run one duty cycle, and return how much was done.

        While it opens, what fails is raised: ConnectTimeout, ConnectRefused, RemoteProtocolError, RegistrationError. What ends
        the open duologue becomes its ``error``, which `offer` raises, and `receive` once all messages are taken.
        """
        if self.error is not None or self.step is Step.CLOSED:
            return 0
        try:
            if self._aeron.closed:
                raise self._aeron.error or ClosedError("the client of the media driver was closed")
            work = self._STEPS[self.step](self, now_ns)
        except MainstemError as error:
            self.error = error
            if self.is_open:
                return 1
            raise
        timeout = self._timeout
        if timeout is not None and self.step is not Step.TALK and now_ns - self._since_ns >= seconds_ns(timeout):
            self.error = ConnectTimeout(
                f"{self.peer}: timed out after {timeout:g} s waiting until {self.step.value}",
                step=self.step.value,
                timeout=timeout,
            )
            raise self.error
        return work

    def _enter(self, step: Step, now_ns: int) -> int:
        logger.debug("[%d] %s", self.session_id, self._REACHED[step])
        self.step = step
        self._since_ns = now_ns
        return 1

    # -- the steps -------------------------------------------------------------------------------------------------

    def _introduce(self, now_ns: int) -> int:
        return self._enter(Step.REACH, now_ns) if self._all_clients.is_ready else 0

    def _reach(self, now_ns: int) -> int:
        if not self._all_clients.is_connected:
            return 0
        return self._enter(Step.ASK, now_ns)

    def _ask(self, now_ns: int) -> int:
        subscription, publication = self._all_clients.subscription, self._all_clients.publication
        assert subscription is not None
        assert publication is not None
        if not self._has_asked:
            hello = Hello(self._key) if self._handshake is None else self._handshake.hello
            self._has_asked = publication.offer(hello.encode()) > 0
            if self._has_asked:
                logger.debug("[%d] send: HELLO", self.session_id)
        work = subscription.poll_messages(self._on_response, RESPONSES_AT_ONCE)
        if self._response is None:
            return work
        self._accept(self._response)
        return self._enter(Step.OPEN, now_ns)

    def _on_response(self, fragment: Fragment) -> None:
        if self._response is not None:
            return
        try:
            response = parse_response(bytes(fragment), self.peer)
        except RemoteProtocolError as error:
            # Any sender that can reach this subscription can send anything; only what is meant for this session counts.
            logger.debug("[%d] ignored: %s", self.session_id, error)
            return
        if response.session_id != self.session_id:
            return
        if isinstance(response, Connect):
            self._response = response
        else:
            raise ConnectRefused(
                f"{self.peer} refused this client: {response.message}",
                reason=response.message,
                peer=self.peer,
                delivery=Delivery.NONE,
            )

    def _accept(self, response: Connect) -> None:
        session_id = decrypt_session(response.encrypted_session, self._key)
        logger.debug("[%d] connect %d %d", self.session_id, response.port, response.control_port)
        if self._handshake is not None:
            self._ciphers = self._handshake.finish(response, session_id)
        self._all_clients.close()
        self.duologue_session = session_id
        self._duologue = self._pair(
            self.channels.subscription(response.control_port, session_id),
            self.channels.publication(response.port, session_id),
        )

    def _open(self, now_ns: int) -> int:
        assert self._duologue is not None
        return self._enter(Step.JOIN, now_ns) if self._duologue.is_ready else 0

    def _join(self, now_ns: int) -> int:
        assert self._duologue is not None
        if not self._duologue.is_connected:
            return 0
        self._exchange = Exchange(
            self._duologue,
            peer=self.peer,
            name=f"duologue {self.duologue_session}",
            ciphers=self._ciphers,
            inspect=self._inspect,
        )
        return self._enter(Step.TALK, now_ns)

    def _talk(self, now_ns: int) -> int:  # noqa: ARG002 - a step
        duologue, exchange = self._duologue, self._exchange
        assert duologue is not None
        assert exchange is not None
        while duologue.arrivals:
            exchange.image = duologue.arrivals.popleft()
        if self._is_finishing:
            exchange.drop()
        work = exchange.poll(MESSAGES_AT_ONCE)
        exchange.check_peer()
        return work

    def _inspect(self, message: bytes) -> None:
        reason = error_of(message)
        if reason is not None:
            raise ConnectRefused(f"{self.peer} ended the duologue: {reason}", reason=reason, peer=self.peer)

    _STEPS: dict[Step, Callable[[ClientCore, int], int]] = {  # noqa: RUF012 - never changed
        Step.INTRODUCE: _introduce,
        Step.REACH: _reach,
        Step.ASK: _ask,
        Step.OPEN: _open,
        Step.JOIN: _join,
        Step.TALK: _talk,
    }
    _REACHED: dict[Step, str] = {  # noqa: RUF012 - never changed
        Step.REACH: "all-clients channel opened",
        Step.ASK: "initial subscription and publication connected, waiting for response",
        Step.OPEN: "opening the duologue",
        Step.JOIN: "duologue opened",
        Step.TALK: "CONNECT subscription and publication connected",
    }

    # -- the application's side ----------------------------------------------------------------------------------------

    def offer(self, message: bytes) -> bool:
        """Send a message if there is room for it. Raises what ended the duologue."""
        self._check_open()
        assert self._exchange is not None
        return self._exchange.outbox.offer(message)

    def receive(self) -> bytes | None:
        """Take the oldest message; None if there is none yet. Raises what ended the duologue, once all are taken."""
        message = None if self._exchange is None else self._exchange.take()
        if message is None:
            self._check_open()
        return message

    def _check_open(self) -> None:
        if not self.is_open or self.error is not None:
            self.has_told = True
            raise self.error or ClosedError(f"the duologue with {self.peer} is not open")

    def finish(self) -> None:
        """End the stream to the server, which ends the duologue in response once it has received everything.

        What comes from now on is dropped.
        """
        self._is_finishing = True
        if self.is_open and self._exchange is not None:
            self._exchange.publication.close()

    def abort(self) -> None:
        """End the duologue at once; the server learns that it was aborted."""
        if self.is_open and self._exchange is not None:
            self._exchange.publication.revoke()
        self.close()

    def close(self) -> bool:
        """Close both pairs of streams. False while the driver has not responded, and this is to be called again."""
        self.step = Step.CLOSED
        self._pairs = [pair for pair in self._pairs if not pair.close()]
        return not self._pairs
