"""`connect`, which opens a client's connection."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem._internal.eyeballs import NoneSucceededError, race, resolve
from mainstem._internal.opening import Opening
from mainstem._internal.overrides import apply_overrides
from mainstem._internal.validation import check_int
from mainstem.aqueduct.connection import DRAIN_S, Connection, HeaderSource
from mainstem.aqueduct.engine import AqueductEngine
from mainstem.aqueduct.frames import SERIALIZATION_ERROR, Headers, as_headers
from mainstem.aqueduct.protocol import AqueductProtocol
from mainstem.aqueduct.quic import load_backend
from mainstem.aqueduct.quic.udp import UdpSocket
from mainstem.aqueduct.serializers import RAW, Serializer, choose, offer_headers
from mainstem.aqueduct.settings import Settings
from mainstem.aqueduct.udp_endpoint import UdpEndpoint
from mainstem.errors import ConfigurationError, ConnectionLost, Delivery, RemoteProtocolError, Timeout
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem._internal.eyeballs import HostAddress
    from mainstem.aqueduct.quic.adapter import QuicAdapter
    from mainstem.aqueduct.quic.tickets import SessionCache
    from mainstem.aqueduct.quic.udp import Address


def connect(
    host: str,
    port: int,
    *,
    headers: HeaderSource = None,
    serializers: Sequence[Serializer] = (RAW,),
    sessions: SessionCache | None = None,
    early: bool = False,
    timeout: float | None = 10.0,
    settings: Settings | None = None,
    instrument: Instrument = NULL_INSTRUMENT,
    **overrides: Any,
) -> Opening[Connection]:
    """Connect to a server; see :func:`mainstem.aqueduct.connect`. Await the result, or use it with ``async with``.

    With ``early``, connecting does not wait for the handshake.
    """
    chosen = apply_overrides(Settings, settings, overrides)
    if not host:
        raise ConfigurationError("host is required: the name or address of the server")
    check_int({"port": port}, min_value=1, max_value=65_535)
    attempt = _Attempt(host, port, headers, serializers, sessions, chosen, instrument)
    return Opening(lambda: attempt.connect(timeout, early=early), "aqueduct.aio.connect()")


class _ClientEndpoint(UdpEndpoint):
    """A client's socket. It calls ``on_refused`` if ICMP reports during the handshake that nobody listens at the address."""

    protocol: AqueductProtocol

    def __init__(self, udp: UdpSocket, on_refused: Callable[[], None] | None) -> None:
        super().__init__(udp)
        self._closing: asyncio.TimerHandle | None = None
        if on_refused is not None:
            udp.report_refusals(True)
            self._loop.add_reader(udp.fileno(), self._readable_or_refused, on_refused)

    def close_soon(self) -> None:
        """Close the socket after ``DRAIN_S`` seconds, by when the close has been sent often enough, unless it is closed earlier."""
        self._closing = self._loop.call_later(DRAIN_S, self._close_sockets)

    def _close_sockets(self) -> None:
        super()._close_sockets()
        if self._closing is not None:
            self._closing.cancel()

    def _own_protocols(self) -> list[AqueductProtocol]:
        return [self.protocol] if hasattr(self, "protocol") else []

    def _readable_or_refused(self, on_refused: Callable[[], None]) -> None:
        if not self._open:
            return
        if self.protocol.established.done():
            self._udp.report_refusals(False)
            self._loop.add_reader(self._udp.fileno(), self._readable, self._udp)
        elif self._udp.take_refusal():
            on_refused()
        self._readable(self._udp)

    def _route(self, data: bytes, address: Address, udp: UdpSocket) -> AqueductProtocol | None:  # noqa: ARG002
        return self.protocol


