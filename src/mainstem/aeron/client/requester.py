"""The blocking requester and responder, and the parts that they share with the asyncio variants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem._internal.clock import Deadline
from mainstem._internal.validation import check_int
from mainstem.aeron.channel import with_values
from mainstem.aeron.client.base import conductor_of
from mainstem.aeron.client.publication import ExclusivePublication
from mainstem.aeron.client.requests import (
    MAX_CLIENTS,
    MAX_IN_FLIGHT,
    RequesterState,
    ResponderState,
    response_mode,
)
from mainstem.aeron.client.resource import Closing
from mainstem.aeron.client.stats import RequesterStats, ResponderStats
from mainstem.aeron.client.waiting import Waiting, run
from mainstem.errors import ClosedError, MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem._core.log.read import Message
    from mainstem.aeron.client.client import Aeron

S = TypeVar("S", bound="RequesterState | ResponderState")

RESPONSE_TIMEOUT = 5.0  # seconds that a response waits for space before the responder turns to the next request


class Exchange(Generic[S]):
    """The part that the requesters and responders of both variants share."""

    _made: S | None = None

    @property
    def _state(self) -> S:
        if self._made is None:
            raise ClosedError(f"the {type(self).__name__} is not open: `await` or `async with` opens it")
        return self._made

    @property
    def closed(self) -> bool:
        """Whether it is closed, through ``close`` or together with its client."""
        return self._made is not None and bool(self._made.subscription.closed)

    @property
    def error(self) -> Exception | None:
        """The error that ended it: a DriverTimeout or a ClientTimeout. None if it is open or ``close`` ended it."""
        error: Exception | None = None if self._made is None else self._made.subscription.error
        return error

    def _end(self) -> None:
        if self._made is not None:
            self._made.close()

    def __repr__(self) -> str:
        where = ", not open" if self._made is None else f" on {self._made.subscription!r}"
        return f"<{type(self).__name__}{where}>"


class RequesterBase(Exchange[RequesterState]):
    """The non-blocking part of a requester."""

    def stats(self) -> RequesterStats:
        """Return the number of requests in flight and of late responses."""
        return RequesterStats(len(self._state.slots), self._state.late_responses)


class ResponderBase(Exchange[ResponderState]):
    _undelivered = 0
    _handling = 0

    def stats(self) -> ResponderStats:
        """Return the number of connected and refused requesters and of running handlers."""
        state = self._state
        return ResponderStats(state.clients, state.refused_clients, self._undelivered, self._handling)


class Requester(RequesterBase, Closing):
    """The requesting side of request-response messaging. Any number of threads can call ``request``.

    Requests go over a publication, and responses arrive over a response channel. The reserved value of each frame carries the
    correlation id, so the whole payload belongs to the application. Creating one raises the errors that the class `Aeron` lists for
    its calls.

    Args:
        aeron: The client.
        channel: The channel of requests, such as ``aeron:udp?endpoint=server:20121`` or ``aeron:ipc``.
        stream_id: The stream id of requests.
        response_channel: The channel of responses, such as ``aeron:udp?control=server:20122`` or ``aeron:ipc``.
        response_stream_id: The stream id of responses.
        max_in_flight: How many requests can wait for their responses at the same time.
        timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

    Raises:
        ConfigurationError: ``max_in_flight`` is not an integer >= 1.

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
        timeout: float | None = None,
    ) -> None:
        check_int({"max_in_flight": max_in_flight}, min_value=1)
        deadline = Deadline(aeron.context.clock, timeout)
        subscription = aeron.add_subscription(response_mode(response_channel), response_stream_id, timeout=timeout)
        try:
            channel = with_values(channel, {"response-correlation-id": subscription.registration_id})
            publication = aeron.add_exclusive_publication(channel, stream_id, timeout=deadline.left)
        except BaseException:
            subscription.close()
            raise
        self._made = RequesterState(conductor_of(aeron), publication, subscription, max_in_flight)

    def request(self, payload: Any, timeout: float | None = None) -> bytes:
        """Send a request and wait for its response.

        Args:
            payload: The request, which is any buffer of bytes.
            timeout: Seconds for the whole call, including the wait for a connection; None waits forever.

        Returns:
            The response.

        Raises:
            Timeout: The request was sent, but no response arrived in time. The responder may have received the request, so
                ``may_retry`` is false. The message says whether the responder is still connected.
            NotConnected: No responder was connected in time; nothing was sent.
            BackPressured: There was no space in time, or ``max_in_flight`` requests were already waiting; nothing was sent.
            ClosedError: The requester is closed.
            DriverTimeout: The driver shut down or stopped responding.
            ClientTimeout: The driver timed this client out.
        """
        state = self._state
        return run(state.requesting(payload, timeout), Waiting(state.conductor.invokers))


