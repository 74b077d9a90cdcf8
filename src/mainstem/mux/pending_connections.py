"""Accepted sockets of a server, until a connection takes them: limits, TLS, and the deadline for the first byte.

Theory of operation
-------------------
A connection costs a descriptor and an engine before its peer has proved anything, so peers that only connect must not keep others
out. A ``PendingConnection`` owns an accepted socket from the start. It checks the address before TLS begins. It also starts TLS
itself, because asyncio's TLS servers do not track handshakes that fail or never end. If a handshake fails, the peer gets a TLS
alert and the operator is informed through ``on_refused``.

    accepted ──limits──► refused
        │
        ├──no room──► held ──a place is free──┐
        │                                     │
        ├──TLS──► handshake ◄─────────────────┤
        ▼             │                       │
     served, silent ◄─┴───────────────────────┘
        │
        └──first byte──► served

A pending connection that is not served yet ends if it takes too long, if its place is needed, or if the server stops listening.
One that is served but silent ends in the first two cases.

``Admission`` manages the places (:mod:`mainstem._internal.admission`). A pending connection keeps its place until its socket is
gone and every handler of its connection has ended, so that a peer cannot exceed the limit on handlers by reconnecting. An IPv6 /64
network counts as one address, because its owner has all of its addresses. A connection that has sent anything is never ended in
favor of another. (The connections of HTTP servers, :mod:`mainstem._internal.http_listener`, give their places back with their
sockets, and have a deadline for the head of each request.)

Everything runs in the event loop's thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mainstem._internal.address_prefixes import owner_of
from mainstem._internal.admission import Admission
from mainstem._internal.listening import name_of
from mainstem._internal.tasks import start_task
from mainstem.errors import Timeout
from mainstem.mux.settings import MAX_CONNECTIONS
from mainstem.mux.tls import HANDSHAKE_FAILURE, describe, handshake
from mainstem.mux.transports import SocketTransport

if TYPE_CHECKING:
    import socket
    import ssl as ssl_module
    from collections.abc import Callable

    from mainstem.mux.protocol import BaseProtocol
    from mainstem.mux.settings import ConnectionSettings


class ConnectionAdmission:
    """The sockets that a server has accepted, from admission to the end of their last handler."""

    def __init__(
        self,
        connection_factory: Callable[[], BaseProtocol],
        settings: ConnectionSettings,
        on_refused: Callable[[str, str, str], object],
    ) -> None:
        self.on_refused = on_refused
        self.places: Admission[PendingConnection] = Admission(
            max_connections=settings.max_connections or MAX_CONNECTIONS,
            max_connections_per_address=settings.max_connections_per_address,
        )
        self.connection_factory = connection_factory
        self.handshake_timeout = settings.handshake_timeout
        self.tasks: set[asyncio.Task[None]] = set()  # for sockets that have no connection yet

    def __len__(self) -> int:
        return len(self.places)

    def stop(self) -> None:
        """Refuse further sockets, and end those that have no connection yet. Can be called more than once."""
        for pending in self.places.stop():
            pending.end_unserved()


class PendingConnection:
    """One accepted socket until its connection takes it; after that, its record for the limits."""

    def __init__(self, admission: ConnectionAdmission, sock: socket.socket, ssl: ssl_module.SSLContext | None) -> None:
        self.address = ""
        self._admission = admission
        self._ssl = ssl
        self._loop = asyncio.get_running_loop()
        # The socket is in one of these at a time: held as accepted, in a task, or in a connection.
        self._held: socket.socket | None = sock
        self._task: asyncio.Task[None] | None = None
        self._connection: BaseProtocol | None = None
        self._transport: SocketTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_gone = False

    @property
    def is_silent(self) -> bool:
        """Whether the socket is alive and has received nothing from the peer except its TLS handshake."""
        if self._connection is None or self._transport is None:
            return True
        return not (self._connection.over or self._transport.has_received)

    def start(self) -> None:
        """Admit the socket, or close it."""
        assert self._held is not None
        try:
            self.address = owner_of(self._held.getpeername())
        except OSError:  # the peer has disconnected
            self._held.close()
            return
        if self._admission.handshake_timeout is not None:
            self._timer = self._loop.call_later(self._admission.handshake_timeout, self._on_deadline)
        if not self._admission.places.admit(self):
            self._held.close()
            self._gone()

    def begin(self) -> None:
        """Start TLS or the connection, because the socket has a place."""
        assert self._held is not None
        self._task = task = start_task(self._take(self._held), self._loop)
        self._admission.tasks.add(task)
        task.add_done_callback(self._admission.tasks.discard)

    async def _take(self, held: socket.socket) -> None:
        """Make a transport from the socket, with TLS if there is a context."""
        self._held = None
        timeout = None if self._ssl is None else self._admission.handshake_timeout

        async def connect(context: ssl_module.SSLContext | None) -> SocketTransport:
            return await SocketTransport.connected(
                lambda protocol: self._loop.connect_accepted_socket(
                    protocol, held, ssl=context, ssl_handshake_timeout=timeout
                )
            )

        peer = None
        try:
            if self._ssl is None:
                transport = await connect(None)
            else:
                peer = held.getpeername()
                transport = await handshake(held, self._ssl, connect, farewell=HANDSHAKE_FAILURE)
        except (OSError, TimeoutError) as error:
            # The peer does not speak TLS, has no acceptable certificate, or rejects this end's certificate.
            if not self._is_gone:
                reason = describe(error)
                text = f"the TLS handshake of {name_of(peer)} failed: {reason}"
                self._admission.on_refused(reason, self.address, text)
            held.close()
            self._gone()
            return
        except BaseException:
            held.close()
            self._gone()
            raise
        self.serve(transport)  # whose errors are not the handshake's

    def drop(self, reason: str) -> None:
        """End the connection from this side."""
        if self._connection is not None:
            self._connection.end(Timeout(f"the connection was ended: {reason}"), abort=True)
        else:
            self.end_unserved()

    def end_unserved(self) -> None:
        """Close the socket if it has no connection yet, because it is held or in its TLS handshake."""
        if self._connection is not None:
            return
        if self._held is not None:  # also if there is a task, which may be cancelled before its first step
            self._held.close()
        if self._task is not None:
            self._task.cancel()
        self._gone()

    def serve(self, transport: SocketTransport) -> None:
        """Pass the transport to a new connection."""
        if self._is_gone:  # a handshake can complete in the same turn in which it is given up
            transport.abort()
            return
        try:
            self._connection = connection = self._admission.connection_factory()
            connection.on_done(self._gone)
            self._transport = transport
            transport.start(connection)
        except BaseException:
            self._gone()
            transport.abort()
            raise

    def _on_deadline(self) -> None:
        self._timer = None
        if self.is_silent:
            self._admission.places.dropped_silent += 1
            self.drop(f"it had sent nothing for {self._admission.handshake_timeout:g} s")

    def _gone(self) -> None:
        self._is_gone = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._admission.places.leave(self)
