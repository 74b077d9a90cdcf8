"""Tunnel many TCP connections through one bymux connection.

Stream 0 exists from the start and carries the handshake (`tunnel_token`): the client proves that it has the shared token, then the
server proves the same and allows streams. Each further stream carries one TCP connection, until both directions have ended.
Truncated data must never be mistaken for complete data: a connection that breaks at one end aborts its stream, and an aborted
stream resets the connection at the other end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem import bymux
from mainstem._internal.clock import SYSTEM_CLOCK, timeout_of
from mainstem._internal.endpoint_stats import EndpointCounters
from mainstem._internal.exposure import TLS_OPTIONS, check_exposure, is_loopback
from mainstem._internal.eyeballs import connect_socket, reset_on_close
from mainstem._internal.listening import find_listening_addresses, name_of
from mainstem._internal.log_throttle import LogThrottle
from mainstem._internal.open_files_limit import raise_open_files_limit
from mainstem._internal.pauses import GrowingPause
from mainstem.bymux.aio_connection import protocol_of
from mainstem.bymux.engine import BymuxEngine
from mainstem.bymux.tunnel_token import CONTROL_CREDIT, TOKEN_VARIABLE, answer_handshake, check_token, handshake
from mainstem.errors import (
    ClosedError,
    ConfigurationError,
    MainstemError,
)
from mainstem.mux.aio_stream import flush_in_time
from mainstem.mux.listening import ListeningSockets
from mainstem.mux.protocol import connection_stats

if TYPE_CHECKING:
    import ssl as ssl_module

    from mainstem._internal.endpoint_stats import EndpointStats
    from mainstem.bymux.aio import Connection, Stream
    from mainstem.bymux.protocol import BymuxProtocol
    from mainstem.mux.sockets import Server

logger = logging.getLogger("mainstem.bymux")

CONTROL_STREAM = 0
# Seconds that an accepted connection waits for the tunnel to reconnect.
WAIT_FOR_TUNNEL_S = 10.0
RECONNECT_FIRST_S = 0.2
RECONNECT_MAX_S = 5.0
CONNECT_TARGET_TIMEOUT_S = 10.0
# Maximum number of connections through one tunnel. Times the window, it limits how much slow readers make an end hold.
MAX_STREAMS = 4096
# Seconds without progress after which a connection whose last bytes nobody reads is cut off. Pings detect an end that is gone, so
# this concerns applications that have stopped reading, for which TCP itself would wait forever.
STALL_TIMEOUT_S = 3600.0
CHUNK = 64 * 1024
PING_INTERVAL_S = 5.0
PING_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Address:
    """An address: ``HOST:PORT``, ``:PORT`` (all interfaces) or ``unix:PATH``."""

    host: str | None
    port: int | None
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse an address. Raises ``ConfigurationError`` for anything else."""
        if text.startswith("unix:"):
            path = text.removeprefix("unix:")
            if not path:
                raise ConfigurationError("address 'unix:' has no path; give unix:PATH")
            return cls(None, None, path)
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise ConfigurationError(f"address {text!r} is neither HOST:PORT nor unix:PATH")
        return cls(host.strip("[]") or None, int(port))

    @property
    def is_local(self) -> bool:
        """Whether the address is on this host, judging by its text: a Unix path, ``localhost`` or a loopback address."""
        return self.path is not None or self.host in (None, "localhost") or is_loopback(self.host or "")

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else name_of((self.host or "", self.port))


def settings(
    *,
    serving: bool,
    window: int = bymux.Settings.stream_window,
    max_streams: int = MAX_STREAMS,
    stall_timeout: float = STALL_TIMEOUT_S,
) -> bymux.Settings:
    """Return the bymux settings of a tunnel: the parameters that both ends share, and limits on streams' memory and stalls."""
    return bymux.Settings(
        stream_window=window,
        peer_streams=max_streams if serving else 0,
        allow_at_start=False,
        initial_streams=(bymux.InitialStream(CONTROL_STREAM, local_credit=CONTROL_CREDIT, peer_credit=CONTROL_CREDIT),),
        ping_interval=PING_INTERVAL_S,
        ping_timeout=PING_TIMEOUT_S,
        stall_timeout=stall_timeout or None,
    )


async def relay(
    stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, warnings: LogThrottle
) -> None:
    """Relay bytes in both directions until both have ended and everything has been delivered to the kernel.

    If either direction breaks, the connection is reset, the stream is aborted, and a warning is logged.
    """
    directions = (asyncio.ensure_future(_outward(stream, reader)), asyncio.ensure_future(_inward(stream, writer)))
    try:
        await asyncio.gather(*directions)
        writer.close()
        await writer.wait_closed()
    except BaseException as error:
        reset(writer)
        # When the stream breaks, this task is cancelled.
        reason = (stream.error or "it was cancelled") if isinstance(error, asyncio.CancelledError) else error
        stream.abort()
        peer = protocol_of(stream.connection).peer_name
        _warn(warnings, "cut off", f"the connection of stream {stream.id} of {peer} was cut off: {reason}")
        if not isinstance(error, MainstemError | OSError):
            raise
    finally:
        for task in directions:
            task.cancel()
        await asyncio.gather(*directions, return_exceptions=True)


