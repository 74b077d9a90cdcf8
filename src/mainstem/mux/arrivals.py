"""Who may connect to a listener: limits in all and for each address, TLS, and the first byte in time.

Theory of operation
-------------------
A connection costs a descriptor and an engine before its peer has proved anything, so a peer that only connects must not keep others
out. An ``Arrival`` holds an accepted socket from the first moment: its address is checked before TLS begins, and TLS is begun by
the arrival itself, since asyncio's own TLS servers keep no account of handshakes that fail or never end.

    accepted ──limits──► refused
        │
        ├──TLS──► handshake ──failed or too late──► gone
        ▼
     served, silent ──first byte──► served
        └──too late, or the room is needed──► gone

``Arrivals`` counts them all, and has two rules for a full house. No address has more than its share; an IPv6 /64 network counts as
one address, since its owner has all of them. And where a new connection finds no room, in all or in its address's share, the one
there that has been silent for longest makes it: a connection that has sent anything is never ended for another.

Everything runs in the event loop's thread. An arrival is in ``Arrivals`` exactly from its admission to the end of its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from mainstem._internal.tasks import start_task
from mainstem.amounts import check_seconds, check_whole
from mainstem.errors import TimedOut
from mainstem.mux.transports import SocketTransport
from mainstem.prefixes import Prefixes

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Callable, Iterator

    from mainstem.mux.engine import Engine

# Connections that one listener serves at once; each may hold its windows' worth of memory.
MAX_CONNECTIONS = 1024
# Of these, from one address: multiplexed streams share a connection, so that a host needs few.
MAX_CONNECTIONS_PER_ADDRESS = 256
# Seconds for TLS and the peer's first byte, which every client of ours sends at once.
HANDSHAKE_TIMEOUT_S = 15.0
PREFIXES = Prefixes()


class Arrivals:
    """The sockets that a listener has accepted, from admission to their end."""

    def __init__(
        self,
        engine_factory: Callable[[], Engine],
        *,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
        handshake_timeout: float | None = HANDSHAKE_TIMEOUT_S,
    ) -> None:
        limits = {"max_connections": max_connections, "max_connections_per_address": max_connections_per_address}
        check_whole(limits, least=1)
        if handshake_timeout is not None:
            check_seconds({"handshake_timeout": handshake_timeout})
        self.engine_factory = engine_factory
        self.handshake_timeout = handshake_timeout
        self.refused = 0
        self.dropped_silent = 0
        self._max = max_connections
        self._max_per_address = max_connections_per_address
        self._all: set[Arrival] = set()
        self._silent: dict[Arrival, None] = {}  # the oldest first; those that have spoken since leave when they are met
        self._of_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, arrival: Arrival) -> bool:
        """Counts an arrival; false where it is one too many, of its address or in all."""
        of_address = self._of_address[arrival.address] if arrival.address else 0
        if (of_address >= self._max_per_address and not self._drop_silent(arrival.address)) or (
            len(self._all) >= self._max and not self._drop_silent()
        ):
            self.refused += 1
            return False
        self._all.add(arrival)
        self._silent[arrival] = None
        if arrival.address:
            self._of_address[arrival.address] += 1
        return True

    def forget(self, arrival: Arrival) -> None:
        """An arrival's socket is gone. Twice is fine."""
        if arrival not in self._all:
            return
        self._all.discard(arrival)
        self._silent.pop(arrival, None)
        if arrival.address:
            self._of_address[arrival.address] -= 1
            if not self._of_address[arrival.address]:
                del self._of_address[arrival.address]

    def abort_handshakes(self) -> set[asyncio.Task[None]]:
        """Ends the sockets that are still in their TLS handshake; returns the tasks to wait for."""
        return {task for arrival in list(self._all) if (task := arrival.abort_handshake()) is not None}

    def _drop_silent(self, address: str = "") -> bool:
        """Ends the connection, of that address or of any, that is silent for longest; false where every one has spoken."""
        for arrival in list(self._silent):
            if not arrival.is_silent:
                del self._silent[arrival]
            elif address in ("", arrival.address):
                self.dropped_silent += 1
                self.forget(arrival)
                arrival.drop("it had sent nothing, and its place was needed")
                return True
        return False


