"""`serve`, which starts a server. The server routes datagrams to its connections by connection id."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from mainstem._internal.address_prefixes import owner_of
from mainstem._internal.endpoint_stats import EndpointCounters, add_counters
from mainstem._internal.exit_cleanup import INHERITED
from mainstem._internal.listening import bind_sockets, find_listening_addresses, given_sockets
from mainstem._internal.log_throttle import kind_of
from mainstem._internal.opening import Opening
from mainstem._internal.overrides import apply_overrides
from mainstem._internal.tasks import HANDLER_TASK, as_coroutine_function, start_task, within
from mainstem.aqueduct.admission import Admission, FirstPackets
from mainstem.aqueduct.connection import DRAIN_S, LINGER_S, Connection, HeaderSource
from mainstem.aqueduct.context import ConnectionCounters
from mainstem.aqueduct.engine import AqueductEngine
from mainstem.aqueduct.frames import HANDLER_FAILED, NO_PLACE, PROTOCOL_ERROR, SERIALIZATION_ERROR, Headers, as_headers
from mainstem.aqueduct.protocol import AqueductProtocol, logger
from mainstem.aqueduct.quic import load_backend
from mainstem.aqueduct.quic.lifecycle import PEERS_COMPLAINT
from mainstem.aqueduct.quic.udp import UdpSocket
from mainstem.aqueduct.serializers import RAW, Serializer, choose, offer_headers
from mainstem.aqueduct.settings import CID_LENGTH, Settings
from mainstem.aqueduct.stats import connection_stats
from mainstem.aqueduct.udp_endpoint import LONG_HEADER, UdpEndpoint
from mainstem.errors import ChannelError, ClosedError, ConnectionLost, Delivery, LocalProtocolError, RemoteProtocolError
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.adapter import QuicAdapter
    from mainstem.aqueduct.quic.server_context import PacketHeader, ServerContext
    from mainstem.aqueduct.quic.tickets import ServerTickets
    from mainstem.aqueduct.quic.udp import Address
    from mainstem.aqueduct.stats import AqueductStats


Handler = Callable[[Connection], Awaitable[None]]
"""Handles one connection. The documentation of `serve` describes what happens when it returns."""


def _is_of_peer(error: BaseException) -> bool:
    """Return whether a handler's exception only means that its peer finished, went away, cancelled, or broke a rule."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_of_peer, error.exceptions))
    return isinstance(error, ChannelError | ClosedError | RemoteProtocolError)


