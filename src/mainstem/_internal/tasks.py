"""asyncio tasks and callbacks: starting tasks inside a protocol step, timeouts, tasks of handlers, and errors of callbacks."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from mainstem._internal.clock import timeout_of
from mainstem.errors import Delivery, Timeout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")

# The task that waits for the current thread, if that thread runs a handler of a blocking server. The handler must not wait for it.
HANDLER_TASK: ContextVar[asyncio.Task[Any] | None] = ContextVar("HANDLER_TASK", default=None)


def start_task(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> asyncio.Task[T]:
    """Start a task whose first step runs after the caller's, even if the loop's task factory starts tasks eagerly.

    An eager task (`asyncio.eager_task_factory`) runs inside the call that creates it. If it is created while a connection
    dispatches its events, it would call back into that connection before the step is complete.
    """
    return loop.create_task(work if loop.get_task_factory() is None else _after_this_step(work))


def as_coroutine_function(handler: Callable[[A], Awaitable[object]]) -> Callable[[A], Awaitable[object]]:
    """Return the application's handler. If it is a plain function, each call raises TypeError unless it returns an awaitable."""
    if inspect.iscoroutinefunction(handler):
        return handler

    async def checked(argument: A) -> None:
        outcome = handler(argument)
        if not inspect.isawaitable(outcome):
            raise TypeError(
                f"the handler {handler!r} returned {outcome!r}, which cannot be awaited: define it with async def"
            )
        await outcome

    return checked


async def _after_this_step(work: Coroutine[Any, Any, T]) -> T:
    try:
        await asyncio.sleep(0)
    except BaseException:
        work.close()
        raise
    return await work


async def within(
    timeout: float | None, work: Awaitable[T], what: str = "", *, delivery: Delivery = Delivery.UNKNOWN
) -> T:
    """Return the result of ``work``, or cancel it after ``timeout`` seconds and raise `Timeout`.

    The error says that ``what`` timed out, and what was delivered by then.
    """
    try:
        timeout = timeout_of(timeout)
    except ValueError:
        if isinstance(work, Coroutine):
            work.close()
        raise
    if timeout is None:
        return await work
    deadline = asyncio.timeout(timeout)
    try:
        async with deadline:
            return await work
    except TimeoutError:
        if not deadline.expired():
            raise
        error = Timeout(
            f"{what}: timed out after {timeout:g} s" if what else f"timed out after {timeout:g} s", timeout=timeout
        )
        error.delivery = delivery
        raise error from None


class FailsInternally(Protocol):
    """A connection that can be ended because of an error on this side."""

    def _fail_internally(self, error: Exception) -> None: ...


C = TypeVar("C", bound=FailsInternally)


def ends_connection_on_error(callback: Callable[Concatenate[C, P], None]) -> Callable[Concatenate[C, P], None]:
    """Wrap a callback of the transport or the event loop.

    The event loop would only log an exception and leave the peer waiting; in a loop over connections, the exception would also
    skip the remaining ones.
    """

    @functools.wraps(callback)
    def guarded(connection: C, /, *arguments: P.args, **options: P.kwargs) -> None:
        try:
            callback(connection, *arguments, **options)
        except Exception as error:
            connection._fail_internally(error)

    return guarded
