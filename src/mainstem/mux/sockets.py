"""Connecting and listening, the same for both multiplexers."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import socket
import ssl as ssl_module
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem._internal.address_prefixes import owner_of
from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK, timeout_of
from mainstem._internal.endpoint_stats import EndpointCounters
from mainstem._internal.eyeballs import NoneSucceededError, check_port, open_socket, race, resolve
from mainstem._internal.host_names import problem_of
from mainstem._internal.listening import name_of
from mainstem._internal.log_throttle import LogThrottle
from mainstem._internal.tasks import HANDLER_TASK, within
from mainstem.errors import ConfigurationError, ConnectionLost, Delivery, MainstemError, RemoteProtocolError, Timeout
from mainstem.mux.listening import ListeningSockets
from mainstem.mux.pending_connections import ConnectionAdmission, PendingConnection
from mainstem.mux.protocol import cancel_and_wait, cancel_tasks, connection_stats, logger
from mainstem.mux.tls import NOT_TLS, describe, handshake, server_context
from mainstem.mux.transports import SocketTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from mainstem._internal.endpoint_stats import EndpointStats
    from mainstem._internal.eyeballs import HostAddress
    from mainstem.mux.protocol import BaseProtocol
    from mainstem.mux.settings import ConnectionSettings
    from mainstem.mux.transports import TransportHandler

CONNECT_TIMEOUT_S = 10.0
# Errors of connecting if no server listens on the port, or on the path of a Unix socket.
NOBODY_LISTENS = frozenset({errno.ECONNREFUSED, errno.ENOENT})
# Minimum time between log lines about peers of one address that were refused for the same reason. Further ones are counted.
LOG_INTERVAL_NS = 60 * NS_PER_SECOND

E = TypeVar("E", bound="BaseProtocol")


@dataclass(frozen=True)
class ServerAddress:
    """An address to connect to: TCP (``host``, ``port``) or a Unix socket (``path``), with TLS if ``ssl`` is given."""

    host: str | None
    port: int | None
    path: str | None = None
    ssl: ssl_module.SSLContext | None = None
    server_hostname: str | None = None

    def __post_init__(self) -> None:
        if self.path is not None:
            object.__setattr__(self, "path", os.fsdecode(self.path))
            if not self.path:
                raise ConfigurationError("cannot connect: the path is empty; give the path of a Unix socket")
            if self.host is not None or self.port is not None:
                raise ConfigurationError("cannot connect: path= excludes host and port")
            if self.ssl is not None and self.server_hostname is None:
                raise ConfigurationError(
                    f"cannot connect to {self.path}: TLS over a Unix socket needs server_hostname=, "
                    "the name in the server's certificate"
                )
        elif self.host is None or self.port is None:
            raise ConfigurationError("connecting needs a host and a port, or path= for a Unix socket")
        else:
            check_port(self.port)
        if self.server_hostname and (problem := problem_of(self.server_hostname)):
            raise ConfigurationError(f"server_hostname {self.server_hostname!r} is not a host name: {problem}")
        if self.server_hostname is not None and self.ssl is None:
            raise ConfigurationError(
                f"cannot connect to {self}: server_hostname= is the name in a TLS certificate, and there is no TLS; "
                "pass ssl=True or ca="
            )

    def __str__(self) -> str:
        return name_of((self.host, self.port) if self.path is None else self.path)

    async def connect(self, handler: TransportHandler, timeout: float | None) -> None:
        """Connect ``handler`` over the first address that accepts and completes the TLS handshake.

        Raises ``ConnectionLost``, ``RemoteProtocolError`` if the server does not use TLS, ``ConfigurationError`` for what the
        caller must change, or ``Timeout`` after ``timeout`` seconds.
        """
        dial = _Dial(handler)
        try:
            async with asyncio.timeout(timeout_of(timeout)):
                if self.path is not None:
                    await self._connect_path(self.path, dial)
                else:
                    assert self.host is not None
                    assert self.port is not None
                    await self._connect_host(self.host, self.port, dial)
        except (TimeoutError, OSError, ValueError, NoneSucceededError) as error:
            dial.abort()
            if isinstance(error, TimeoutError) and timeout is not None:
                text = f"cannot connect to {self}: no answer within {timeout:g} s; check the address, and what lies between"
                raise Timeout(text, timeout=timeout) from None
            causes = [cause for _, cause in error.failures] if isinstance(error, NoneSucceededError) else [error]
            for cause in causes:
                # Only the system and the peer can make an attempt fail. Anything else is a mistake of the caller.
                if isinstance(cause, MainstemError):  # some are an OSError too
                    raise cause
                if isinstance(cause, ValueError) and not isinstance(cause, OSError):
                    raise ConfigurationError(f"cannot connect to {self}: {cause}") from cause
                if not isinstance(cause, OSError):
                    raise cause
            raise self._unreached(error) from (error.failures[0][1] if isinstance(error, NoneSucceededError) else error)
        except BaseException:
            dial.abort()
            raise

    def _unreached(self, error: Exception) -> ConnectionLost | RemoteProtocolError:
        """Return the error of a failed connection attempt, which says which address failed, at what, and why."""
        failures = error.failures if isinstance(error, NoneSucceededError) else [(None, error)]
        # Without an errno, the error does not come from the kernel: the peer broke off the handshake.
        in_tls = self.ssl is not None and all(
            isinstance(each, ssl_module.SSLError) or (isinstance(each, ConnectionError) and each.errno is None)
            for _, each in failures
        )
        texts = [describe(each) for _, each in failures]
        if len(set(texts)) > 1:
            texts = [f"{where[1][0]}: {text}" for (where, _), text in zip(failures, texts, strict=True) if where]
        reason = ", ".join(dict.fromkeys(texts))
        if in_tls:
            text = f"cannot connect to {self}: its TLS handshake failed: {reason}"
            if all(isinstance(each, ssl_module.SSLError) and each.reason in NOT_TLS for _, each in failures):
                return RemoteProtocolError(text, rule="tls", peer=str(self))
        elif all(isinstance(each, OSError) and each.errno in NOBODY_LISTENS for _, each in failures):
            where = "address" if self.path is None else "path"
            text = f"cannot connect to {self}: {reason}; start the server, or check its {where}"
        else:
            text = f"cannot connect to {self}: {reason}"
        return ConnectionLost(text, delivery=Delivery.NONE)

    async def _connect_path(self, path: str, dial: _Dial) -> None:
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {"ssl": self.ssl, "server_hostname": self.server_hostname}
        if not path.startswith("\0"):
            dial.connected(
                await SocketTransport.connected(lambda protocol: loop.create_unix_connection(protocol, path, **tls))
            )
            return
        # uvloop cannot connect to a name in the abstract namespace by itself.
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, path)
            dial.connected(
                await SocketTransport.connected(
                    lambda protocol: loop.create_unix_connection(protocol, sock=sock, **tls)
                )
            )
        except BaseException:
            sock.close()
            raise

    async def _connect_host(self, host: str, port: int, dial: _Dial) -> None:
        loop = asyncio.get_running_loop()

        async def attempt(address: HostAddress, _doubt: Callable[[], None]) -> None:
            sock = await open_socket(address)
            name = None if self.ssl is None else self.server_hostname or host

            async def connect(context: ssl_module.SSLContext | None) -> None:
                dial.connected(
                    await SocketTransport.connected(
                        lambda protocol: loop.create_connection(protocol, sock=sock, ssl=context, server_hostname=name)
                    )
                )

            try:
                await (connect(None) if self.ssl is None else handshake(sock, self.ssl, connect))
            except BaseException:
                sock.close()
                raise

        await race(await resolve(host, port, socket.SOCK_STREAM), attempt, discard=lambda _: None, timeout=None)


class _Dial:
    """One call to `ServerAddress.connect`, and the first transport that it opened."""

    def __init__(self, handler: TransportHandler) -> None:
        self._handler = handler
        self._transport: SocketTransport | None = None

    def connected(self, transport: SocketTransport) -> None:
        """Give the first transport to the handler, and abort any other."""
        if self._transport is not None:
            transport.abort()
            return
        self._transport = transport
        transport.start(self._handler)

    def abort(self) -> None:
        """Abort the transport that was opened before connecting failed or was given up."""
        if self._transport is not None:
            self._transport.abort()


class Server(Generic[E]):
    """Listening sockets and their connections, as returned by ``serve``. An ``async with`` block closes the server at its end."""

    def __init__(
        self,
        factory: Callable[[], E],
        protocol: str,
        settings: ConnectionSettings,
        ssl: ssl_module.SSLContext | bool | None,
    ) -> None:
        self._factory = factory
        self._settings = settings
        self._protocol = protocol
        self._traffic = EndpointCounters()
        self._closed = asyncio.Event()
        self._ssl = server_context(ssl, settings)
        self._admission = ConnectionAdmission(self._make_connection, settings, self._log_refusal)
        self._sockets = ListeningSockets(
            lambda accepted: PendingConnection(self._admission, accepted, self._ssl).start(),
            lambda: self._admission.places.drop_longest_silent(
                "it had sent nothing, and there are no free descriptors"
            ),
        )
        self._connections: set[E] = set()  # until their last handler has ended
        self._refusals = LogThrottle(logger, interval_ns=LOG_INTERVAL_NS)

    def stats(self) -> EndpointStats:
        """Return the current state and the counters, including ended connections. Can be called from any thread."""
        self._traffic.connections_refused = self._admission.places.refused
        self._traffic.connections_idle_closed = self._admission.places.dropped_silent
        return connection_stats(
            tuple(self._connections), self._traffic, protocol=self._protocol, role="server", closed=self.closed
        )

    def _make_connection(self) -> E:
        connection = self._factory()
        connection.count_into(self._traffic)
        self._connections.add(connection)
        connection.on_ended(lambda: self._on_ended(connection))
        connection.on_done(lambda: self._connections.discard(connection))
        return connection

    def _on_ended(self, connection: E) -> None:
        if isinstance(connection.failure, RemoteProtocolError):
            error = connection.failure
            text = f"a connection of {error.peer or 'a peer'} ended, rule {error.rule}: {error}"
            self._log_refusal(error.rule, owner_of(connection.peer_address), text)

    def _log_refusal(self, reason: str, address: str, text: str) -> None:
        """Log that a peer was refused: one line per reason, address and interval."""
        self._refusals.log(logging.WARNING, (reason, address), text, SYSTEM_CLOCK.monotonic_ns())

    @property
    def port(self) -> int | Any:
        """The TCP port on which the server listens, at every address; ``None`` for a Unix socket."""
        address = self._sockets.address
        return int(address[1]) if isinstance(address, tuple) else None

    @property
    def address(self) -> Any:
        """The address on which the server listens, in the form that its socket uses. If there are several, the first."""
        return self._sockets.address

    @property
    def closed(self) -> bool:
        """Whether the server is closed."""
        return self._closed.is_set()

    @property
    def error(self) -> MainstemError | None:
        """Always ``None``: only ``close`` and the like end a server."""
        return None

    def __repr__(self) -> str:
        where = "closed" if self.closed else f"on {self._sockets.name}, {self.stats().connections} connections"
        return f"<{self._protocol} Server {where}>"

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until the server is closed.

        Args:
            timeout: Seconds to wait; ``None`` waits forever.

        Raises:
            Timeout: The timeout passed; the server keeps running.
        """
        await within(timeout, self._closed.wait(), "wait for the end of the server")

    async def shutdown(self, timeout: float | None = None) -> None:
        """Stop listening, let running handlers finish, and close the server.

        Streams and requests that arrive meanwhile are not given to any handler. If a handler calls this, the call does not wait for
        that handler.

        Args:
            timeout: Seconds to wait for the handlers, after which the streams of the remaining ones are aborted; ``None`` waits
                forever.
        """
        self._stop_listening()
        deadline = math.inf if timeout is None else asyncio.get_running_loop().time() + timeout
        # Connections that have ended are only kept for their handlers, which `close` cancels.
        alive = [connection for connection in self._connections if not connection.over]
        # If a handler calls this, its connection must not wait for it.
        token = HANDLER_TASK.set(HANDLER_TASK.get() or asyncio.current_task())
        try:
            await asyncio.gather(*(connection.shutdown(deadline) for connection in alive))
        finally:
            HANDLER_TASK.reset(token)
        await self.close()

    async def close(self, timeout: float | None = None) -> None:
        """Stop listening, end all connections immediately, and cancel all handlers. Can be called more than once.

        Data that was written but not sent is dropped; :meth:`shutdown` sends it. A blocking handler cannot be cancelled, but the
        calls in which it waits end. If a handler calls this, the call does not wait for that handler.

        Args:
            timeout: Seconds to wait for the handlers to end; ``None`` uses ``close_timeout`` from the settings (10 by default).
        """
        timeout = self._settings.close_timeout if timeout is None else timeout
        ending = self._end()
        await cancel_and_wait(self._admission.tasks.union(*(connection.tasks for connection in ending)), timeout)
        for connection in ending:
            await connection.wait_ended()
        self._closed.set()

    def abort(self) -> None:
        """Close the server like :meth:`close`, but without waiting for handlers to end."""
        for connection in self._end():
            cancel_tasks(connection.tasks)
        self._closed.set()

    def _stop_listening(self) -> None:
        """Refuse new connections, and end those in their TLS handshake. Established connections continue."""
        self._sockets.close()
        self._admission.stop()

    def _end(self) -> list[E]:
        """Stop listening and end all connections; return those that still have handlers or a transport."""
        self._stop_listening()
        ending = list(self._connections)
        for connection in ending:
            connection.end(abort=True)
        self._refusals.flush(SYSTEM_CLOCK.monotonic_ns())
        return ending

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def start_server(
    server: Server[E],
    host: str | Sequence[str] | None,
    port: int | None,
    path: str | None,
    sock: socket.socket | Sequence[socket.socket] | None,
) -> Server[E]:
    """Start listening, and return the server. Raises ``ConfigurationError`` if it cannot listen on the address."""
    await server._sockets.start(host, port, path, sock)
    return server
