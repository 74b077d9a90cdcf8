"""The sockets that a server listens on: one per address of its host, all with the same port, a Unix path, or given sockets.

The server accepts connections itself. When the process runs out of descriptors, asyncio's servers log an error for every
connection that their backlog could hold, and retry immediately. This one pauses, and throttles its log.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem._internal.listening import BACKLOG, bind_sockets, find_listening_addresses, given_sockets, name_of
from mainstem._internal.log_throttle import LogThrottle
from mainstem._internal.unix_listening import UnixListener
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

logger = logging.getLogger("mainstem.mux")

# Maximum number of connections to accept before other tasks get a turn.
ACCEPTS_PER_TURN = 64
# Seconds before retrying when accepting failed for lack of descriptors or memory.
ACCEPT_PAUSE_S = 0.2
ACCEPT_LOG_INTERVAL_NS = 60 * NS_PER_SECOND


class ListeningSockets:
    """The listening sockets of one server. They call ``accept`` with each accepted socket, which it then owns."""

    def __init__(self, accept: Callable[[socket.socket], object]) -> None:
        self.address: Any = None  # the first address, in the form that its socket uses
        self._accept = accept
        self._sockets: list[socket.socket] = []
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._unix: UnixListener | None = None
        self._log = LogThrottle(logger, interval_ns=ACCEPT_LOG_INTERVAL_NS)

    async def start(
        self,
        host: str | Sequence[str] | None,
        port: int | None,
        path: str | os.PathLike[str] | None,
        sock: socket.socket | Sequence[socket.socket] | None = None,
    ) -> None:
        """Start listening. Raises ``ConfigurationError`` if that is not possible."""
        try:
            if sock is not None:
                if port is not None or path is not None:
                    raise ConfigurationError("cannot listen: sock= excludes port and path=")
                self._sockets = given_sockets(sock, socket.SOCK_STREAM)
            elif path is not None:
                if port is not None:
                    raise ConfigurationError("cannot listen: path= excludes port")
                self._unix = UnixListener(path, backlog=BACKLOG)
                self._sockets = [self._unix.socket]
            else:
                addresses = await find_listening_addresses(host, port or 0, socket.SOCK_STREAM)
                self._sockets = bind_sockets(addresses, kind=socket.SOCK_STREAM)
            self.address = self._sockets[0].getsockname()
            for listener in self._sockets:
                self._watch(listener)
        except (OSError, ValueError) as error:
            self.close()
            if isinstance(error, ConfigurationError):
                raise
            raise ConfigurationError(
                f"cannot listen on {path if path is not None else f'{host}:{port}'}: {error}"
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """The first address as text."""
        return name_of(self.address)

    def close(self) -> None:
        """Stop listening, and remove the Unix path if it still belongs to this server. Can be called more than once."""
        if self._unix is not None:
            self._unix.remove()
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
        for _ in range(ACCEPTS_PER_TURN):
            if not self._sockets:
                return  # accepting a connection has closed the server
            try:
                accepted, _peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listener, error)
                return
            try:
                accepted.setblocking(False)
                self._accept(accepted)
            except BaseException:
                accepted.close()
                raise

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        """Leave the next connections in the kernel's queue for a moment."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())
        self._pauses[listener] = loop.call_later(ACCEPT_PAUSE_S, self._watch, listener)
        text = f"cannot accept connections on {self.name}: {error.strerror}; trying again every {ACCEPT_PAUSE_S:g} s"
        self._log.log(logging.ERROR, error.errno, text, SYSTEM_CLOCK.monotonic_ns())
