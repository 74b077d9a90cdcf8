"""Requests and replies for programs that wait: the blocking requester and responder."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

from mainstem.aeron.client.requests import (
    MAX_CLIENTS,
    MAX_IN_FLIGHT,
    RequesterState,
    ResponderState,
    Slot,
    response_mode,
    with_parameter,
)
from mainstem.amounts import check_whole
from mainstem.clock import NS_PER_SECOND
from mainstem.errors import MainstemError, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from mainstem._core.log.fragment import Message
    from mainstem.aeron.client.client import Aeron
    from mainstem.aeron.client.publication import ExclusivePublication

REPLY_TIMEOUT = 5.0  # seconds that a reply waits for room before the responder turns to the next request


class _Closable:
    _state: Any

    @property
    def closed(self) -> bool:
        """Whether it is closed, by ``close`` or with its client."""
        return bool(self._state.subscription.closed)

    @property
    def error(self) -> Exception | None:
        """What ended it without ``close``: a DriverTimeout or a ClientTimeout; else None."""
        return self._state.subscription.error  # type: ignore[no-any-return]

    def close(self) -> None:
        """Closes it with its publications and subscription. May be called twice.

        Example:
            >>> requester.close()
        """
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._state.subscription!r}>"


class Requester(_Closable):
    """Sends requests, and returns the reply to each. Any number of threads may call ``request``.

    Requests go over a publication, replies come over a response channel, and the reserved value of the frames carries the
    correlation id: the payload is the program's alone.

    Args:
        aeron: The client.
        channel: The channel of requests, as ``aeron:udp?endpoint=server:20121`` or ``aeron:ipc``.
        stream_id: Their stream id.
        response_channel: The channel of replies, as ``aeron:udp?control=server:20122`` or ``aeron:ipc``.
        response_stream_id: Their stream id.
        max_in_flight: How many requests may wait for their replies at once.

    Raises:
        ChannelUriError: A key of a channel is a likely typing error of a known one.
        RegistrationError: The driver refused.
        DriverTimeout: The driver did not respond in time.
        ConfigurationError: ``max_in_flight`` is no whole number of 1 at least.

    Example:
        >>> with Requester(aeron, "aeron:ipc", 1001, response_channel="aeron:ipc", response_stream_id=1002) as requester:
        ...     requester.request(b"price of XYZ", timeout=1.0)
    """

    def __init__(
        self,
        aeron: Aeron,
        channel: str,
        stream_id: int,
        *,
        response_channel: str,
        response_stream_id: int,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        check_whole({"max_in_flight": max_in_flight}, least=1)
        subscription = aeron.add_subscription(response_mode(response_channel), response_stream_id)
        try:
            channel = with_parameter(channel, f"response-correlation-id={subscription.registration_id}")
            publication = aeron.add_exclusive_publication(channel, stream_id)
        except BaseException:
            subscription.close()
            raise
        self._state: RequesterState = RequesterState(publication, subscription, max_in_flight)
        self._clock = aeron.context.clock
        self._lock = threading.Lock()

    @property
    def in_flight(self) -> int:
        """How many requests wait for their replies."""
        return len(self._state.slots)

    @property
    def late_responses(self) -> int:
        """How many replies came after their request had been given up, and were dropped."""
        return self._state.late_responses

    def request(self, payload: Any, *, timeout: float | None = None) -> bytes:
        """Sends a request and waits for its reply.

        Args:
            payload: The request, any buffer of bytes.
            timeout: Seconds for all of it, the wait for a connection included; None waits for ever.

        Returns:
            The reply.

        Raises:
            Timeout: The request was sent, and no reply came in time. The text says whether the responder is still connected; it may
                have received the request, so ``may_retry`` is false.
            NotConnected: No responder was connected in time: nothing was sent.
            BackPressured: There was no room in time, or ``max_in_flight`` requests wait already: nothing was sent.
            ClosedError: The requester is closed.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.

        Example:
            >>> reply = requester.request(b"price of XYZ", timeout=1.0)
        """
        state = self._state
        waiting = state.subscription._conductor.waiting(timeout)
        begin_ns = self._clock.monotonic_ns()
        slot: Slot | None = None
        try:
            with self._lock:
                slot = state.open_slot()
            self._send(payload, slot.correlation_id, timeout)
            if timeout is not None:
                timeout_left = timeout - (self._clock.monotonic_ns() - begin_ns) / NS_PER_SECOND
                waiting = state.subscription._conductor.waiting(max(timeout_left, 0.0))
            while slot.reply is None:
                # By `with` alone: between `acquire` and a `try` a signal handler may raise, and nobody would release the lock.
                if not self._lock.locked():
                    with self._lock:
                        state.poll()
                if slot.reply is None:
                    state.check_open()
                    if not waiting.step(state.subscription):
                        raise state.no_response(timeout)
            return slot.reply
        finally:
            if slot is not None:
                state.free(slot)

    def _send(self, payload: Any, correlation_id: int, timeout: float | None) -> None:
        # The publication is exclusive: one thread offers at a time.
        state = self._state
        waiting = state.subscription._conductor.waiting(timeout)
        while True:
            with self._lock:
                position = state.publication.offer(payload, reserved_value=correlation_id)
            if position > 0:
                return
            state.check_open()
            if not waiting.step():
                raise state.publication.offer_error(position, "request", f", for {timeout:g} s")


class Request:
    """One request that a responder received.

    Attributes:
        payload: The request.
        correlation_id: The reserved value of the request, which its reply has too.
        session_id: The requester's session id.
        source_identity: Where it came from: ``ip:port``, or ``aeron:ipc``.

    Example:
        >>> for request in responder.requests():
        ...     request.respond(request.payload.upper())
    """

    def __init__(self, message: Message, publication: ExclusivePublication) -> None:
        self.payload = message.payload
        self.correlation_id = message.reserved_value
        self.session_id = message.session_id
        self.source_identity = message.source_identity
        self._publication = publication

    def respond(self, payload: Any, *, timeout: float | None = REPLY_TIMEOUT) -> None:
        """Sends the reply.

        Args:
            payload: The reply, any buffer of bytes.
            timeout: Seconds to wait for room; None waits for ever.

        Raises:
            ClosedError: The requester has gone, or the responder is closed.
            NotConnected: The requester has gone.
            BackPressured: The requester does not read its replies.

        Example:
            >>> request.respond(b"42")
        """
        self._publication.send(payload, timeout=timeout, reserved_value=self.correlation_id)

    def __repr__(self) -> str:
        return f"<Request {self.correlation_id} of {len(self.payload)} bytes from {self.source_identity}>"


class Responder(_Closable):
    """Receives requests, and replies to each requester over a publication of its own. One thread uses it.

    A requester's publication is closed when the requester goes. A publisher without a response channel, and one beyond
    ``max_clients``, is rejected.

    Args:
        aeron: The client.
        channel: The channel of requests, as ``aeron:udp?endpoint=0.0.0.0:20121`` or ``aeron:ipc``.
        stream_id: Their stream id.
        response_channel: The channel of replies, as ``aeron:udp?control=server:20122`` or ``aeron:ipc``.
        response_stream_id: Their stream id.
        max_clients: How many requesters may be connected; each has a log of its own at the driver.

    Raises:
        ChannelUriError: A key of a channel is a likely typing error of a known one.
        RegistrationError: The driver refused.
        DriverTimeout: The driver did not respond in time.
        ConfigurationError: ``max_clients`` is no whole number of 1 at least.

    Example:
        >>> with Responder(aeron, "aeron:ipc", 1001, response_channel="aeron:ipc", response_stream_id=1002) as responder:
        ...     responder.serve(bytes.upper)
    """

    def __init__(
        self,
        aeron: Aeron,
        channel: str,
        stream_id: int,
        *,
        response_channel: str,
        response_stream_id: int,
        max_clients: int = MAX_CLIENTS,
    ) -> None:
        check_whole({"max_clients": max_clients}, least=1)
        self._aeron = aeron
        subscription = aeron.add_subscription(channel, stream_id)
        self._state: ResponderState = ResponderState(
            aeron, subscription, response_channel, response_stream_id, max_clients
        )
        self._undelivered = 0

    @property
    def clients(self) -> int:
        """How many requesters have a way back."""
        return self._state.clients

    @property
    def refused_clients(self) -> int:
        """How many publishers were rejected: without a response channel, or beyond ``max_clients``."""
        return self._state.refused_clients

    @property
    def undelivered_responses(self) -> int:
        """How many replies ``serve`` could not deliver: their requester had gone, or did not read."""
        return self._undelivered

    def requests(self, *, timeout: float | None = None) -> Iterator[Request]:
        """Yields requests as they arrive, until the responder is closed. Leaving the loop and starting another loses nothing.

        Args:
            timeout: Seconds to wait for the next request; None waits for ever.

        Yields:
            One request after another.

        Raises:
            Timeout: No request came for ``timeout`` seconds.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.

        Example:
            >>> for request in responder.requests():
            ...     request.respond(request.payload.upper())
        """
        state = self._state
        waiting = state.subscription._conductor.waiting(timeout)
        while not state.subscription.closed:
            if state.work():
                request = Request(*state.queue[0])
                del state.queue[0]
                yield request
                waiting.restart()
            elif not waiting.step():
                raise Timeout(f"no request came for {timeout:g} s", timeout=timeout)
        state.subscription.raise_failure()

    def serve(self, handler: Callable[[bytes], Any]) -> None:
        """Replies to every request with what a function returns, until the responder is closed.

        One request is handled at a time, in this thread: a handler that waits keeps every requester waiting. For handlers that
        wait use ``aio.Responder.serve``, which runs many at once.

        What the function raises, and what prevents a reply, goes to the client's ``on_error``; the request gets no reply, and
        serving goes on.

        Args:
            handler: Called with each request; returns the reply, any buffer of bytes.

        Raises:
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.

        Example:
            >>> responder.serve(lambda request: request.upper())
        """
        for request in self.requests():
            try:
                reply = handler(request.payload)
            except Exception as error:
                self._aeron.context.on_error(error)
                continue
            try:
                request.respond(reply)
            except (MainstemError, ValueError, TypeError) as error:
                self._undelivered += 1
                self._aeron.context.on_error(error)