class RequestBase:
    """The contents of a request, which both variants share."""

    def __init__(self, message: Message, publication: Any) -> None:
        self.payload = message.payload
        self.correlation_id = message.reserved_value
        self.session_id = message.session_id
        self.source_identity = message.source_identity
        self._publication = publication

    def __repr__(self) -> str:
        return f"<Request {self.correlation_id} of {len(self.payload)} bytes from {self.source_identity}>"


class Request(RequestBase):
    """A request that a responder received.

    Attributes:
        payload (bytes): The request.
        correlation_id (int): The reserved value of the request and of its response.
        session_id (int): The requester's session id.
        source_identity (str): Where the request came from: ``ip:port``, or ``aeron:ipc``.
    """

    def respond(self, payload: Any, timeout: float | None = RESPONSE_TIMEOUT) -> None:
        """Send the response.

        Args:
            payload: The response, which is any buffer of bytes.
            timeout: Seconds to wait for space; None waits forever.

        Raises:
            ClosedError: The requester is gone, or the responder is closed.
            NotConnected: The requester is gone.
            BackPressured: The requester does not read its responses.
        """
        self._publication.send(payload, timeout=timeout, reserved_value=self.correlation_id)


class Responder(ResponderBase, Closing):
    """The responding side of request-response messaging: it responds to each requester over a separate publication.

    One thread uses a responder, but any thread can close it. When a requester goes away, the responder closes that requester's
    publication. The responder rejects a publisher that has no response channel or that exceeds ``max_clients``.

    Args:
        aeron: The client.
        channel: The channel of requests, such as ``aeron:udp?endpoint=0.0.0.0:20121`` or ``aeron:ipc``.
        stream_id: The stream id of requests.
        response_channel: The channel of responses, such as ``aeron:udp?control=server:20122`` or ``aeron:ipc``.
        response_stream_id: The stream id of responses.
        max_clients: How many requesters can be connected. The driver keeps a separate log for each.
        timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

    Raises:
        ConfigurationError: ``max_clients`` is not an integer >= 1.

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
        timeout: float | None = None,
    ) -> None:
        check_int({"max_clients": max_clients}, min_value=1)
        subscription = aeron.add_subscription(channel, stream_id, timeout=timeout)
        self._made = ResponderState(
            conductor_of(aeron), ExclusivePublication, subscription, response_channel, response_stream_id, max_clients
        )

    def close(self) -> None:
        """Close the responder, which ends ``requests`` and ``serve``. Any thread may call this, repeatedly."""
        self._end()

    def requests(self, *, timeout: float | None = None) -> Iterator[Request]:
        """Yield requests as they arrive until the responder is closed. Leaving the loop and starting another one loses no request.

        Args:
            timeout: Seconds to wait for the next request; None waits forever.

        Yields:
            The next request.

        Raises:
            Timeout: No request arrived for ``timeout`` seconds.
            DriverTimeout: The driver shut down or stopped responding.
            ClientTimeout: The driver timed this client out.
        """
        state = self._state
        waiting = Waiting(state.conductor.invokers)
        try:
            while run(state.waiting_for_request(timeout), waiting):
                request = Request(*state.queue[0])
                del state.queue[0]
                yield request
                waiting.restart()
        finally:
            if state.subscription.closed:
                # Another thread closed it. Also close the publications that the last call of `work` opened after that.
                state.close()
        state.conductor.raise_failure()

    def serve(self, handler: Callable[[bytes], Any]) -> None:
        """Respond to every request with the result of a function, until another thread or a handler closes the responder.

        This thread handles one request at a time, so a slow handler delays every requester. For handlers that wait, use
        ``aio.Responder.serve``, which runs many at once. If the function raises, or the response cannot be sent, the client's
        ``on_error`` gets the error, the request gets no response, and serving continues.

        Args:
            handler: Called with each request. Returns the response, which is any buffer of bytes.

        Raises:
            DriverTimeout: The driver shut down or stopped responding.
            ClientTimeout: The driver timed this client out.
        """
        on_error = self._state.conductor.context.on_error
        for request in self.requests():
            self._handling = 1
            try:
                response = handler(request.payload)
            except Exception as error:
                on_error(error)
                continue
            finally:
                self._handling = 0
            try:
                request.respond(response)
            except (MainstemError, ValueError, TypeError) as error:
                self._undelivered += 1
                on_error(error)
