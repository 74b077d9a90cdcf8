"""`connect`: a client's connection."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from mainstem._internal.eyeballs import NoneSucceededError, race, resolve
from mainstem._internal.opening import Opening
from mainstem._internal.overrides import apply_overrides
from mainstem._internal.validation import check_int
from mainstem.aqueduct.connection import DRAIN_S, Connection, HeaderSource
from mainstem.aqueduct.engine import AqueductEngine
from mainstem.aqueduct.frames import SERIALIZATION_ERROR, Headers, as_headers
from mainstem.aqueduct.quic import load_backend
from mainstem.aqueduct.quic.udp import UdpSocket
from mainstem.aqueduct.runner import Runner
from mainstem.aqueduct.serializers import RAW, Serializer, choose, offer_headers
from mainstem.aqueduct.settings import Settings
from mainstem.aqueduct.udp_endpoint import UdpEndpoint
from mainstem.errors import ConfigurationError, ConnectionLost, Delivery, RemoteProtocolError, Timeout
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem._internal.eyeballs import HostAddress
    from mainstem.aqueduct.quic.adapter import Address, QuicAdapter
    from mainstem.aqueduct.quic.tickets import SessionCache


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
    """Connect as :func:`mainstem.aqueduct.connect` does; await it, or use it with ``async with``.

    With ``early`` it does not wait for the handshake.
    """
    chosen = apply_overrides(Settings, settings, overrides)
    if not host:
        raise ConfigurationError("connect needs the host of a server")
    check_int({"port": port}, min_value=1, max_value=65_535)

    async def open_connection() -> Connection:
        return await _connect(host, port, headers, serializers, sessions, early, timeout, chosen, instrument)

    return Opening(open_connection, "aqueduct.aio.connect()")


async def _connect(
    host: str,
    port: int,
    headers: HeaderSource,
    serializers: Sequence[Serializer],
    sessions: SessionCache | None,
    early: bool,
    timeout: float | None,
    settings: Settings,
    instrument: Instrument,
) -> Connection:
    origin = f"{host}:{port}"
    library = load_backend(settings.backend)

    def make_engine() -> AqueductEngine:
        return AqueductEngine(
            is_client=True,
            headers=[*offer_headers(serializers), *as_headers(headers)],
            limits=settings,
            instrument=instrument,
            peer=origin,
        )

    def make_adapter() -> QuicAdapter:
        return library.client(settings, server_name=host, sessions=sessions, origin=origin)

    def prepare(runner: Runner) -> None:
        runner.on_headers = lambda response: _choose_serializer(runner, serializers, response)

    dialer = Dialer(host, port, engine=make_engine, adapter=make_adapter, prepare=prepare, serializer=serializers[0])
    adapter = make_adapter()
    if sessions is not None and early and adapter.quic.configuration.session_ticket is not None:
        runner = await dialer.dial_early(adapter, sessions.known_address(origin))
    else:
        runner = await dialer.dial(adapter, timeout)
    if sessions is not None:
        _remember_address(runner, sessions, origin)
    connection = Connection(runner, is_client=True)
    try:
        runner.expect_headers(settings.handshake_timeout)
        if len(serializers) > 1:
            await runner.wait_for(connection.headers(), timeout)
    except BaseException:
        connection.abort()
        await runner.wait_over(0)
        raise
    return connection


def _remember_address(runner: Runner, sessions: SessionCache, origin: str) -> None:
    """Keep the address for the next connection with early data, which cannot try several."""

    def keep(established: asyncio.Future[None]) -> None:
        if not established.cancelled() and established.exception() is None:
            sessions.keep_address(origin, runner.address[0])

    runner.established.add_done_callback(keep)


def _choose_serializer(runner: Runner, serializers: Sequence[Serializer], response: Headers) -> None:
    chosen = choose(serializers, response)
    if chosen is None:
        names = ", ".join(serializer.header for serializer in serializers)
        runner.fail(
            RemoteProtocolError(f"the server takes none of the serialisers {names}", rule="serialisation"),
            code=SERIALIZATION_ERROR,
        )
    else:
        runner.serializer = chosen


class _ClientEndpoint(UdpEndpoint):
    """A client's socket. ``on_refused`` is called when ICMP reports, during the handshake, that nobody listens at the address."""

    runner: Runner

    def __init__(self, udp: UdpSocket, on_refused: Callable[[], None] | None) -> None:
        super().__init__(udp)
        self._on_refused = on_refused
        udp.report_refusals(on_refused is not None)

    def _readable(self, udp: UdpSocket) -> None:
        if self._on_refused is not None:
            if self.runner.established.done():
                udp.report_refusals(False)
                self._on_refused = None
            elif udp.take_refusal():
                self._on_refused()
        super()._readable(udp)

    def _route(self, data: bytes, address: Address, udp: UdpSocket) -> Runner | None:  # noqa: ARG002
        return self.runner