class Server(UdpEndpoint):
    """A listening server, made by `serve`. An ``async with`` block closes it at its end.

    Example:
        >>> async with serve(handler, "0.0.0.0", 4433, certificate=certificate, key=key) as server:
        ...     await server.wait()
    """

    def __init__(
        self,
        sockets: Sequence[UdpSocket],
        context: ServerContext,
        handler: Handler,
        *,
        headers: HeaderSource | Callable[[Headers], HeaderSource],
        serializers: Sequence[Serializer],
        settings: Settings,
        defer_early_data: bool,
        instrument: Instrument,
    ) -> None:
        super().__init__(*sockets)
        self._handler = as_coroutine_function(handler)
        self._headers = headers
        self._serializers = serializers
        self._settings = settings
        self._defer_early_data = defer_early_data
        self._instrument = instrument
        self._context = context
        self._admission: Admission[AqueductProtocol] = Admission(
            max_connections=settings.max_connections,
            max_connections_per_address=settings.max_connections_per_address,
            drop=self._drop_silent,
        )
        self._first_packets = FirstPackets(context, self._admission, always_retry=settings.retry)
        self._by_cid: dict[bytes, AqueductProtocol] = {}
        self._protocols: dict[AqueductProtocol, set[bytes]] = {}
        self._tasks: dict[asyncio.Task[None], AqueductProtocol] = {}
        # Connections with a running handler.
        self._handled: set[AqueductProtocol] = set()
        self._closing = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._traffic = EndpointCounters()
        # Counters of connections that are gone.
        self._ended_counts = ConnectionCounters()

    @property
    def port(self) -> int:
        """The UDP port on which the server listens, at every address."""
        return int(self._udp.address[1])

    @property
    def closed(self) -> bool:
        """Whether the server is closed."""
        return self._ended.done()

    @property
    def error(self) -> Exception | None:
        """Always None: only `close` ends a server."""
        return None

    @property
    def connections(self) -> int:
        """The number of connections that are open, in their handshake, or closing."""
        return len(self._protocols)

    def stats(self) -> AqueductStats:
        """Return the server's current state and counters. Can be called from any thread.

        Returns:
            The statistics of all connections, including those that have ended.
        """
        protocols = tuple(self._protocols)
        return connection_stats(protocols, self._traffic, self._ended_counts, role="server", closed=self.closed)

    def _own_protocols(self) -> list[AqueductProtocol]:
        return list(self._protocols)

    def _leave_to_parent(self) -> None:
        super()._leave_to_parent()
        self._closing = True
        if not self.closed:
            with contextlib.suppress(RuntimeError):
                self._ended.set_exception(ClosedError(INHERITED))
            self._ended.exception()

    def _route(self, data: bytes, address: Address, udp: UdpSocket) -> AqueductProtocol | None:
        """Return the connection that a datagram belongs to, or None. A first packet creates one."""
        if data and data[0] < LONG_HEADER:
            # The common case: one byte, then a connection id that this server has issued.
            return self._by_cid.get(data[1 : 1 + CID_LENGTH])
        header = self._context.parse(data)
        if header is None:
            return None
        protocol = self._by_cid.get(header.destination_cid)
        if protocol is not None:
            return protocol
        if not self._closing:
            self._arrive(data, header, address, udp)
        return None

    def _arrive(self, data: bytes, header: PacketHeader, address: Address, udp: UdpSocket) -> None:
        now = self._loop.time()
        if header.is_initial and not self._admission.has_room(owner_of(address)):
            self._refuse(address)
            return
        found = self._first_packets.arrived(data, header, address, now)
        if isinstance(found, bytes):
            udp.send([(found, address)])
        elif found is not None:
            adapter, is_proven = found
            protocol = self._start_connection(adapter, header, address, udp, len(data))
            if is_proven:
                self._take_place(protocol)
            else:
                self._admission.enter_unproven(protocol)
            # The adapter has already received the packet.
            protocol.datagrams_received([], address)

    def _refuse(self, address: Address) -> None:
        self._traffic.connections_refused += 1
        text = (
            f"a handshake from {address[0]}:{address[1]} is ignored: the server has {self._admission.taken} connections"
        )
        self._warnings.log(logging.WARNING, "connection limit", text, self._now_ns)

    def _take_place(self, protocol: AqueductProtocol) -> bool:
        """Give a connection from a proven address a place, or end it if there is none; return whether it has a place."""
        if self._admission.enter(protocol, owner_of(protocol.address)):
            return True
        self._traffic.connections_refused += 1
        protocol.fail(ConnectionLost("the server has too many connections", delivery=Delivery.NONE), code=NO_PLACE)
        return False

    def _drop_silent(self, protocol: AqueductProtocol) -> None:
        """End a connection whose headers have not arrived, because another client needs its place."""
        if not protocol.engine.is_ended:
            error = ConnectionLost(
                "no connection headers had come, and the server needed the place for another client",
                delivery=Delivery.NONE,
            )
            protocol.fail(error, code=NO_PLACE)

    def _start_connection(
        self, adapter: QuicAdapter, header: PacketHeader, address: Address, udp: UdpSocket, received: int
    ) -> AqueductProtocol:
        engine = AqueductEngine(
            is_client=False,
            limits=self._settings,
            instrument=self._instrument,
            peer=f"{address[0]}:{address[1]}",
            early_data=self._defer_early_data,
        )
        protocol = AqueductProtocol(engine, adapter, udp, address, serializer=self._serializers[0])
        self._traffic.bytes_received += received
        protocol.traffic = self._traffic
        protocol.warnings = self._warnings
        protocol.on_headers = lambda headers: self._accept(protocol, headers)
        protocol.on_over = lambda: self._forget(protocol)
        protocol.ended.add_done_callback(lambda _: self._log_failure(protocol))
        protocol.established.add_done_callback(lambda _: protocol.is_open and self._take_place(protocol))
        protocol.expect_headers(self._settings.handshake_timeout)
        cids = self._protocols[protocol] = {header.destination_cid, adapter.host_cid}

        def issued(cid: bytes) -> None:
            cids.add(cid)
            self._by_cid[cid] = protocol

        def retired(cid: bytes) -> None:
            cids.discard(cid)
            self._by_cid.pop(cid, None)

        adapter.lifecycle.on_cid_issued, adapter.lifecycle.on_cid_retired = issued, retired
        for cid in tuple(cids):
            issued(cid)
        return protocol

    def _log_failure(self, protocol: AqueductProtocol) -> None:
        """Log that a client broke a rule, or that a TLS handshake failed on either side."""
        error = protocol.error
        host, port, *_ = protocol.address
        if protocol.adapter.lifecycle.tls_failed:
            self._warnings.log(logging.WARNING, "TLS handshake", f"{host}:{port}: {error}", protocol.now_ns)
        elif isinstance(error, RemoteProtocolError) and error.rule != PEERS_COMPLAINT:
            text = f"{host}:{port} broke a rule ({error.rule}), so its connection was closed: {error}"
            self._warnings.log(logging.WARNING, error.rule, text, protocol.now_ns)

    def _accept(self, protocol: AqueductProtocol, headers: Headers) -> None:
        if self._closing:
            protocol.close("the server is shutting down")
            return
        if not self._take_place(protocol):
            return
        self._admission.heard(protocol)
        serializer = choose(self._serializers, headers)
        if serializer is None:
            protocol.fail(
                RemoteProtocolError("the client offers no serializer that this server has", rule="serialization"),
                code=SERIALIZATION_ERROR,
            )
            return
        protocol.serializer = serializer
        own = self._headers(headers) if callable(self._headers) else self._headers
        connection = Connection(protocol, is_client=False)
        protocol.engine.accept([*offer_headers([serializer]), *as_headers(own)], protocol.now_ns)
        protocol.wake()
        task = start_task(self._run(protocol, connection), protocol.loop)
        self._tasks[task] = protocol
        self._handled.add(protocol)
        task.add_done_callback(self._handler_ended)
        protocol.ended.add_done_callback(lambda _: self._cancel_handler(protocol, task))

    def _cancel_handler(self, protocol: AqueductProtocol, task: asyncio.Task[None]) -> None:
        """Cancel the handler of a connection that has ended.

        A handler that closed the connection itself keeps running. After an orderly close by a client that had finished the
        entrypoint, the handler has ``drain_timeout`` to process messages that it has not received or finished processing: they
        were acknowledged, and nobody else has them. The server cannot tell whether the handler is still working on them.
        """
        if protocol.closed_here or task.done():
            return
        if protocol.error is None and protocol.has_all:
            timer = protocol.loop.call_later(self._settings.drain_timeout, task.cancel)
            task.add_done_callback(lambda _: timer.cancel())
        else:
            task.cancel()

    async def _run(self, protocol: AqueductProtocol, connection: Connection) -> None:
        """Run a connection's handler, and close the connection once it has returned and the channels have ended."""
        try:
            await self._handler(connection)
            connection.receiver.abort()
            await connection.wait_channels_closed(self._settings.drain_timeout)
            messages, size = protocol.engine.unacknowledged
            if messages:
                logger.warning(
                    "%s: %d messages of %d bytes were not delivered", connection.peer_address, messages, size
                )
        except Exception as error:
            if not _is_of_peer(error):
                self._traffic.handlers_failed += 1
                text = f"the handler of {connection.peer_address} failed: {type(error).__name__}: {error}"
                self._warnings.log(logging.ERROR, kind_of(error), text, self._now_ns, error=error)
                protocol.fail(LocalProtocolError("the server's handler failed"), code=HANDLER_FAILED)
            elif isinstance(error, RemoteProtocolError):
                protocol.fail(error, code=error.code or PROTOCOL_ERROR)
            else:
                logger.info("%s: %s", connection.peer_address, error)
        finally:
            connection.abort()

    def _forget(self, protocol: AqueductProtocol) -> None:
        if protocol in self._protocols:
            add_counters(self._ended_counts, protocol.engine.context.counts)
        for cid in self._protocols.pop(protocol, ()):
            self._by_cid.pop(cid, None)
        if protocol not in self._handled:
            self._admission.leave(protocol)

    def _handler_ended(self, task: asyncio.Task[None]) -> None:
        protocol = self._tasks.pop(task)
        self._handled.discard(protocol)
        if protocol not in self._protocols:
            self._admission.leave(protocol)

    async def shutdown(self, timeout: float | None = None) -> None:
        """Stop accepting connections, wait until the handlers have returned, and close the server.

        Args:
            timeout: Seconds to wait before the handlers are cancelled, as by `close`; None waits forever.
        """
        if self.closed:
            return
        self._closing = True
        handlers = self._handlers()
        if handlers:
            await asyncio.wait(handlers, timeout=timeout)
        await self.close()

    async def close(self, timeout: float | None = LINGER_S) -> None:
        """Close all connections immediately, cancel the handlers and wait for them, and close the sockets.

        Clients that are still connected are sent up to three notifications, because a notification can be lost. This method can be
        called more than once.

        Args:
            timeout: Seconds to wait for the cancelled handlers. A handler that is still running then is logged and left running.
                None waits forever.
        """
        if self.closed:
            return
        handlers = self._close_connections()
        try:
            if handlers:
                _, pending = await asyncio.wait(handlers, timeout=timeout)
                for task in pending:
                    address = self._tasks[task].address
                    logger.warning("the handler of %s is still running %g s after it was cancelled", address, timeout)
            await asyncio.sleep(0)
            if self._protocols:
                await asyncio.wait([protocol.over for protocol in self._protocols], timeout=DRAIN_S)
        finally:
            self._release()

    def abort(self) -> None:
        """Close all connections and the sockets immediately, and cancel the handlers without waiting for them."""
        if not self.closed:
            self._close_connections()
            self._release()

    def _close_connections(self) -> list[asyncio.Task[None]]:
        """Close all connections and cancel the handlers; return the handlers' tasks."""
        self._closing = True
        handlers = self._handlers()
        for protocol in list(self._protocols):
            protocol.close("the server is shutting down")
        for task in handlers:
            task.cancel()
        return handlers

    def _release(self) -> None:
        self._close_sockets()
        for protocol in list(self._protocols):
            protocol.give_up()
        self._warnings.flush(self._now_ns)
        if not self.closed:
            self._ended.set_result(None)

    @property
    def _now_ns(self) -> int:
        return int(self._loop.time() * 1e9)

    def _handlers(self) -> list[asyncio.Task[None]]:
        """Return the tasks of all handlers except the calling one."""
        return [task for task in self._tasks if task not in (asyncio.current_task(), HANDLER_TASK.get())]

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until the server is closed.

        Args:
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: The server is still open.
        """
        await within(timeout, asyncio.shield(self._ended), "waiting for the server to close")

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.connections} connections"
        return f"<Server on UDP port {self.port}, {state}>"

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def serve(
    handler: Handler,
    host: str | Sequence[str] = "127.0.0.1",
    port: int = 0,
    *,
    sock: socket.socket | Sequence[socket.socket] | None = None,
    headers: HeaderSource | Callable[[Headers], HeaderSource] = None,
    serializers: Sequence[Serializer] = (RAW,),
    tickets: ServerTickets | None = None,
    defer_early_data: bool = False,
    settings: Settings | None = None,
    instrument: Instrument = NULL_INSTRUMENT,
    **overrides: Any,
) -> Opening[Server]:
    """Listen for connections; see :func:`mainstem.aqueduct.serve`. Await the result, or use it with ``async with``.

    The handler is a coroutine function that runs in its own task. It is cancelled in the situations in which the blocking
    variant's calls raise. If ``headers`` is a function, it is called in the event loop.
    """
    chosen = apply_overrides(Settings, settings, overrides)

    async def open_server() -> Server:
        context = load_backend(chosen.backend).server_context(chosen, tickets)
        kind = socket.SOCK_DGRAM
        if sock is not None:
            bound = given_sockets(sock, kind)
        else:
            bound = bind_sockets(await find_listening_addresses(host, port, kind), kind=kind)
        return Server(
            [UdpSocket(bound=each) for each in bound],
            context,
            handler,
            headers=headers,
            serializers=serializers,
            settings=chosen,
            defer_early_data=defer_early_data,
            instrument=instrument,
        )

    return Opening(open_server, "aqueduct.aio.serve()")