def _warn(warnings: LogThrottle, kind: str, text: str) -> None:
    """Log a warning, throttled because peers can cause it any number of times."""
    warnings.log(logging.WARNING, kind, text, SYSTEM_CLOCK.monotonic_ns())


async def _outward(stream: Stream, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(CHUNK):
        stream.write(data)
        await stream.drain()
    stream.finish()
    await flush_in_time(stream)


async def _inward(stream: Stream, writer: asyncio.StreamWriter) -> None:
    while data := await stream.read(CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    """End a TCP connection with a reset, so that its peer does not mistake truncated data for complete data.

    A Unix socket has no reset: its peer gets an error only when it writes again, or if it had sent data that was not read.
    """
    raw = writer.get_extra_info("socket")
    if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            reset_on_close(raw, True)
    writer.transport.abort()


async def _addresses(listen: Address) -> list[str]:
    """Return the addresses on which a tunnel would listen, as numbers."""
    try:
        found = await find_listening_addresses(listen.host, listen.port or 0, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {listen}: {error}") from error
    return [str(address[0]) for _, address in found]


class TunnelServer:
    """The far end, a context manager. It accepts tunnels and connects each of their streams to ``to``."""

    def __init__(
        self,
        to: Address,
        *,
        token: bytes = b"",
        window: int = bymux.Settings.stream_window,
        max_streams: int = MAX_STREAMS,
        stall_timeout: float = STALL_TIMEOUT_S,
        entropy: random.Random | None = None,
    ) -> None:
        self._to = to
        self._token = token and check_token(token)
        self._settings = settings(serving=True, window=window, max_streams=max_streams, stall_timeout=stall_timeout)
        self._max_streams = max_streams
        self._entropy = entropy or random.SystemRandom()
        self._warnings = LogThrottle(logger)
        self._listener: Server[BymuxProtocol[Stream]] | None = None

    async def start(
        self, listen: Address, *, ssl: ssl_module.SSLContext | bool | None = None, insecure: bool = False
    ) -> None:
        """Start listening for tunnels.

        Raises ``ConfigurationError`` if it would listen beyond loopback without a token and TLS, unless ``insecure``.
        """
        if listen.path is None:
            await self._check_exposure(listen, has_tls=bool(ssl), insecure=insecure)
        raise_open_files_limit()
        self._listener = await bymux.aio.serve(
            self._handle,
            listen.host,
            listen.port,
            path=listen.path,
            ssl=ssl,
            settings=self._settings,
            on_connection=self._on_connection,
        )

    async def _check_exposure(self, listen: Address, *, has_tls: bool, insecure: bool) -> None:
        protection = {TLS_OPTIONS: has_tls, f"`token_file` or {TOKEN_VARIABLE}": bool(self._token)}
        for address in await _addresses(listen):
            check_exposure(address, insecure=insecure, protection=protection)

    @property
    def port(self) -> int | Any:
        """The TCP port on which it listens; ``None`` for a Unix socket."""
        assert self._listener is not None
        return self._listener.port

    def stats(self) -> EndpointStats:
        """Return the current state and counters of the listening server. Call ``start`` first."""
        assert self._listener is not None
        return self._listener.stats()

    async def _on_connection(self, connection: Connection) -> None:
        try:
            await answer_handshake(connection, connection.stream(CONTROL_STREAM), self._token, self._entropy)
        except MainstemError as error:
            _warn(self._warnings, "refused", f"a tunnel was refused: {error}")
            protocol_of(connection).end(error)
            return
        connection.allow_streams(self._max_streams)
        logger.info("tunnel from %s to %s", protocol_of(connection).peer_name, self._to)

    async def _handle(self, stream: Stream) -> None:
        try:
            reader, writer = await open_connection(self._to, timeout=CONNECT_TARGET_TIMEOUT_S)
        except (OSError, TimeoutError) as error:
            _warn(self._warnings, "target", f"{self._to} cannot be reached: {error}")
            stream.abort()
            return
        await relay(stream, reader, writer, self._warnings)

    async def close(self) -> None:
        """Stop listening and end all tunnels. Can be called more than once."""
        if self._listener is not None:
            await self._listener.close()

    async def __aenter__(self) -> TunnelServer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def open_connection(
    to: Address, *, timeout: float | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an address; return a reader and a writer. Raises OSError, or TimeoutError after ``timeout`` seconds.

    If it is cancelled, the connection is reset, because a target must not take a tunnel that broke for a client that left.
    """
    async with asyncio.timeout(timeout_of(timeout)):
        if to.path is not None:
            return await asyncio.open_unix_connection(to.path)
        sock = await connect_socket(to.host or "localhost", to.port or 0, timeout=None)
        try:
            reader, writer = await asyncio.open_connection(sock=sock)
        except BaseException:
            sock.close()
            raise
        reset_on_close(sock, False)
        return reader, writer


class TunnelClient:
    """The near end, a context manager. It listens for TCP connections, tunnels each, and reconnects a broken tunnel."""

    def __init__(
        self,
        to: Address,
        *,
        token: bytes = b"",
        ssl: ssl_module.SSLContext | bool | None = None,
        server_hostname: str | None = None,
        window: int = bymux.Settings.stream_window,
        stall_timeout: float = STALL_TIMEOUT_S,
        entropy: random.Random | None = None,
    ) -> None:
        self._to = to
        self._token = token and check_token(token)
        self._ssl = ssl
        self._server_hostname = server_hostname
        self._settings = settings(serving=False, window=window, stall_timeout=stall_timeout)
        self._entropy = entropy or random.SystemRandom()
        self._warnings = LogThrottle(logger)
        self._connection: Connection | None = None
        self._up = asyncio.Event()
        self._reconnector: asyncio.Task[None] | None = None
        self._sockets = ListeningSockets(self._accept)
        self._relays: set[asyncio.Task[None]] = set()
        self._traffic = EndpointCounters()
        self._closed = False
        self.reconnects = 0

    async def start(self, listen: Address, *, insecure: bool = False) -> None:
        """Connect, then start listening. Raises any error of the first attempt to connect.

        Raises ``ConfigurationError`` if it would connect to another host without TLS, or let other hosts use the tunnel, unless
        ``insecure``.
        """
        if listen.path is None:
            for address in await _addresses(listen):
                check_exposure(address, insecure=insecure)
        if not self._ssl and not insecure and not self._to.is_local:
            raise ConfigurationError(
                f"a tunnel to {self._to} needs TLS, since others can read and change what it carries"
            )
        raise_open_files_limit()
        await self._connect()
        self._reconnector = asyncio.get_running_loop().create_task(self._reconnect_loop())
        await self._sockets.start(listen.host, listen.port, listen.path)

    @property
    def port(self) -> int | Any:
        """The TCP port on which it listens; ``None`` for a Unix socket."""
        address = self._sockets.address
        return int(address[1]) if isinstance(address, tuple) else None

    async def _connect(self) -> None:
        to = self._to
        try:
            connection = await self._open(to)
        except MainstemError:
            self._traffic.connections_unreached += 1
            raise
        protocol_of(connection).count_into(self._traffic)
        try:
            await handshake(connection, connection.stream(CONTROL_STREAM), self._token, self._entropy)
        except BaseException:
            connection.abort()
            raise
        self._connection = connection
        self._up.set()

    def stats(self) -> EndpointStats:
        """Return the current state and counters of the tunnel, including all reconnections."""
        connections = () if self._connection is None else (protocol_of(self._connection),)
        return connection_stats(
            connections, self._traffic, protocol=BymuxEngine.PROTOCOL, role="client", closed=self._closed
        )

    async def _open(self, to: Address) -> Connection:
        return await bymux.aio.connect(
            to.host or "localhost" if to.path is None else None,
            to.port,
            path=to.path,
            ssl=self._ssl,
            server_hostname=self._server_hostname,
            settings=self._settings,
        )

    async def _reconnect_loop(self) -> None:
        while True:
            assert self._connection is not None
            await self._connection.wait_closed()
            self._up.clear()
            logger.warning("the tunnel to %s broke: %s", self._to, protocol_of(self._connection).failure)
            pause = GrowingPause(RECONNECT_FIRST_S, RECONNECT_MAX_S, self._entropy)
            while not self._up.is_set():
                await asyncio.sleep(pause.next_s())
                try:
                    await self._connect()
                    self.reconnects += 1
                except MainstemError as error:
                    logger.warning("the tunnel to %s is still down: %s", self._to, error)

    def _accept(self, accepted: socket.socket) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(accepted))
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)

    async def _carry(self, accepted: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=accepted)
        except BaseException:
            accepted.close()
            raise
        try:
            async with asyncio.timeout(WAIT_FOR_TUNNEL_S):
                await self._up.wait()
                assert self._connection is not None
                stream = await self._connection.open_stream()
        except (TimeoutError, MainstemError, ClosedError) as error:
            _warn(self._warnings, "refused", f"a connection was refused: {error or 'the tunnel is down'}")
            reset(writer)
            return
        await relay(stream, reader, writer, self._warnings)

    async def close(self) -> None:
        """Stop listening, and end the tunnel and all its connections. Can be called more than once."""
        self._sockets.close()
        if self._reconnector is not None:
            self._reconnector.cancel()
            await asyncio.gather(self._reconnector, return_exceptions=True)
        if self._connection is not None:
            self._connection.abort()
        for task in self._relays:
            task.cancel()  # some may still wait until their connection has taken the last bytes
        await asyncio.gather(*self._relays, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()
        self._closed = True

    async def __aenter__(self) -> TunnelClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
