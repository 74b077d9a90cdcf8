"""Many TCP connections through one bymux connection.

Stream 0 exists from the start and carries control: first each end proves that it has the shared token, then the server
allows streams; from then on an id on it means that the stream of that id was cut off. bymux cannot distinguish a connection that
was reset from one that ended, and a tunnel must: nothing may arrive short and be taken for the whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import random
import resource
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.endpoint_stats import Traffic
from mainstem.errors import (
    ClosedError,
    ConfigurationError,
    ConnectionLost,
    MainstemError,
    RemoteProtocolError,
    TimedOut,
)
from mainstem.mux import bymux
from mainstem.mux.engine import engine_stats

if TYPE_CHECKING:
    import ssl as ssl_module

    from mainstem.endpoint_stats import EndpointStats
    from mainstem.mux.bymux.aio import BymuxStream, Connection
    from mainstem.mux.sockets import Listener

logger = logging.getLogger("mainstem.mux.tunnel")

CONTROL_STREAM = 0
NONCE_BYTES = 32
# Credit on the control stream for a peer that has not proved anything yet.
CONTROL_CREDIT = 256
HANDSHAKE_TIMEOUT_S = 10.0
# Seconds that an accepted connection waits for the tunnel to come back.
WAIT_FOR_TUNNEL_S = 10.0
RECONNECT_FIRST_S = 0.2
RECONNECT_MAX_S = 5.0
CONNECT_TARGET_TIMEOUT_S = 10.0
# Connections through one tunnel at once; times the window it bounds what a slow reader makes an end hold.
MAX_STREAMS = 4096
CHUNK = 64 * 1024
PING_INTERVAL_NS = 5_000_000_000
PING_TIMEOUT_NS = 10_000_000_000
_ID = struct.Struct(">Q")


@dataclass(frozen=True)
class Address:
    """``HOST:PORT``, ``:PORT`` (all interfaces) or ``unix:PATH``."""

    host: str | None
    port: int | None
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parses an address. Raises ``ConfigurationError`` for anything else."""
        if text.startswith("unix:"):
            return cls(None, None, text.removeprefix("unix:"))
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise ConfigurationError(f"address {text!r} is neither HOST:PORT nor unix:PATH")
        return cls(host.strip("[]") or None, int(port))

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"{self.host or ''}:{self.port}"


def settings(
    *, serving: bool, window: int = bymux.Settings.stream_window, max_streams: int = MAX_STREAMS
) -> bymux.Settings:
    """The bymux settings of a tunnel: what both ends agree on, and how much each stream may hold."""
    return bymux.Settings(
        stream_window=window,
        peer_streams=max_streams if serving else 0,
        allow_at_start=False,
        initial_streams=(bymux.InitialStream(CONTROL_STREAM, own_credit=CONTROL_CREDIT, peer_credit=CONTROL_CREDIT),),
        ping_interval_ns=PING_INTERVAL_NS,
        ping_timeout_ns=PING_TIMEOUT_NS,
    )