class Dialer:
    """Makes the sessions of one call to `connect`.

    Args:
        host: The server's name or address.
        port: Its port.
        engine: Makes a protocol engine, for one attempt.
        adapter: Makes a QUIC connection, for one attempt.
        prepare: Called with each runner before anything is sent.
        serializer: What messages are encoded with until the server has chosen.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        engine: Callable[[], AqueductEngine],
        adapter: Callable[[], QuicAdapter],
        prepare: Callable[[Runner], None],
        serializer: Serializer,
    ) -> None:
        self._host, self._port = host, port
        self._engine, self._adapter, self._prepare, self._serializer = engine, adapter, prepare, serializer

    async def dial_early(self, adapter: QuicAdapter, known: str) -> Runner:
        """Returns a runner that has sent its first flight and waits for nothing.

        Args:
            adapter: A QUIC connection with a session ticket.
            known: The address at which the server was met before; empty where it is not known.
        """
        addresses = await self._resolve()
        address = next((each for each in addresses if each[1][0] == known), addresses[0])
        return self._begin(address, adapter, None)

    async def dial(self, adapter: QuicAdapter, timeout: float | None) -> Runner:
        """Returns the runner whose handshake is complete first.

        Args:
            adapter: The QUIC connection of the first attempt.
            timeout: Seconds for all attempts together; None for as long as QUIC tries.

        Raises:
            Timeout: The timeout passed.
            MainstemError: Every attempt failed; the first one's error.
        """
        addresses = await self._resolve()
        adapters = [adapter]

        async def attempt(address: HostAddress, doubt: Callable[[], None]) -> Runner:
            is_only = len(addresses) == 1
            runner = self._begin(address, adapters.pop() if adapters else self._adapter(), None if is_only else doubt)
            try:
                await asyncio.shield(runner.established)
            except BaseException:
                _close_now(runner)
                raise
            return runner

        try:
            return await race(addresses, attempt, discard=_close_now, timeout=timeout)
        except NoneSucceededError as error:
            if not error.timed_out:
                raise error.failures[0][1] from None
            text = f"no answer from {self._host}:{self._port} in {timeout:g} s"
            raise Timeout(f"{text}: {error}" if error.failures else text, timeout=timeout) from None

    async def _resolve(self) -> list[HostAddress]:
        try:
            return await resolve(self._host, self._port, socket.SOCK_DGRAM)
        except OSError as error:
            raise ConnectionLost(f"{self._host}: {error.strerror}", delivery=Delivery.NONE) from error

    def _begin(self, address: HostAddress, adapter: QuicAdapter, on_refused: Callable[[], None] | None) -> Runner:
        """Sends the first packets, through a socket that is closed with the runner."""
        family, where = address
        engine = self._engine()
        udp = UdpSocket(host="::" if family == socket.AF_INET6 else "0.0.0.0", port=0, family=family)
        endpoint = _ClientEndpoint(udp, on_refused)
        runner = endpoint.runner = Runner(engine, adapter, udp, where, serializer=self._serializer)
        runner.on_over = endpoint._close_sockets
        # A while after its close was sent, if it takes so long.
        runner.ended.add_done_callback(lambda _: runner.loop.call_later(DRAIN_S, endpoint._close_sockets))
        self._prepare(runner)
        engine.start(runner.now_ns)
        adapter.connect(where, runner.loop.time())
        runner.flush()
        return runner


def _close_now(runner: Runner) -> None:
    """Closes a runner, and its socket as soon as the close is sent."""
    runner.close()
    runner.give_up()
