"""Connections of the HTTP servers: recordings, the live page, and metrics.

A protocol behind ``HttpListener`` reads requests and writes responses. In front of it, for every server alike:

- The number of connections is limited, also per address. A connection counts as soon as it is accepted, before TLS.
- A connection that has not completed a request is silent. If a limit is reached, or there are no free descriptors, the one that
  has been silent longest is ended, so silent connections cannot keep others out (:mod:`mainstem._internal.admission`).
  It gives its place back with its socket; that of a multiplexer keeps it until its last handler has ended.
- The head of a request has a deadline, from its first byte or the connection's first moment.
- The log is throttled. It contains addresses, but nothing that a peer has sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from mainstem._internal.accept_loop import AcceptLoop
from mainstem._internal.address_prefixes import owner_of
from mainstem._internal.admission import Admission
from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.tasks import start_task

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Sequence

    from mainstem._internal.log_throttle import LogThrottle

BACKLOG = 256
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """The limits of a server on its connections. The defaults are suitable for a process with 1024 file descriptors."""

    # A connection needs a descriptor, and one more while it sends a file.
    connections: int = 384
    # An executor has one connection for each task that reads. A single host must not take all connections.
    connections_per_address: int = 128
    # For the TLS handshake, and for the head of a request from its first byte to its last. A peer that is slower is cut off.
    head_seconds: float = 10.0


@dataclass
class ConnectionCounts:
    """The connections of a server, and those that it refused, by reason."""

    connections: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class HttpConnection(asyncio.Protocol):
    """One accepted socket. It passes everything on to the inner protocol, and ends if the head of a request is late."""

    def __init__(self, listener: HttpListener, sock: socket.socket, address: str) -> None:
        self.address = address
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        # The socket is in one of these at a time: held as accepted, in a task, or in a transport.
        self._held: socket.socket | None = sock
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._inner: asyncio.Protocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_requested = self._is_busy = self._has_more = self._is_gone = False
        self._start_timer()

    # -- admission ---------------------------------------------------------------------------------------------------

    @property
    def is_silent(self) -> bool:
        """Whether no request of the connection is complete yet."""
        return not (self._has_requested or self._is_gone)

    def begin(self) -> None:
        assert self._held is not None
        self._task = start_task(self._start(self._held), self._loop)
        self._listener.tasks.add(self._task)
        self._task.add_done_callback(self._listener.tasks.discard)

    def drop(self, _reason: str = "") -> None:
        """End the connection at once. Can be called more than once."""
        if self._transport is not None:
            self._transport.abort()
        else:
            if self._held is not None:  # also if there is a task, which may be cancelled before its first step
                self._held.close()
            if self._task is not None:
                self._task.cancel()
        self._gone()

    def end_unserved(self) -> None:
        """End the connection if it waits for a place or is in its TLS handshake."""
        if self._transport is None:
            self.drop()

    async def _start(self, sock: socket.socket) -> None:
        self._held = None
        listener = self._listener
        timeout = listener.limits.head_seconds if listener.tls else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self, sock, ssl=listener.tls, ssl_handshake_timeout=timeout
            )
        except OSError:  # including TimeoutError
            if not self._is_gone:
                listener.counts.refused["handshake"] += 1
            self._gone()
        except BaseException:
            self._gone()
            raise

    def _gone(self) -> None:
        self._is_gone = True
        self._stop_timer()
        if self._inner is not None:
            self._listener.connections.pop(self._inner, None)
        self._listener.left(self)

    # -- requests ----------------------------------------------------------------------------------------------------

    def request_started(self) -> None:
        """Note that a request is complete and being handled."""
        self._has_requested = True
        self._is_busy, self._has_more = True, False
        self._stop_timer()

    def request_ended(self) -> None:
        """Note that the response was sent. Data that arrived in the meantime starts the next request."""
        self._is_busy = False
        if self._has_more and not self._is_gone:
            self._start_timer()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._listener.limits.head_seconds, self._late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self.drop()

    # -- the transport -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._is_gone:  # a handshake can complete in the same turn in which it is given up
            self._transport.abort()
            return
        self._inner = self._listener.protocol_factory()
        self._listener.connections[self._inner] = self
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._inner is None:
            return
        if self._is_busy:
            self._has_more = True
        else:
            self._start_timer()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        if self._inner is not None:
            self._inner.connection_lost(exc)


class HttpListener:
    """Accepts connections on listening sockets within limits, and gives each to a protocol of its own."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        protocol_factory: Callable[[], asyncio.Protocol],
        limits: ConnectionLimits,
        counts: ConnectionCounts,
        log: LogThrottle,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.protocol_factory, self.limits, self.counts, self.tls = protocol_factory, limits, counts, tls
        self.connections: dict[asyncio.Protocol, HttpConnection] = {}  # by the inner protocol
        self.tasks: set[asyncio.Task[None]] = set()  # for sockets that have no transport yet
        self._log = log
        self._places: Admission[HttpConnection] = Admission(
            max_connections=limits.connections, max_connections_per_address=limits.connections_per_address
        )
        self._loop = AcceptLoop(sockets, self._accept, log, self._make_room)

    def connection_of(self, protocol: asyncio.Protocol) -> HttpConnection | None:
        """Return the connection of an inner protocol, or None if it is lost."""
        return self.connections.get(protocol)

    def start(self) -> None:
        self._loop.start()

    async def close(self, *, abort: bool = False) -> None:
        """Stop accepting, close the sockets, and end connections whose handshake is not complete, or all of them."""
        self._loop.close()
        for connection in self._places.stop():
            if abort:
                connection.drop()
            else:
                connection.end_unserved()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def left(self, connection: HttpConnection) -> None:
        """Give the place of a connection that is gone to the next one."""
        self._places.leave(connection)
        self.counts.connections = len(self._places)

    def _accept(self, accepted: socket.socket) -> None:
        try:
            peer = accepted.getpeername()
        except OSError:  # the peer has disconnected
            accepted.close()
            return
        connection = HttpConnection(self, accepted, owner_of(peer))
        if self._places.admit(connection):
            self.counts.connections = len(self._places)
            return
        reason = "connections of one address" if self._places.is_share_full(connection.address) else "connections"
        self.counts.refused[reason] += 1
        text = f"a connection of {peer[0]} is refused: the limit of {reason} is reached"
        self._log.log(logging.WARNING, reason, text, SYSTEM_CLOCK.monotonic_ns())
        if self.tls is None:
            with suppress(OSError):  # the peer has disconnected
                accepted.send(_BUSY)
        connection.drop()

    def _make_room(self) -> bool:
        return self._places.drop_longest_silent("it had completed no request, and there are no free descriptors")