class TunnelEnd:
    """One end of a tunnel's connection: the handshake, the notices of streams that were cut off, the relays."""

    def __init__(self, connection: Connection, token: bytes, entropy: random.Random) -> None:
        self.connection = connection
        self._token = token
        self._entropy = entropy
        self._control = connection.stream(CONTROL_STREAM)
        self._cut_off: set[BymuxStream] = set()
        self._notices = bytearray()

    async def handshake(self, *, serving: bool) -> None:
        """Proves to the peer that this end has the token, and checks the peer's proof.

        Raises ``RemoteProtocolError`` when the peer has another token, ``TimedOut``, and ``ConnectionLost``.
        """
        control = self._control
        own_nonce = self._entropy.randbytes(NONCE_BYTES)
        control.write(own_nonce)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                peer_nonce = await control.readexactly(NONCE_BYTES)
                control.write(self._proof(serving, own_nonce, peer_nonce))
                proof = await control.readexactly(hashlib.sha256().digest_size)
        except TimeoutError:
            raise TimedOut("the tunnel's handshake was not answered", timeout=HANDSHAKE_TIMEOUT_S) from None
        except asyncio.IncompleteReadError:
            raise ConnectionLost("the peer ended the tunnel's handshake") from None
        if not hmac.compare_digest(proof, self._proof(not serving, peer_nonce, own_nonce)):
            peer = self.connection.sans_io.peer_name
            raise RemoteProtocolError(f"{peer} does not have the tunnel's token", rule="tunnel-token", peer=peer)
        control.deliver_to(self._on_control)

    def _proof(self, by_server: bool, prover: bytes, verifier: bytes) -> bytes:
        """The role is part of the proof, so that it cannot be sent back to its sender."""
        role = b"serve" if by_server else b"connect"
        return hmac.new(self._token, role + prover + verifier, hashlib.sha256).digest()

    def _on_control(self, data: bytes) -> None:
        # At once, before the end of the stream that a notice is about reaches its reader.
        self._notices += data
        while len(self._notices) >= _ID.size:
            (stream_id,) = _ID.unpack_from(self._notices)
            del self._notices[: _ID.size]
            stream = self.connection.active(stream_id)
            if stream is not None and stream_id != CONTROL_STREAM:
                self._cut_off.add(stream)

    async def cut_off(self, stream: BymuxStream) -> None:
        """Ends a stream and notifies the peer that its data did not end there."""
        try:
            with contextlib.suppress(MainstemError):
                self._control.write(_ID.pack(stream.id))
                await self._control.flush()  # the notice leaves before the Close does
        finally:
            stream.abort()

    async def relay(self, stream: BymuxStream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries bytes both ways until both directions have ended, or one was cut off."""
        outward = asyncio.ensure_future(self._outward(stream, reader))
        inward = asyncio.ensure_future(self._inward(stream, writer))
        try:
            await asyncio.gather(outward, inward)
            writer.close()
            await stream.close()
        except (MainstemError, OSError) as error:
            logger.debug("stream %d was cut off: %s", stream.id, error)
            reset(writer)
            await self.cut_off(stream)
        finally:
            for task in (outward, inward):
                task.cancel()
            self._cut_off.discard(stream)
            if not writer.transport.is_closing():
                reset(writer)
            await asyncio.gather(outward, inward, return_exceptions=True)

    async def _outward(self, stream: BymuxStream, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK):
            stream.write(data)
            await stream.drain()
        await stream.close()

    async def _inward(self, stream: BymuxStream, writer: asyncio.StreamWriter) -> None:
        while data := await stream.read(CHUNK):
            writer.write(data)
            await writer.drain()
        if stream in self._cut_off:
            raise ConnectionLost(f"stream {stream.id} was cut off at the other end")
        if writer.can_write_eof():
            writer.write_eof()


def raise_open_files_limit() -> int:
    """Raises the limit of open files to its maximum: each connection is a descriptor. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("at most %d files may be open: %s", soft, error)
            return soft
    return hard


def reset(writer: asyncio.StreamWriter) -> None:
    """Ends a TCP connection with a reset, so that its peer does not take what came for the whole."""
    raw = writer.get_extra_info("socket")
    if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class TunnelServer:
    """The far end: accepts tunnels and connects each of their streams to ``to``. A context manager."""

    def __init__(
        self,
        to: Address,
        *,
        token: bytes = b"",
        window: int = bymux.Settings.stream_window,
        max_streams: int = MAX_STREAMS,
        entropy: random.Random | None = None,
    ) -> None:
        self._to = to
        self._token = token
        self._settings = settings(serving=True, window=window, max_streams=max_streams)
        self._max_streams = max_streams
        self._entropy = entropy or random.SystemRandom()
        self._ends: dict[Connection, TunnelEnd] = {}
        self._listener: Listener[Connection] | None = None

    async def start(self, listen: Address, *, ssl: ssl_module.SSLContext | None = None) -> None:
        """Begins to listen for tunnels."""
        raise_open_files_limit()
        self._listener = await bymux.serve(
            self._handle,
            listen.host,
            listen.port,
            path=listen.path,
            ssl=ssl,
            settings=self._settings,
            on_connection=self._on_connection,
        )

    @property
    def port(self) -> int:
        """The TCP port that is listened on."""
        assert self._listener is not None
        return self._listener.port

    def stats(self) -> EndpointStats:
        """Returns what the listener for tunnels has now and what it has counted; once it was started."""
        assert self._listener is not None
        return self._listener.stats()

    async def _on_connection(self, connection: Connection) -> None:
        end = TunnelEnd(connection, self._token, self._entropy)
        try:
            await end.handshake(serving=True)
        except MainstemError as error:
            logger.warning("a tunnel was refused: %s", error)
            raise
        self._ends[connection] = end
        connection.on_ended(lambda: self._ends.pop(connection, None))
        connection.sans_io.allow_streams(self._max_streams)
        connection.schedule_flush()
        logger.info("tunnel from %s to %s", connection.sans_io.peer_name, self._to)

    async def _handle(self, stream: BymuxStream) -> None:
        end = self._ends[stream.connection]
        try:
            async with asyncio.timeout(CONNECT_TARGET_TIMEOUT_S):
                reader, writer = await open_connection(self._to)
        except (OSError, TimeoutError) as error:
            logger.warning("%s cannot be reached: %s", self._to, error)
            await end.cut_off(stream)
            return
        await end.relay(stream, reader, writer)

    async def close(self) -> None:
        """Stops listening and ends every tunnel. Twice is fine."""
        if self._listener is not None:
            await self._listener.close()

    async def __aenter__(self) -> TunnelServer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def open_connection(to: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to the address; returns a reader and a writer."""
    if to.path is not None:
        return await asyncio.open_unix_connection(to.path)
    return await asyncio.open_connection(to.host, to.port)


class TunnelClient:
    """The near end: listens for TCP connections, carries each through the tunnel, and reconnects it. A context manager."""

    def __init__(
        self,
        to: Address,
        *,
        token: bytes = b"",
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
        window: int = bymux.Settings.stream_window,
        entropy: random.Random | None = None,
    ) -> None:
        self._to = to
        self._token = token
        self._ssl = ssl
        self._server_hostname = server_hostname
        self._settings = settings(serving=False, window=window)
        self._entropy = entropy or random.SystemRandom()
        self._end: TunnelEnd | None = None
        self._up = asyncio.Event()
        self._reconnector: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._traffic = Traffic()
        self._closed = False
        self.reconnects = 0

    async def start(self, listen: Address) -> None:
        """Connects, then begins to listen. Raises what the first attempt to connect raises."""
        raise_open_files_limit()
        await self._connect()
        self._reconnector = asyncio.get_running_loop().create_task(self._reconnect_loop())
        if listen.path is not None:
            self._server = await asyncio.start_unix_server(self._accept, listen.path, start_serving=False)
        else:
            self._server = await asyncio.start_server(
                self._accept, listen.host, listen.port, backlog=1024, start_serving=False
            )
        await self._server.start_serving()  # apart, so that `close` has the socket where this is cancelled

    @property
    def port(self) -> int:
        """The TCP port that is listened on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def _connect(self) -> None:
        to = self._to
        try:
            connection = await self._open(to)
        except MainstemError:
            self._traffic.connections_unreached += 1
            raise
        connection.count_into(self._traffic)
        end = TunnelEnd(connection, self._token, self._entropy)
        try:
            await end.handshake(serving=False)
        except BaseException:
            connection.abort()
            raise
        self._end = end
        self._up.set()

    def stats(self) -> EndpointStats:
        """Returns what the tunnel has now and what it has counted, with all its reconnections."""
        engines = () if self._end is None else (self._end.connection,)
        return engine_stats(
            engines, self._traffic, protocol=bymux.BymuxConnection.PROTOCOL, role="client", is_over=self._closed
        )

    async def _open(self, to: Address) -> Connection:
        return await bymux.connect(
            to.host or "localhost" if to.path is None else None,
            to.port,
            path=to.path,
            ssl=self._ssl,
            server_hostname=self._server_hostname,
            settings=self._settings,
        )

    async def _reconnect_loop(self) -> None:
        while True:
            assert self._end is not None
            await self._end.connection.wait_ended()
            self._up.clear()
            logger.warning("the tunnel to %s broke: %s", self._to, self._end.connection.failure)
            pause = RECONNECT_FIRST_S
            while not self._up.is_set():
                await asyncio.sleep(pause * self._entropy.uniform(0.5, 1.0))
                pause = min(pause * 2, RECONNECT_MAX_S)
                try:
                    await self._connect()
                    self.reconnects += 1
                except MainstemError as error:
                    logger.warning("the tunnel to %s is still down: %s", self._to, error)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(WAIT_FOR_TUNNEL_S):
                await self._up.wait()
                assert self._end is not None
                end = self._end
                stream = await end.connection.open_stream()
        except (TimeoutError, MainstemError, ClosedError) as error:
            logger.warning("a connection was refused: %s", error or "the tunnel is down")
            reset(writer)
            return
        async with stream:
            await end.relay(stream, reader, writer)

    async def close(self) -> None:
        """Stops listening and ends the tunnel with all that it carries. Twice is fine."""
        if self._server is not None:
            self._server.close()
        if self._reconnector is not None:
            self._reconnector.cancel()
            await asyncio.gather(self._reconnector, return_exceptions=True)
        if self._end is not None:
            self._end.connection.abort()
        await asyncio.gather(*self._relays, return_exceptions=True)
        if self._end is not None:
            await self._end.connection.close()
        self._closed = True

    async def __aenter__(self) -> TunnelClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
