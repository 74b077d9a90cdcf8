"""Requests and replies whose waiting is the event loop's (``mainstem.aeron.client.requests`` has the theory)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mainstem.aeron.aio.opened import OpenedResource
from mainstem.aeron.aio.streams import Publication
from mainstem.aeron.aio.waiting import MAX_SLEEP, Pause
from mainstem.aeron.client.requester import REPLY_TIMEOUT
from mainstem.aeron.client.requests import (
    MAX_CLIENTS,
    MAX_CONCURRENT,
    MAX_IN_FLIGHT,
    RequesterState,
    ResponderState,
    response_mode,
    with_parameter,
)
from mainstem.amounts import check_whole
from mainstem.errors import MainstemError, Timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mainstem._core.log.fragment import Message
    from mainstem.aeron.aio.client import Aeron


class Requester(OpenedResource[RequesterState]):
    """Sends requests, and returns the reply to each; any number of tasks may wait for replies.

    ``await`` or ``async with`` opens it: the publication of requests and the subscription to replies are added.

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
        ConfigurationError: ``max_in_flight`` is no whole number of 1 at least; raised at once.

    Example:
        >>> async with Requester(
        ...     aeron, "aeron:ipc", 1001, response_channel="aeron:ipc", response_stream_id=1002
        ... ) as requester:
        ...     await requester.request(b"price of XYZ", timeout=1.0)
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
        self._aeron = aeron
        self._clock = aeron.sync.context.clock
        self._requests = (channel, stream_id)
        self._responses = (response_channel, response_stream_id)
        self._max_in_flight = max_in_flight
        self._begun = False

    async def _open(self) -> RequesterState:
        response_channel, response_stream_id = self._responses
        subscription = (await self._aeron.add_subscription(response_mode(response_channel), response_stream_id)).sync
        try:
            channel, stream_id = self._requests
            channel = with_parameter(channel, f"response-correlation-id={subscription.registration_id}")
            publication = (await self._aeron.add_exclusive_publication(channel, stream_id)).sync
        except BaseException:
            subscription.close()
            raise
        return RequesterState(publication, subscription, self._max_in_flight)

    @property
    def in_flight(self) -> int:
        """How many requests wait for their replies."""
        return len(self._state.slots)

    @property
    def late_responses(self) -> int:
        """How many replies came after their request had been given up, and were dropped."""
        return self._state.late_responses

    async def request(self, payload: Any, *, timeout: float | None = None) -> bytes:
        """Sends a request and waits for its reply. A cancelled call frees its slot; the request may have been sent.

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
            >>> reply = await requester.request(b"price of XYZ", timeout=1.0)
        """
        state = self._state
        slot = state.open_slot()
        pause = Pause(self._clock, timeout)
        try:
            while (position := state.publication.offer(payload, reserved_value=slot.correlation_id)) < 0:
                state.check_open()
                if not await pause.step():
                    raise state.publication.offer_error(position, "request", f", for {timeout:g} s")
            while slot.reply is None:
                state.poll()
                if slot.reply is None:
                    state.check_open()
                    if not await pause.step():
                        raise state.no_response(timeout)
            return slot.reply
        finally:
            state.free(slot)


class Request:
    """One request that a responder received.

    Attributes:
        payload: The request.
        correlation_id: The reserved value of the request, which its reply has too.
        session_id: The requester's session id.
        source_identity: Where it came from: ``ip:port``, or ``aeron:ipc``.

    Example:
        >>> async for request in responder.requests():
        ...     await request.respond(request.payload.upper())
    """

    def __init__(self, message: Message, publication: Publication) -> None:
        self.payload = message.payload
        self.correlation_id = message.reserved_value
        self.session_id = message.session_id
        self.source_identity = message.source_identity
        self._publication = publication

    def __repr__(self) -> str:
        return f"<asynchronous Request {self.correlation_id} of {len(self.payload)} bytes from {self.source_identity}>"

    async def respond(self, payload: Any, *, timeout: float | None = REPLY_TIMEOUT) -> None:
        """Sends the reply.

        Args:
            payload: The reply, any buffer of bytes.
            timeout: Seconds to wait for room; None waits for ever.

        Raises:
            ClosedError: The requester has gone, or the responder is closed.
            NotConnected: The requester has gone.
            BackPressured: The requester does not read its replies.

        Example:
            >>> await request.respond(b"42")
        """
        await self._publication.send(payload, timeout=timeout, reserved_value=self.correlation_id)


