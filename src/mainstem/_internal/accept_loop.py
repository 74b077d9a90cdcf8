"""Accepts connections on listening sockets, and leaves them in the kernel's queue while there are no free descriptors.

When the process runs out of descriptors, asyncio's servers log an error for every connection that their backlog could hold, and
retry immediately. This loop first makes room, if its owner can, then pauses. Its log is throttled.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.listening import name_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from mainstem._internal.log_throttle import LogThrottle

# Maximum number of connections to accept before other tasks get a turn.
ACCEPTS_PER_TURN = 64
# Seconds before retrying when accepting failed for lack of descriptors or memory.
ACCEPT_PAUSE_S = 0.2


class AcceptLoop:
    """Calls ``accept`` with each accepted socket, which it then owns, in the running event loop, until it is closed.

    ``make_room`` gives up a connection when there are no free descriptors, and returns whether there was one to give up.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        accept: Callable[[socket.socket], object],
        log: LogThrottle,
        make_room: Callable[[], bool] = lambda: False,
    ) -> None:
        self._sockets = list(sockets)
        self._accept = accept
        self._log = log
        self._make_room = make_room
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}

    def start(self) -> None:
        for listener in self._sockets:
            listener.setblocking(False)
            self._watch(listener)

    def close(self) -> None:
        """Stop accepting, and close the sockets. Can be called more than once."""
        sockets, self._sockets = self._sockets, []
        for listener in sockets:
            if listener.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            listener.close()
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()

    def _watch(self, listener: socket.socket) -> None:
        self._pauses.pop(listener, None)
        asyncio.get_running_loop().add_reader(listener.fileno(), self._on_readable, listener)

    def _on_readable(self, listener: socket.socket) -> None:
        for number in range(ACCEPTS_PER_TURN):
            if not self._sockets:
                return  # accepting a connection has closed the server
            try:
                accepted, _peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if number:
                    return  # Linux looks for a free descriptor first, so perhaps no connection is waiting any more
                self._log_error(listener, error)
                # A connection that is given up leaves its descriptor in the loop's next turn, which comes back here.
                if not self._make_room():
                    self._pause(listener)
                return
            try:
                accepted.setblocking(False)
                self._accept(accepted)
            except BaseException:
                accepted.close()
                raise

    def _pause(self, listener: socket.socket) -> None:
        """Leave the next connections in the kernel's queue for a moment."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())
        self._pauses[listener] = loop.call_later(ACCEPT_PAUSE_S, self._watch, listener)

    def _log_error(self, listener: socket.socket, error: OSError) -> None:
        name = name_of(listener.getsockname())
        text = f"cannot accept connections on {name}: {error.strerror}; trying again every {ACCEPT_PAUSE_S:g} s"
        self._log.log(logging.ERROR, ("accept", error.errno), text, SYSTEM_CLOCK.monotonic_ns())
