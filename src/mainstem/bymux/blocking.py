"""Blocking bymux: each connection and server has a thread with an event loop that runs :mod:`.aio`."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from typing import IO, TYPE_CHECKING, Any

from mainstem._internal.handler_threads import HandlerThreads
from mainstem._internal.loop_thread import abort_outcome, asks, ends, runs, waits, waits_for_end
from mainstem._internal.made import Made
from mainstem._internal.overrides import apply_overrides
from mainstem.bymux import aio
from mainstem.bymux.aio_connection import protocol_of
from mainstem.bymux.settings import Settings
from mainstem.errors import ClosedError, ConfigurationError
from mainstem.mux.aio_stream import is_closed_here
from mainstem.mux.blocking import BaseStream, PeerFacade, Server, open_in_thread
from mainstem.mux.sockets import CONNECT_TIMEOUT_S, ServerAddress, start_server
from mainstem.mux.tls import client_context
from mainstem.mux.transports import Publication, PublicationTransport, Subscription

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from mainstem._internal.loop_thread import LoopThread
    from mainstem.bymux.state import Role

    Handler = Callable[["Stream"], object]
    """Handles one stream that the peer opened. Each call runs in its own thread."""
    ConnectionHandler = Callable[["Connection"], object]
    """Called with each connection that a server accepts. Each call runs in its own thread."""

__all__ = ["Connection", "Server", "Stream", "attach", "connect", "over_publications", "serve"]


class Stream(BaseStream[aio.Stream]):
    """One stream. Each call that waits takes ``timeout`` in seconds and can raise ``Timeout``.

    A ``with`` block closes the stream at its end, or aborts it if the block raises. The peer is asked to stop (StopRead) only if
    it sends, or has sent, data that nothing reads any more. So for a handler, a StopRead means that nobody needs its response.

    Example:
        >>> with connection.open_stream() as stream:
        ...     stream.write(b"tide")
        ...     print(stream.readexactly(4, timeout=5))
    """

    def __init__(self, thread: LoopThread, stream: aio.Stream, connection: Connection | None = None) -> None:
        super().__init__(thread, stream)
        self._connection = connection or Connection.made(thread, stream.connection, owns_thread=False)

    @property
    def connection(self) -> Connection:
        """The connection that the stream belongs to."""
        return self._connection

    finish = runs(aio.Stream.finish)
    stop_read = runs(aio.Stream.stop_read)
    ping = waits(aio.Stream.ping)

    def close(self, timeout: float | None = None) -> None:
        """End both halves once all written data has been sent. Unread data is dropped.

        This can be called more than once.

        Args:
            timeout: Seconds without progress, because the peer gives no credit, after which the stream is aborted and a warning is
                logged. Every byte that is sent restarts the timeout. ``None`` uses ``stall_timeout`` from the settings (10 minutes
                by default); ``math.inf`` sets no limit.

        Raises:
            Timeout: The timeout passed; ``unsent`` bytes were not sent.
            MainstemError: The error that ended the writing half before everything had been sent; ``unsent`` bytes were not.
        """
        if not is_closed_here(self._inner) and not self._thread.is_inherited:
            self._thread.run(self._inner.close(timeout))

    def abort(self) -> None:
        """End both halves immediately, dropping queued data. Can be called more than once.

        At the peer, reads raise ``Aborted``, unless the data was complete, and a handler is cancelled. Peers other than Mainstem
        see the end of data (docs/protocols/bymux.md, 10).
        """
        if not self.closed:
            self._thread.call(self._inner.abort)

    def _unaccept(self) -> None:
        """Make this stream the next one to be accepted."""
        protocol_of(self._inner.connection).unaccept_stream(self._inner)


class Connection(PeerFacade[aio.Connection], metaclass=Made, made_by="mainstem.bymux.connect()"):
    """One end of a bymux connection. A ``with`` block closes it at its end, or aborts it if the block raises.

    Example:
        >>> with bymux.connect("127.0.0.1", 7000) as connection:
        ...     print(connection.ping())
    """

    def __init__(self, thread: LoopThread, connection: aio.Connection, *, owns_thread: bool = True) -> None:
        super().__init__(thread, connection)
        self._owns_thread = owns_thread

    def __del__(self) -> None:
        if getattr(self, "_owns_thread", False):
            self._warn_if_open(owns_thread=True)

    allow_streams = runs(aio.Connection.allow_streams)
    ping = waits(aio.Connection.ping)
    stats = asks(aio.Connection.stats)

    def stream(self, stream_id: int) -> Stream:
        """Return the active stream with an id, such as an initial stream.

        Args:
            stream_id: The stream's id on the wire.

        Raises:
            LocalProtocolError: No stream with that id is active.
        """
        return Stream(self._thread, self._thread.call(self._inner.stream, stream_id), self)

    def open_stream(self, *, timeout: float | None = None) -> Stream:
        """Create a stream. If there is no credit for streams left, wait for the peer to give some.

        Args:
            timeout: Seconds to wait; ``None`` waits forever.

        Returns:
            The stream, which is a context manager.

        Raises:
            Timeout: The timeout passed.
            ClosedError: No more streams can be created.
            MainstemError: The error that ended the connection.
        """

        async def work() -> Stream:
            return Stream(self._thread, await self._inner.open_stream(), self)

        return self._thread.run(work(), timeout, undo=abort_outcome)

    def accept_stream(self, *, timeout: float | None = None) -> Stream | None:
        """Wait for the next stream that the peer creates. For connections without a handler.

        Args:
            timeout: Seconds to wait; ``None`` waits forever.

        Returns:
            The stream; ``None`` once there will be no more.

        Raises:
            Timeout: The timeout passed.
            MainstemError: The error that broke the connection, unless it was closed.
        """

        async def work() -> Stream | None:
            stream = await self._inner.accept_stream()
            return None if stream is None else Stream(self._thread, stream, self)

        try:
            return self._thread.run(work, timeout, undo=_unaccept)
        except ClosedError:  # another call, or an earlier one, has closed the connection, whose thread has ended
            if self._thread.is_inherited or not self.closed:
                raise
            if self.error is not None:
                raise self.error from None
            return None

    def streams(self) -> Iterator[Stream]:
        """Iterate over the streams that the peer creates, until it creates no more.

        Yields:
            Each stream.
        """
        while (stream := self.accept_stream()) is not None:
            yield stream

    wait_closed = waits_for_end(aio.Connection.wait_closed)
    close = ends(aio.Connection.close)

    def abort(self) -> None:
        """End the connection and all its streams immediately, dropping unsent data."""
        if self._owns_thread:
            self._thread.stop(self._inner.abort)
        elif not self.closed:
            self._thread.call(self._inner.abort)

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def _unaccept(outcome: Stream | BaseException | None) -> None:
    if isinstance(outcome, Stream):
        outcome._unaccept()


def _view(thread: LoopThread) -> Callable[[aio.Stream], Stream]:
    return lambda stream: Stream(thread, stream)


def _streams(thread: LoopThread, handler: Handler | None) -> Callable[[aio.Stream], Awaitable[None]] | None:
    return None if handler is None else HandlerThreads().adapt(handler, _view(thread))


def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | bool | None = None,
    server_hostname: str | None = None,
    handler: Handler | None = None,
    timeout: float | None = CONNECT_TIMEOUT_S,
    settings: Settings | None = None,
    **overrides: Any,
) -> Connection:
    """Connect over TCP, TLS or a Unix socket, as the proactive end.

    Args:
        host: The peer's name or address.
        port: The peer's TCP port.
        path: The path of a Unix socket, instead of host and port.
        ssl: For TLS: a client-side context, or ``True`` for a default one, which trusts the system's authorities. Alternatively,
            set ``ca`` in the settings.
        server_hostname: The name that the peer's certificate must have; by default, ``host``.
        handler: Called with each stream that the peer creates, in its own thread. Without a handler, streams wait for
            :meth:`Connection.accept_stream`.
        timeout: Seconds for connecting (10); ``None`` waits forever.
        settings: The connection's configuration. The defaults are vanilla bymux.
        **overrides: Fields of `Settings` by name, which override ``settings``.

    Returns:
        The connection, which is a context manager.

    Raises:
        ConnectionLost: The peer is unreachable.
        Timeout: Connecting took too long.
        RemoteProtocolError: ``ssl`` or ``ca`` is given, and the peer does not use TLS.
        ConfigurationError: Neither host and port nor a path is given, or an argument or setting is invalid.

    Example:
        >>> with bymux.connect("127.0.0.1", 7000) as connection:
        ...     print(connection.ping())
    """
    made = apply_overrides(Settings, settings, overrides)
    address = ServerAddress(host, port, path, client_context(ssl, made), server_hostname)

    async def start(thread: LoopThread) -> Connection:
        return Connection.made(thread, await aio.open_connection(address, made, _streams(thread, handler), timeout))

    return open_in_thread(start)


def serve(
    handler: Handler,
    host: str | Sequence[str] | None = "127.0.0.1",
    port: int | None = None,
    *,
    path: str | None = None,
    sock: socket.socket | Sequence[socket.socket] | None = None,
    ssl: ssl_module.SSLContext | bool | None = None,
    on_connection: ConnectionHandler | None = None,
    settings: Settings | None = None,
    **overrides: Any,
) -> Server:
    """Listen over TCP, TLS or a Unix socket, as the reactive end, and run handlers in threads.

    Args:
        handler: Called with each stream that a peer creates, in its own thread. When the handler returns, the stream is closed.
            If it raises, the stream is aborted and the exception is logged. If the stream or the server ends first, the
            handler's calls on the stream raise.
        host: One or more addresses or names to listen on. The default is reachable only from this host; ``None`` listens on all
            interfaces.
        port: The TCP port, the same for every address; with 0 or ``None``, the system chooses one.
        path: The path of a Unix socket, instead of host and port. A file left by a killed server is replaced.
        sock: One or more bound sockets to listen on instead, for example from socket activation or with ``SO_REUSEPORT``. The
            server closes them.
        ssl: A server-side context, for TLS. Alternatively, set ``certificate`` and ``key`` in the settings.
        on_connection: Called with each connection, in its own thread. Any exception ends that connection and counts as a failed
            handler. To refuse a peer, call ``connection.abort()``. The peer's streams wait until it returns, or calls
            ``connection.allow_streams``.
        settings: The configuration of each connection. The defaults are vanilla bymux.
        **overrides: Fields of `Settings` by name, which override ``settings``.

    Returns:
        The server, which is a context manager.

    Raises:
        ConfigurationError: The server cannot listen on the address, or another server listens on the path.

    Example:
        >>> def echo(stream):
        ...     for data in stream:
        ...         stream.write(data)
        >>> with bymux.serve(echo, "127.0.0.1", 7000) as server:
        ...     server.wait()
    """
    made = apply_overrides(Settings, settings, overrides)
    handlers = HandlerThreads(made.max_handlers, made.max_handlers_per_address)

    async def start(thread: LoopThread) -> Server:
        def view(connection: aio.Connection) -> Connection:
            return Connection.made(thread, connection, owns_thread=False)

        on_streams = handlers.adapt(handler, _view(thread))
        greet = None if on_connection is None else handlers.adapt(on_connection, view)
        server = aio.make_server(on_streams, greet, made, ssl)
        return Server.made(thread, await start_server(server, host, port, path, sock))

    return open_in_thread(start)


def attach(
    reader: socket.socket | IO[bytes],
    writer: socket.socket | IO[bytes],
    *,
    role: Role,
    handler: Handler | None = None,
    settings: Settings | None = None,
    **overrides: Any,
) -> Connection:
    """Start a connection over a connected socket, or over two pipes such as those of a subprocess.

    The connection owns both objects from now on, and closes them at its end.

    Args:
        reader: The source of bytes from the peer: a stream socket, or the end of a pipe.
        writer: The destination of bytes to the peer: the same socket, or the end of another pipe.
        role: This end's role; the peer has the other one.
        handler: Called with each stream that the peer creates, in its own thread.
        settings: The connection's configuration. The defaults are vanilla bymux.
        **overrides: Fields of `Settings` by name, which override ``settings``.

    Returns:
        The connection, which is a context manager.

    Raises:
        ConfigurationError: The arguments are neither one connected stream socket nor two pipes, or a setting is unknown or out of
            range.

    Example:
        >>> with bymux.attach(process.stdout, process.stdin, role=bymux.Role.PROACTIVE) as connection:
        ...     print(connection.ping())
    """

    async def start(thread: LoopThread) -> Connection:
        on_streams = _streams(thread, handler)
        made: list[asyncio.BaseTransport] = []
        try:
            connection = await aio.attach(
                *await _open_pair(reader, writer, made), role=role, handler=on_streams, settings=settings, **overrides
            )
        except BaseException:
            for transport in made:
                transport.close()
            raise
        for transport in made:
            protocol_of(connection).on_ended(transport.close)
        return Connection.made(thread, connection)

    return open_in_thread(start)


async def _open_pair(
    reader: socket.socket | IO[bytes], writer: socket.socket | IO[bytes], made: list[asyncio.BaseTransport]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Make an asyncio reader and writer, and append their transports to ``made``. Raises ConfigurationError."""
    try:
        for end in (reader, writer):
            _check_descriptor(end)
        return await _connect_pair(reader, writer, made)
    except (OSError, TypeError, ValueError) as error:
        text = (
            f"cannot attach: {error}; pass one connected stream socket twice, or the reading end of one pipe and the writing end "
            "of another"
        )
        raise ConfigurationError(text) from error


