"""The sockets that a server accepts, until a connection has them: limits, TLS, and the first byte in time.

Theory of operation
-------------------
A connection costs a descriptor and an engine before its peer has proved anything, so a peer that only connects must not keep others
out. A ``PendingConnection`` holds an accepted socket from the first moment. It checks the address before TLS begins, and begins TLS
itself, since asyncio's own TLS servers keep no account of handshakes that fail or never end. A handshake that fails is reported to
the peer by TLS's alert, and to the operator by ``on_refused``.

    accepted ──limits──► refused
        │
        ├──no room──► held ──a place is free──┐
        │                                     │
        ├──TLS──► handshake ◄─────────────────┤
        ▼             │                       │
     served, silent ◄─┴───────────────────────┘
        │
        └──first byte──► served

A pending that is not served yet ends when it takes too long, when its place is needed, and when the listener stops; one that is
served and silent ends for the first two.

``Admission`` has the places (:mod:`mainstem.mux.admission`). A pending has its place until its socket is gone and every handler
of its connection has ended: a peer cannot have more handlers run than the limits allow by connecting again. An IPv6 /64 network
counts as one address, since its owner has all of them. A connection that has sent anything is never ended for another.

Everything runs in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from mainstem._internal.address_prefixes import owner_of
from mainstem._internal.listening import name_of
from mainstem._internal.tasks import start_task
from mainstem.errors import Timeout
from mainstem.mux.admission import Admission
from mainstem.mux.settings import MAX_CONNECTIONS
from mainstem.mux.tls import describe, handshake
from mainstem.mux.transports import SocketTransport

if TYPE_CHECKING:
    import socket
    import ssl as ssl_module
    from collections.abc import Callable, Iterator

    from mainstem.mux.connection import BaseConnection
    from mainstem.mux.settings import ConnectionSettings


class ConnectionAdmission:
    """The sockets that a listener has accepted, from admission to the end of their last handler."""

    def __init__(
        self,
        connection_factory: Callable[[], BaseConnection],
        settings: ConnectionSettings,
        on_refused: Callable[[str], object],
    ) -> None:
        self.on_refused = on_refused
        self.places: Admission[PendingConnection] = Admission(
            max_connections=settings.max_connections or MAX_CONNECTIONS,
            max_connections_per_address=settings.max_connections_per_address,
        )
        self.connection_factory = connection_factory
        self.handshake_timeout = settings.handshake_timeout
        self.tasks: set[asyncio.Task[None]] = set()  # of sockets that have no connection yet

    def __len__(self) -> int:
        return len(self.places)

    def stop(self) -> None:
        """Admit no more, and end the sockets that have no connection yet. Calling it twice is fine."""
        for pending in self.places.stop():
            pending.end_unserved()


class PendingConnection:
    """One accepted socket, until its connection has it; then what is known of it for the limits."""

    def __init__(self, admission: ConnectionAdmission, sock: socket.socket, ssl: ssl_module.SSLContext | None) -> None:
        self.address = ""
        self._admission = admission
        self._ssl = ssl
        self._loop = asyncio.get_running_loop()
        # The socket is in one of these at a time: as it was accepted, in a task, in a connection.
        self._held: socket.socket | None = sock
        self._task: asyncio.Task[None] | None = None
        self._connection: BaseConnection | None = None
        self._transport: SocketTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_gone = False

    @property
    def is_silent(self) -> bool:
        """Whether the connection lives and not a byte has come from the peer, but for its TLS handshake."""
        if self._connection is None or self._transport is None:
            return True
        return not (self._connection.over or self._transport.has_received)

    def start(self) -> None:
        """Admit the socket, or end it."""
        assert self._held is not None
        try:
            self.address = owner_of(self._held.getpeername())
        except OSError:  # it has left
            self._held.close()
            return
        if self._admission.handshake_timeout is not None:
            self._timer = self._loop.call_later(self._admission.handshake_timeout, self._on_deadline)
        if not self._admission.places.admit(self):
            self._held.close()
            self._gone()

    def begin(self) -> None:
        """Begin TLS, or the connection: it has a place."""
        assert self._held is not None
        self._task = task = start_task(self._take(self._held), self._loop)
        self._admission.tasks.add(task)
        task.add_done_callback(self._admission.tasks.discard)

    async def _take(self, held: socket.socket) -> None:
        """Make a transport of the socket, with TLS where there is a context."""
        self._held = None
        timeout = None if self._ssl is None else self._admission.handshake_timeout

        async def connect(context: ssl_module.SSLContext | None) -> None:
            await self._loop.connect_accepted_socket(
                lambda: _Taken(self), held, ssl=context, ssl_handshake_timeout=timeout
            )

        peer = None
        try:
            if self._ssl is None:
                await connect(None)
            else:
                peer = held.getpeername()
                await handshake(held, self._ssl, connect)
        except (OSError, TimeoutError) as error:
            # A peer that speaks no TLS, has no certificate that is accepted, or does not accept this end's.
            if not self._is_gone:
                self._admission.on_refused(f"the TLS handshake of {name_of(peer)} failed: {describe(error)}")
            held.close()
            self._gone()
        except BaseException:
            self._gone()
            raise

    @contextlib.contextmanager
    def _ends_on_error(self, transport: asyncio.Transport) -> Iterator[None]:
        """End the socket on an exception, which the event loop would only log."""
        try:
            yield
        except BaseException:
            self._gone()
            transport.abort()
            raise

    def drop(self, reason: str) -> None:
        """End the connection from this side."""
        if self._connection is not None:
            self._connection.end(Timeout(f"the connection was ended: {reason}"), abort=True)
        else:
            self.end_unserved()

    def end_unserved(self) -> None:
        """End the socket if it has no connection yet: it is held, or in its TLS handshake."""
        if self._connection is not None:
            return
        if self._held is not None:  # with a task too, if that is cancelled before its first step
            self._held.close()
        if self._task is not None:
            self._task.cancel()
        self._gone()

    def serve(self, transport: asyncio.Transport) -> None:
        """Give the transport to a connection."""
        if self._is_gone:  # a handshake may complete in the turn in which it is given up
            transport.abort()
            return
        with self._ends_on_error(transport):
            self._connection = connection = self._admission.connection_factory()
            connection.on_done(self._gone)
            self._transport = protocol = SocketTransport(connection)
            transport.set_protocol(protocol)
            protocol.connection_made(transport)

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


class _Taken(asyncio.Protocol):
    """A socket that was taken from its first transport, once its TLS handshake, if any, is complete."""

    def __init__(self, pending: PendingConnection) -> None:
        self._arrival = pending

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._arrival.serve(cast("asyncio.Transport", transport))
