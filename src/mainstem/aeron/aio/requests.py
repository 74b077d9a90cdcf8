"""Requests and responses for asyncio (see ``mainstem.aeron.client.requests``)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from mainstem._internal.clock import Deadline
from mainstem._internal.opening import Opening
from mainstem._internal.validation import check_int
from mainstem.aeron.aio.resource import Closing
from mainstem.aeron.aio.streams import ExclusivePublication
from mainstem.aeron.aio.waiting import MAX_SLEEP, Pause, run
from mainstem.aeron.channel import with_values
from mainstem.aeron.client.base import conductor_of
from mainstem.aeron.client.requester import RESPONSE_TIMEOUT, Exchange, RequestBase, RequesterBase, ResponderBase
from mainstem.aeron.client.requests import (
    MAX_CLIENTS,
    MAX_CONCURRENT,
    MAX_IN_FLIGHT,
    RequesterState,
    ResponderState,
    response_mode,
)
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator

    from mainstem.aeron.aio.client import Aeron

S = TypeVar("S", bound="RequesterState | ResponderState")


class Opened(Exchange[S], Closing, Generic[S]):
    """An object that ``await`` or ``async with`` opens. Like a coroutine, it warns if it is dropped before it is opened."""

    _opening: Opening[S] | None = None

    def _opens_with(self, open_state: Callable[[], Awaitable[S]]) -> None:
        self._opening = Opening(open_state, f"a {type(self).__name__}")

    async def _open(self) -> Self:
        opening, self._opening = self._opening, None
        if opening is not None:
            self._made = await opening
        # Raises if an earlier attempt failed.
        _ = self._state
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()

    def _end(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.discard()
        super()._end()


class Requester(Opened[RequesterState], RequesterBase):
    """The requesting side of request-response messaging. Any number of tasks can call ``request``.

    Open it with ``await`` or ``async with``.

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
        timeout: float | None = None,
    ) -> None:
        check_int({"max_in_flight": max_in_flight}, min_value=1)

        async def open_state() -> RequesterState:
            deadline = Deadline(aeron.context.clock, timeout)
            responses = response_mode(response_channel)
            subscription = await aeron.add_subscription(responses, response_stream_id, timeout=timeout)
            try:
                requests = with_values(channel, {"response-correlation-id": subscription.registration_id})
                publication = await aeron.add_exclusive_publication(requests, stream_id, timeout=deadline.left)
            except BaseException:
                conductor_of(aeron).close_resource(subscription)
                raise
            return RequesterState(conductor_of(aeron), publication, subscription, max_in_flight)

        self._opens_with(open_state)

    async def request(self, payload: Any, timeout: float | None = None) -> bytes:
        """Send a request and wait for its response. Cancelling the call frees its slot, but the request may have been sent."""
        state = self._state
        return await run(state.requesting(payload, timeout), Pause(state.conductor.invokers))


class Request(RequestBase):
    """A request that a responder received."""

    async def respond(self, payload: Any, timeout: float | None = RESPONSE_TIMEOUT) -> None:
        """Send the response."""
        await self._publication.send(payload, timeout, reserved_value=self.correlation_id)


class Responder(Opened[ResponderState], ResponderBase):
    """The responding side of request-response messaging: it responds to each requester over a separate publication.

    Open it with ``await`` or ``async with``.

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
        timeout: float | None = None,
    ) -> None:
        check_int({"max_clients": max_clients}, min_value=1)

        async def open_state() -> ResponderState:
            subscription = await aeron.add_subscription(channel, stream_id, timeout=timeout)
            return ResponderState(
                conductor_of(aeron),
                ExclusivePublication,
                subscription,
                response_channel,
                response_stream_id,
                max_clients,
            )

        self._opens_with(open_state)

    async def requests(self, *, timeout: float | None = None) -> AsyncIterator[Request]:
        """Yield requests as they arrive. Leaving the loop and starting another one loses no request."""
        state = self._state
        conductor = state.conductor
        pause = Pause(conductor.invokers)
        while await run(state.waiting_for_request(timeout), pause):
            yield Request(*state.queue.popleft())
            if not state.queue:
                await asyncio.sleep(0)
            pause.restart()
        conductor.raise_failure()

    async def serve(self, handler: Callable[[bytes], Awaitable[Any]], *, max_concurrent: int = MAX_CONCURRENT) -> None:
        """Respond to every request with the result of a coroutine function until the responder is closed.

        Each handler runs in its own task, so responses can overtake one another. While ``max_concurrent`` handlers are running,
        further requests wait in their logs, and requesters get back pressure. Closing the responder or cancelling the call cancels
        the running handlers.

        Args:
            handler: Called with each request. Returns the response, which is any buffer of bytes.
            max_concurrent: How many handlers can run at once (64 by default). With 1, responses keep the order of the requests.

        Raises:
            ConfigurationError: ``max_concurrent`` is less than 1.
            DriverTimeout: The driver shut down or stopped responding.
            ClientTimeout: The driver timed this client out.

        Example:
            >>> async def price(symbol: bytes) -> bytes:
            ...     return await database.price(symbol)
            >>> await responder.serve(price, max_concurrent=16)
        """
        check_int({"max_concurrent": max_concurrent}, min_value=1)
        state = self._state
        conductor = state.conductor
        pause = Pause(conductor.invokers)
        running: set[asyncio.Task[None]] = set()
        try:
            # Only here do handlers run at the same time, so this loop also waits for them and has no blocking counterpart.
            while not state.subscription.closed:
                # Call this even while `max_concurrent` handlers are running, because requesters come and go.
                is_waiting = state.work()
                if is_waiting and len(running) < max_concurrent:
                    request = Request(*state.queue.popleft())
                    task = asyncio.create_task(self._handle(handler, request, conductor.context.on_error))
                    running.add(task)
                    task.add_done_callback(running.discard)
                    if not state.queue:
                        await asyncio.sleep(0)
                    pause.restart()
                elif is_waiting:
                    await asyncio.wait(running, timeout=MAX_SLEEP, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await pause()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        conductor.raise_failure()

    async def _handle(
        self, handler: Callable[[bytes], Awaitable[Any]], request: Request, on_error: Callable[[Exception], object]
    ) -> None:
        self._handling += 1
        try:
            response = await handler(request.payload)
        except Exception as error:
            on_error(error)
            return
        finally:
            self._handling -= 1
        try:
            await request.respond(response)
        except (MainstemError, ValueError, TypeError) as error:
            self._undelivered += 1
            on_error(error)