class Arrival(asyncio.Protocol):
    """One accepted socket, until its engine has it; then what is known of it for the limits."""

    def __init__(self, arrivals: Arrivals, ssl: ssl_module.SSLContext | None) -> None:
        self.address = ""
        self._arrivals = arrivals
        self._ssl = ssl
        self._loop = asyncio.get_running_loop()
        # The socket, until its TLS handshake begins.
        self._accepted: socket.socket | None = None
        self._engine: Engine | None = None
        self._transport: SocketTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Task[None] | None = None

    @property
    def is_silent(self) -> bool:
        """Whether not a byte has come from the peer, but for its TLS handshake."""
        return self._transport is None or not self._transport.has_received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admits the socket, or ends it."""
        # Transports of other event loops (uvloop) do not inherit from asyncio's.
        raw = cast("asyncio.Transport", transport)
        with self._ends_on_error(raw):
            self.address = _address(raw.get_extra_info("peername"))
            if not self._arrivals.admit(self):
                raw.abort()
                return
            if self._arrivals.handshake_timeout is not None:
                self._timer = self._loop.call_later(self._arrivals.handshake_timeout, self._on_deadline)
            if self._ssl is None:
                self.serve(raw)
            else:
                self._start_tls(raw, self._ssl)

    @contextlib.contextmanager
    def _ends_on_error(self, transport: asyncio.Transport) -> Iterator[None]:
        """Ends the socket on an exception, which the event loop would only log."""
        try:
            yield
        except BaseException:
            self._gone()
            transport.abort()
            raise

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The socket ended before anything was made of it."""
        if self._handshake is None:
            self._gone()

    def drop(self, reason: str) -> None:
        """Ends the connection from this side."""
        if self._engine is not None:
            self._engine.end(TimedOut(f"the connection was ended: {reason}"), abort=True)
        else:
            self.abort_handshake()

    def abort_handshake(self) -> asyncio.Task[None] | None:
        """Ends the socket if it is in its TLS handshake; returns the task that ends then."""
        if self._handshake is None or self._handshake.done():
            return None
        self._handshake.cancel()
        # A task that is cancelled before its first step runs none of its own clean-up.
        self._gone()
        if self._accepted is not None:
            self._accepted.close()
        return self._handshake

    def _start_tls(self, raw: asyncio.Transport, ssl: ssl_module.SSLContext) -> None:
        """Moves the socket from its plain transport to one with TLS.

        `loop.start_tls` cannot do it here: uvloop has already passed on the peer's first bytes when it begins.
        """
        self._accepted = accepted = socket.socket(fileno=os.dup(raw.get_extra_info("socket").fileno()))
        raw.abort()
        self._handshake = start_task(self._shake_hands(accepted, ssl), self._loop)

    async def _shake_hands(self, accepted: socket.socket, ssl: ssl_module.SSLContext) -> None:
        self._accepted = None
        try:
            await self._loop.connect_accepted_socket(
                lambda: _Secured(self), accepted, ssl=ssl, ssl_handshake_timeout=self._arrivals.handshake_timeout
            )
        except (OSError, TimeoutError):
            # A peer that speaks no TLS, or has no certificate that is accepted: its handshake's alert is on its way.
            self._gone()
        except BaseException:
            self._gone()
            raise

    def serve(self, transport: asyncio.Transport) -> None:
        """Gives the transport to an engine."""
        with self._ends_on_error(transport):
            self._engine = engine = self._arrivals.engine_factory()
            engine.on_ended(self._gone)
            self._transport = protocol = SocketTransport(engine)
            transport.set_protocol(protocol)
            protocol.connection_made(transport)

    def _on_deadline(self) -> None:
        self._timer = None
        if self.is_silent:
            self._arrivals.dropped_silent += 1
            self.drop(f"it had sent nothing for {self._arrivals.handshake_timeout:g} s")

    def _gone(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._arrivals.forget(self)


class _Secured(asyncio.Protocol):
    """A socket whose TLS handshake is complete."""

    def __init__(self, arrival: Arrival) -> None:
        self._arrival = arrival

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._arrival.serve(cast("asyncio.Transport", transport))


def _address(peername: Any) -> str:
    """What one address is for the limits: an IPv4 address, an IPv6 network; empty for a Unix socket."""
    return PREFIXES.of(str(peername[0]).partition("%")[0]) if isinstance(peername, tuple) else ""