class Responder(OpenedResource[ResponderState]):
    """Receives requests, and replies to each requester over a publication of its own.

    ``await`` or ``async with`` opens it: the subscription to requests is added.

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
        ConfigurationError: ``max_clients`` is no whole number of 1 at least; raised at once.

    Example:
        >>> async with Responder(
        ...     aeron, "aeron:ipc", 1001, response_channel="aeron:ipc", response_stream_id=1002
        ... ) as responder:
        ...     async for request in responder.requests():
        ...         await request.respond(request.payload.upper())
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
        self._clock = aeron.sync.context.clock
        self._on_error = aeron.sync.context.on_error
        self._requests = (channel, stream_id)
        self._responses = (response_channel, response_stream_id)
        self._max_clients = max_clients
        self._undelivered = 0
        self._handling = 0
        self._begun = False

    async def _open(self) -> ResponderState:
        subscription = (await self._aeron.add_subscription(*self._requests)).sync
        return ResponderState(self._aeron.sync, subscription, *self._responses, self._max_clients)

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

    @property
    def handling(self) -> int:
        """How many handlers of ``serve`` run."""
        return self._handling

    async def requests(self, *, timeout: float | None = None) -> AsyncIterator[Request]:
        """Yields requests as they come, until the responder is closed; one that is left or cancelled loses nothing.

        Args:
            timeout: Seconds to wait for the next request; None waits for ever.

        Yields:
            One request after another.

        Raises:
            Timeout: No request came for ``timeout`` seconds.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.

        Example:
            >>> async for request in responder.requests():
            ...     await request.respond(request.payload.upper())
        """
        state = self._state
        pause = Pause(self._clock, timeout)
        while not self._inner.closed:
            if state.work():
                message, publication = state.queue.popleft()
                yield Request(message, Publication(publication, self._clock))
                if not state.queue:
                    # Requests that never run dry must not keep the loop from its other tasks.
                    await asyncio.sleep(0)
                pause.restart()
            elif not await pause.step():
                raise Timeout(f"no request came for {timeout:g} s", timeout=timeout)
        self._inner.raise_failure()

    async def serve(self, handler: Callable[[bytes], Awaitable[Any]], *, max_concurrent: int = MAX_CONCURRENT) -> None:
        """Replies to every request with what a coroutine function returns, until the responder is closed.

        Handlers run at once, each in a task of its own, so that one that waits keeps no other request waiting; replies may
        overtake one another. While ``max_concurrent`` run, further requests wait in their logs, and requesters feel back pressure.

        What a handler raises, and what prevents a reply, goes to the client's ``on_error``; the request gets no reply, and
        serving goes on. Handlers that run when this ends, because the responder was closed or the call cancelled, are cancelled.

        Args:
            handler: Called with each request; returns the reply, any buffer of bytes.
            max_concurrent: Handlers that run at once (64 by default); 1 replies in the order of the requests.

        Raises:
            ConfigurationError: ``max_concurrent`` is less than 1.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.

        Example:
            >>> async def price(symbol: bytes) -> bytes:
            ...     return await database.price(symbol)
            >>> await responder.serve(price, max_concurrent=16)
        """
        check_whole({"max_concurrent": max_concurrent}, least=1)
        state = self._state
        pause = Pause(self._clock, None)
        running: set[asyncio.Task[None]] = set()
        try:
            while not self._inner.closed:
                # Also while all places are taken: requesters come and go.
                is_waiting = state.work()
                if is_waiting and len(running) < max_concurrent:
                    message, publication = state.queue.popleft()
                    request = Request(message, Publication(publication, self._clock))
                    task = asyncio.create_task(self._handle(handler, request))
                    running.add(task)
                    task.add_done_callback(running.discard)
                    if not state.queue:
                        await asyncio.sleep(0)
                    pause.restart()
                elif is_waiting:
                    await asyncio.wait(running, timeout=MAX_SLEEP, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await pause.step()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        self._inner.raise_failure()

    async def _handle(self, handler: Callable[[bytes], Awaitable[Any]], request: Request) -> None:
        self._handling += 1
        try:
            reply = await handler(request.payload)
        except Exception as error:
            self._on_error(error)
            return
        finally:
            self._handling -= 1
        try:
            await request.respond(reply)
        except (MainstemError, ValueError, TypeError) as error:
            self._undelivered += 1
            self._on_error(error)
