"""The sockets that a server listens on: one per address of its host, all with the same port, a Unix path, or given sockets."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any

from mainstem._internal.accept_loop import AcceptLoop
from mainstem._internal.clock import NS_PER_SECOND
from mainstem._internal.listening import BACKLOG, bind_sockets, find_listening_addresses, given_sockets, name_of
from mainstem._internal.log_throttle import LogThrottle
from mainstem._internal.unix_listening import UnixListener
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

logger = logging.getLogger("mainstem.mux")

ACCEPT_LOG_INTERVAL_NS = 60 * NS_PER_SECOND


class ListeningSockets:
    """The listening sockets of one server. They call ``accept`` and ``make_room`` as an ``AcceptLoop`` does."""

    def __init__(
        self, accept: Callable[[socket.socket], object], make_room: Callable[[], bool] = lambda: False
    ) -> None:
        self.address: Any = None  # the first address, in the form that its socket uses
        self._accept, self._make_room = accept, make_room
        self._sockets: list[socket.socket] = []
        self._loop: AcceptLoop | None = None
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
            self._loop = AcceptLoop(self._sockets, self._accept, self._log, self._make_room)
            self._loop.start()
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
        if self._loop is not None:
            self._loop.close()
        for listener in self._sockets:
            listener.close()
