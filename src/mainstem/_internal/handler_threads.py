"""Blocking handlers, each in a thread of its own, for servers whose event loop has a thread too.

Theory of operation
-------------------
The asyncio server calls an asyncio handler for each stream. That handler waits for a slot, starts a thread with the user's
function, and waits for it. So whatever the server does with a handler's task (limits, logging of errors, cancellation, the wait of
``close``) also applies to the thread. Three things differ, since a thread cannot be cancelled:

* A handler whose task is cancelled has its stream aborted. Anything it waits for on that stream then raises. The task stays until
  the thread has ended, and a thread that is still running counts against the limits: a peer that reconnects does not get more.
* A second cancellation, which happens only when the event loop ends, abandons the thread.
* A handler may close the server that runs it. It does not wait for itself (``HANDLER_TASK``).

Slots. At most ``max_handlers`` threads run, and of these at most ``max_handlers_per_address`` for one address (an IPv6 /64 network
counts as one). A handler without a slot waits. The server does not read a waiting stream, so its peer runs out of credit. Free
slots go to the addresses in turn. So one client cannot lock out all others, whether its handlers wait or compute.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import threading
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mainstem._internal.address_prefixes import owner_of
from mainstem._internal.tasks import HANDLER_TASK
from mainstem._internal.validation import check_int
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger("mainstem.handlers")

# Handlers that run at once; each has a thread.
MAX_HANDLERS = 512
# The part of these that one address may use.
MAX_HANDLERS_PER_ADDRESS = 128


class Served(Protocol):
    """The object that a handler serves: an asyncio stream or connection."""

    @property
    def peer_address(self) -> Any:
        """The peer's address in its socket's form."""
        ...

    def abort(self) -> None:
        """End the stream or connection at once."""
        ...


S = TypeVar("S", bound=Served)
V = TypeVar("V")


class HandlerThreads:
    """The threads that run the handlers of one server or connection."""

    def __init__(
        self, max_handlers: int = MAX_HANDLERS, max_handlers_per_address: int = MAX_HANDLERS_PER_ADDRESS
    ) -> None:
        limits = {"max_handlers": max_handlers, "max_handlers_per_address": max_handlers_per_address}
        check_int(limits, min_value=1)
        self._slots = Slots(max_handlers, max_handlers_per_address)
        self._numbers = itertools.count(1)

    def adapt(
        self,
        handler: Callable[[V], object],
        view: Callable[[S], V],
        on_start: Callable[[S], object] | None = None,
    ) -> Callable[[S], Awaitable[None]]:
        """Make an asyncio handler from a blocking one, which gets a ``view`` of the asyncio object.

        ``on_start`` is called with that object in the event loop, in the step that starts the handler's thread.
        """
        return functools.partial(self._serve, handler, view, on_start)

    async def _serve(
        self,
        handler: Callable[[V], object],
        view: Callable[[S], V],
        on_start: Callable[[S], object] | None,
        served: S,
    ) -> None:
        """Run the handler in a thread, once there is a slot for it."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        ended: asyncio.Future[BaseException | None] = loop.create_future()

        def run() -> None:
            HANDLER_TASK.set(task)
            error: BaseException | None = None
            try:
                handler(view(served))
            except BaseException as caught:
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody is waiting
                loop.call_soon_threadsafe(ended.set_result, error)

        address = owner_of(served.peer_address)
        if not self._slots.take(address):
            await self._slots.wait(address)
        try:
            threading.Thread(target=run, name=f"mainstem-handler-{next(self._numbers)}", daemon=True).start()
            if on_start is not None:
                on_start(served)
            try:
                error = await asyncio.shield(ended)
            except asyncio.CancelledError:
                served.abort()
                try:
                    error = await asyncio.shield(ended)
                except asyncio.CancelledError:
                    logger.warning("a handler still runs after the end of its server")
                    raise
                if error is None or isinstance(error, MainstemError):
                    raise
            try:
                if isinstance(error, Exception):
                    raise error
                if error is not None:  # such as SystemExit, which would end the event loop
                    raise RuntimeError(f"the handler raised {error!r}") from error
            finally:
                del error
        finally:
            self._slots.free(address)


class Slots:
    """A limit on the handlers that run at once, in total and per address. Addresses take turns."""

    def __init__(self, most: int, most_per_address: int) -> None:
        self._free = most
        self._most_per_address = most_per_address
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, OrderedDict[asyncio.Future[None], None]] = {}

    def take(self, address: str) -> bool:
        """Take a slot if one is free; return whether it was."""
        taken = self._taken[address]
        if not self._free or (address and taken >= self._most_per_address):
            return False
        self._free -= 1
        self._taken[address] = taken + 1
        return True

    async def wait(self, address: str) -> None:
        """Wait for a slot, and take it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(address, OrderedDict())
        waiting[turn] = None
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.free(address)
            else:
                waiting.pop(turn, None)
                if not waiting and self._waiting.get(address) is waiting:
                    del self._waiting[address]
            raise

    def free(self, address: str) -> None:
        """Free a slot that was taken, for the address whose turn it is."""
        self._free += 1
        self._taken[address] -= 1
        if not self._taken[address]:
            del self._taken[address]
        for other in list(self._waiting):
            if self._give(other):
                return

    def _give(self, address: str) -> bool:
        """Give a slot to the handler of an address that has waited longest, skipping cancelled ones."""
        waiting = self._waiting[address]
        while waiting:
            turn = next(iter(waiting))
            if not turn.done():
                if not self.take(address):
                    return False
                del waiting[turn], self._waiting[address]
                if waiting:
                    self._waiting[address] = waiting  # behind the other addresses
                turn.set_result(None)
                return True
            del waiting[turn]
        del self._waiting[address]
        return False