def _check_descriptor(end: socket.socket | IO[bytes]) -> None:
    """Raise TypeError or ValueError for an object that asyncio would reject only after it has made half a transport."""
    try:
        mode = os.fstat(end.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        raise TypeError(f"{end!r} has no open file descriptor") from None
    if not (stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        raise ValueError(f"{end!r} is neither a socket nor a pipe")


async def _connect_pair(
    reader: socket.socket | IO[bytes], writer: socket.socket | IO[bytes], made: list[asyncio.BaseTransport]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(reader, socket.socket) and reader is writer:
        reader.setblocking(False)
        opened = await asyncio.open_connection(sock=reader)
        made.append(opened[1].transport)
        return opened
    if isinstance(reader, socket.socket) or isinstance(writer, socket.socket):
        raise ValueError("a socket is both reader and writer")
    loop = asyncio.get_running_loop()
    stream_reader = asyncio.StreamReader()
    incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream_reader), reader)
    made.append(incoming)
    outgoing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), writer
    )
    made.append(outgoing)
    return stream_reader, asyncio.StreamWriter(outgoing, protocol, None, loop)


def over_publications(
    publication: Publication,
    subscription: Subscription,
    *,
    role: Role,
    handler: Handler | None = None,
    message_limit: int = PublicationTransport.MESSAGE_LIMIT,
    settings: Settings | None = None,
    **overrides: Any,
) -> Connection:
    """Start a connection over a publication to the peer and a subscription from it, such as Aeron's.

    The caller owns both, and must keep them open as long as the connection. The connection's thread polls the subscription, so
    nothing else may poll it. The connection waits until the peer's subscription and publication have joined. After that, the end of
    either direction is ConnectionLost, unless the peer has closed the connection.

    Args:
        publication: The publication to the peer.
        subscription: The subscription from the peer.
        role: This end's role; the peer has the other one.
        handler: Called with each stream that the peer creates, in its own thread.
        message_limit: Maximum size in bytes of one message, which must fit into one fragment (``publication.max_payload_length``).
        settings: The connection's configuration. The defaults are vanilla bymux.
        **overrides: Fields of `Settings` by name, which override ``settings``.

    Returns:
        The connection, which is a context manager.

    Example:
        >>> with bymux.over_publications(publication, subscription, role=bymux.Role.PROACTIVE) as connection:
        ...     print(connection.ping())
    """

    async def start(thread: LoopThread) -> Connection:
        connection = await aio.over_publications(
            publication,
            subscription,
            role=role,
            handler=_streams(thread, handler),
            message_limit=message_limit,
            settings=settings,
            **overrides,
        )
        return Connection.made(thread, connection)

    return open_in_thread(start)