@dataclass
class _Attempt:
    """One call to `connect`, which can try several addresses at once, each with its own `AqueductProtocol`."""

    host: str
    port: int
    headers: HeaderSource
    serializers: Sequence[Serializer]
    sessions: SessionCache | None
    settings: Settings
    instrument: Instrument

    @property
    def origin(self) -> str:
        return f"{self.host}:{self.port}"

    async def connect(self, timeout: float | None, *, early: bool) -> Connection:
        sessions = self.sessions
        adapter = self._adapter()
        if early and sessions is not None and adapter.has_ticket:
            # Send the first flight immediately, which only one address can get.
            protocol = self._begin((await self._resolve())[0], adapter, None)
        else:
            protocol = await self._race(adapter, timeout)
        if sessions is not None:
            protocol.established.add_done_callback(lambda established: self._keep_address(protocol, established))
        connection = Connection(protocol, is_client=True)
        try:
            protocol.expect_headers(self.settings.handshake_timeout)
            if len(self.serializers) > 1:
                await connection.headers(timeout)
        except BaseException:
            connection.abort()
            await protocol.wait_over(0)
            raise
        return connection

    def _adapter(self) -> QuicAdapter:
        backend = load_backend(self.settings.backend)
        return backend.client(self.settings, server_name=self.host, sessions=self.sessions, origin=self.origin)

    async def _race(self, adapter: QuicAdapter, timeout: float | None) -> AqueductProtocol:
        """Return the connection whose handshake completes first. If all attempts fail, raise the error of the first."""
        addresses = await self._resolve()
        adapters = [adapter]

        async def attempt(address: HostAddress, doubt: Callable[[], None]) -> AqueductProtocol:
            is_only = len(addresses) == 1
            protocol = self._begin(address, adapters.pop() if adapters else self._adapter(), None if is_only else doubt)
            try:
                await asyncio.shield(protocol.established)
            except BaseException:
                _close_now(protocol)
                raise
            return protocol

        try:
            return await race(addresses, attempt, discard=_close_now, timeout=timeout)
        except NoneSucceededError as error:
            if not error.timed_out:
                raise error.failures[0][1] from None
            text = f"no response from {self.origin} within {timeout:g} s"
            raise Timeout(f"{text}: {error}" if error.failures else text, timeout=timeout) from None

    async def _resolve(self) -> list[HostAddress]:
        """Return the addresses to try, first the one at which the server was last reached: the first attempt has the ticket."""
        try:
            addresses = await resolve(self.host, self.port, socket.SOCK_DGRAM)
        except OSError as error:
            raise ConnectionLost(f"{self.host}: {error.strerror}", delivery=Delivery.NONE) from error
        known = self.sessions.known_address(self.origin) if self.sessions is not None else ""
        return sorted(addresses, key=lambda each: each[1][0] != known)

    def _begin(
        self, address: HostAddress, adapter: QuicAdapter, on_refused: Callable[[], None] | None
    ) -> AqueductProtocol:
        """Start a connection and send its first packets, through a socket that is closed with the connection."""
        family, where = address
        engine = AqueductEngine(
            is_client=True,
            headers=[*offer_headers(self.serializers), *as_headers(self.headers)],
            limits=self.settings,
            instrument=self.instrument,
            peer=self.origin,
        )
        udp = UdpSocket(host="::" if family == socket.AF_INET6 else "0.0.0.0", port=0, family=family)
        endpoint = _ClientEndpoint(udp, on_refused)
        protocol = endpoint.protocol = AqueductProtocol(engine, adapter, udp, where, serializer=self.serializers[0])
        protocol.on_over = endpoint._close_sockets
        protocol.ended.add_done_callback(lambda _: endpoint.close_soon())
        protocol.on_headers = lambda response: self._choose_serializer(protocol, response)
        engine.start(protocol.now_ns)
        adapter.connect(where, protocol.loop.time())
        protocol.flush()
        return protocol

    def _keep_address(self, protocol: AqueductProtocol, established: asyncio.Future[None]) -> None:
        """Store the address, which the next connection tries first."""
        if self.sessions is not None and not established.cancelled() and established.exception() is None:
            self.sessions.keep_address(self.origin, protocol.address[0])

    def _choose_serializer(self, protocol: AqueductProtocol, response: Headers) -> None:
        chosen = choose(self.serializers, response)
        if chosen is None:
            names = ", ".join(serializer.header for serializer in self.serializers)
            error = RemoteProtocolError(f"the server supports none of the serializers {names}", rule="serialization")
            protocol.fail(error, code=SERIALIZATION_ERROR)
        else:
            protocol.serializer = chosen


def _close_now(protocol: AqueductProtocol) -> None:
    """Close a connection, and close its socket as soon as the close has been sent."""
    protocol.close()
    protocol.give_up()
