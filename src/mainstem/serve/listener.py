"""Accepts connections within limits, and cuts them off if the head of a request takes too long.

aiohttp's protocol parses requests, and closes connections that have no request. ``ConnectionGuard`` is in front of it. It starts a
timer at the first byte of a request and stops it when the request is complete. A connection is counted from the moment it is
accepted, before the TLS handshake, so that connections that never complete the handshake count too.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from typing import TYPE_CHECKING, cast

from mainstem._internal.address_prefixes import owner_of
from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.log_throttle import LogThrottle

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Sequence

    from aiohttp import web

    from mainstem.serve.limits import Limits
    from mainstem.serve.metrics import ServerMetrics

# If the process or the system has no free descriptor, accepting pauses, and connections wait in the kernel's queue.
ACCEPT_PAUSE_S = 0.1
ACCEPT_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
BACKLOG = 256
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

log = LogThrottle(logging.getLogger("mainstem.serve"))


class ConnectionGuard(asyncio.Protocol):
    """One connection. It passes everything on to aiohttp's protocol, and aborts the connection if the head of a request is late."""

    def __init__(self, inner: web.RequestHandler, head_seconds: float, on_lost: Callable[[], None]) -> None:
        self.inner = inner
        self._head_seconds = head_seconds
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_busy = self._has_more = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._start_timer()
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._is_busy:
            self._has_more = True
        else:
            self._start_timer()
        self.inner.data_received(data)

    def eof_received(self) -> None:
        self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._on_lost()
        self.inner.connection_lost(exc)

    def request_started(self) -> None:
        """Note that a request is complete and being handled."""
        self._is_busy, self._has_more = True, False
        self._stop_timer()

    def request_ended(self) -> None:
        """Note that the response was sent. Data that arrived in the meantime starts the next request."""
        self._is_busy = False
        if self._has_more:
            self._start_timer()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._head_seconds, self._late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self._transport is not None:
            self._transport.abort()


class Listener:
    def __init__(
        self,
        listening: Sequence[socket.socket],
        server: Callable[[], web.RequestHandler],
        limits: Limits,
        metrics: ServerMetrics,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._sockets, self._server, self._limits, self._metrics, self._tls = listening, server, limits, metrics, tls
        self._addresses: Counter[str] = Counter()
        self._guards: dict[web.RequestHandler, ConnectionGuard] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._accepting: list[asyncio.Task[None]] = []

    def guard_of(self, protocol: web.RequestHandler) -> ConnectionGuard | None:
        """Return the guard of the connection that a request arrived on, or None if the connection is lost."""
        return self._guards.get(protocol)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            listening.setblocking(False)
            self._accepting.append(loop.create_task(self._accept(listening)))

    async def close(self) -> None:
        """Stop accepting connections, and close those whose handshake is not complete."""
        tasks = [*self._accepting, *self._starting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listening in self._sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:
                # Otherwise, the peer disconnected before it was accepted.
                if error.errno in ACCEPT_ERRORS:
                    self._log("descriptors", f"no connection is accepted for a moment: {error.strerror}")
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            address = owner_of(peer)
            reason = self._full(address)
            if reason:
                self._refuse(accepted, reason, str(peer[0]))
                continue
            self._metrics.connections += 1
            self._addresses[address] += 1
            task = loop.create_task(self._start(accepted, address))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    def _full(self, address: str) -> str:
        if self._metrics.connections >= self._limits.connections:
            return "connections"
        if self._addresses[address] >= self._limits.connections_per_address:
            return "connections of one address"
        return ""

    def _refuse(self, accepted: socket.socket, reason: str, peer: str) -> None:
        self._metrics.refused[reason] += 1
        self._log(reason, f"a connection of {peer} is refused: the limit of {reason} is reached")
        try:
            accepted.setblocking(False)
            if self._tls is None:
                accepted.send(_BUSY)
        except OSError:
            pass  # the peer has disconnected
        accepted.close()

    async def _start(self, accepted: socket.socket, address: str) -> None:
        inner = self._server()
        is_counted = True

        def lost() -> None:
            nonlocal is_counted
            self._guards.pop(inner, None)
            if is_counted:
                is_counted = False
                self._metrics.connections -= 1
                self._addresses[address] -= 1
                if not self._addresses[address]:
                    del self._addresses[address]

        guard = self._guards[inner] = ConnectionGuard(inner, self._limits.head_seconds, lost)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: guard,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._limits.head_seconds if self._tls else None,
            )
        except (OSError, asyncio.CancelledError) as error:
            lost()
            if isinstance(error, asyncio.CancelledError):
                raise
            self._metrics.refused["handshake"] += 1

    @staticmethod
    def _log(kind: str, text: str) -> None:
        log.log(logging.WARNING, kind, text, SYSTEM_CLOCK.monotonic_ns())
