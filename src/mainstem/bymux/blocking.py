"""bymux for programs that block: each connection and server has a thread with an event loop, which runs :mod:`.aio`."""

from __future__ import annotations

import asyncio
import socket
from typing import IO, TYPE_CHECKING, Any

from mainstem._internal.facade import asks, runs, waits
from mainstem._internal.handler_threads import HandlerThreads
from mainstem._internal.loop_thread import LoopThread
from mainstem.bymux import aio
from mainstem.bymux.settings import Settings
from mainstem.mux.blocking import BaseStream, PeerFacade, Server
from mainstem.mux.sockets import CONNECT_TIMEOUT_S
from mainstem.mux.transports import Publication, PublicationTransport, Subscription

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from typing import Self

    from mainstem.bymux.state import Role

    Handler = Callable[["Stream"], object]
    """Handles one stream that the peer opened. It runs in a thread of its own."""
    ConnectionHandler = Callable[["Connection"], object]
    """Is told of one connection that a server accepted. It runs in a thread of its own."""

__all__ = ["Connection", "Server", "Stream", "attach", "connect", "over_publications", "serve"]


class Stream(BaseStream[aio.Stream]):
    """One stream. Each call that waits takes ``timeout`` in seconds and raises ``Timeout``.

    As a context manager it is closed at the end, and aborted when the block raises. The peer is asked to stop (StopRead) only
    if it sends, or has sent, what nothing reads any more; so a StopRead means to a handler that its response is not needed.

    Example:
        >>> with connection.open_stream() as stream:
        ...     stream.write(b"tide")
        ...     print(stream.readexactly(4, timeout=5))
    """

    def __init__(self, thread: LoopThread, stream: aio.Stream, connection: Connection | None = None) -> None:
        super().__init__(thread, stream)
        self._connection = connection or Connection(thread, stream.connection, owns_thread=False)

    @property
    def connection(self) -> Connection:
        """The connection that the stream belongs to."""
        return self._connection

    finish = runs(aio.Stream.finish)
    stop_read = runs(aio.Stream.stop_read)
    ping = waits(aio.Stream.ping)

    def close(self, timeout: float | None = None) -> None:
        """End both halves, once everything that was written has left. Closing twice is fine.

        What was not read is dropped.

        Args:
            timeout: Seconds without progress, because the peer gives no credit, until the stream is aborted and a warning is
                logged. Every byte that leaves renews it. ``None`` takes the settings' ``stall_timeout`` (10 minutes),
                ``math.inf`` sets no limit.

        Raises:
            Timeout: The timeout passed; ``unsent`` bytes were not sent.
            MainstemError: What ended the writing half before everything had left, with ``unsent``.
        """
        if not self._inner._closed:
            self._thread.run(self._inner.close(timeout))

    def abort(self) -> None:
        """End both halves now; what was queued is dropped. Aborting twice is fine.

        A reader at the peer raises ``Aborted``, unless the data was complete, and a handler there is cancelled. A peer other
        than Mainstem sees the end of data (docs/protocols/bymux.md, 10).
        """
        if not self._inner.closed:
            self._thread.call(self._inner.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.run(self._inner.__aexit__(*exc), undo=lambda _: self._inner.abort())  # type: ignore[arg-type]


class Connection(PeerFacade[aio.Connection]):
    """One end of a bymux connection. As a context manager it is closed at the end, and aborted when the block raises.

    Example:
        >>> with bymux.connect("127.0.0.1", 7000) as connection:
        ...     print(connection.ping())
    """

    def __init__(self, thread: LoopThread, connection: aio.Connection, *, owns_thread: bool = True) -> None:
        super().__init__(thread, connection)
        self._owns_thread = owns_thread

    def __del__(self) -> None:
        if getattr(self, "_owns_thread", False):
            self._warn_if_open()

    allow_streams = runs(aio.Connection.allow_streams)
    ping = waits(aio.Connection.ping)
    stats = asks(aio.Connection.stats)

    def stream(self, stream_id: int) -> Stream:
        """Return the active stream of an id, such as one that exists from the start.

        Args:
            stream_id: The id on the wire.

        Raises:
            LocalProtocolError: No stream of that id is active.
        """
        return Stream(self._thread, self._thread.call(self._inner.stream, stream_id), self)

    def open_stream(self, *, timeout: float | None = None) -> Stream:
        """Create a stream, waiting for the peer's credit for streams when none is left.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            The stream, which is a context manager.

        Raises:
            Timeout: The timeout passed.
            ClosedError: No more streams may be created.
            MainstemError: What ended the connection.
        """

        async def work() -> Stream:
            return Stream(self._thread, await self._inner.open_stream(), self)

        return self._thread.run(work(), timeout, undo=_abort)

    def accept_stream(self, *, timeout: float | None = None) -> Stream | None:
        """Wait for the next stream that the peer creates; for connections without a handler.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            The stream; ``None`` once there will be no more.

        Raises:
            Timeout: The timeout passed.
            MainstemError: What broke the connection, unless it was closed.
        """

        async def work() -> Stream | None:
            stream = await self._inner.accept_stream()
            return None if stream is None else Stream(self._thread, stream, self)

        def undo(outcome: Stream | BaseException | None) -> None:
            if isinstance(outcome, Stream):
                self._inner._runner.unaccept_stream(outcome._inner)

        return self._thread.run(work(), timeout, undo=undo)

    def streams(self) -> Iterator[Stream]:
        """Iterate over the streams that the peer creates, until it will create no more.

        Yields:
            Each stream.
        """
        while (stream := self.accept_stream()) is not None:
            yield stream

    def wait_closed(self, timeout: float | None = None) -> None:
        """Wait until the connection has ended, by either side.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Raises:
            Timeout: The timeout passed; the connection goes on.
        """
        self._wait_closed(self._inner.wait_closed, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Create no new streams, wait for the active ones, then end the connection. Closing twice is fine.

        Args:
            timeout: Seconds to wait for the active streams; those that are left are aborted. By default the settings'
                ``close_timeout`` (10), or as long as streams that were finished here make progress at the peer: the settings'
                ``stall_timeout`` without any.

        Raises:
            ClosedError: Streams that were not closed had ``unsent`` bytes that were not sent.
        """
        try:
            if not self.closed:
                self._thread.run(self._inner.close(timeout))
        finally:
            self.abort()

    def abort(self) -> None:
        """End the connection at once, with all its streams; what was not sent is dropped."""
        if self._owns_thread:
            self._thread.stop(self._inner.abort)
        elif not self.closed:
            self._thread.call(self._inner.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def _abort(outcome: Stream | Connection | Server | BaseException) -> None:
    """End what an interrupted call had made."""
    if not isinstance(outcome, BaseException):
        outcome._inner.abort()


def _streams(
    thread: LoopThread, handler: Handler | None, handlers: HandlerThreads | None = None
) -> Callable[[aio.Stream], Awaitable[None]] | None:
    if handler is None:
        return None
    return (handlers or HandlerThreads()).adapt(handler, lambda stream: Stream(thread, stream))


def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | None = None,
    server_hostname: str | None = None,
    handler: Handler | None = None,
    timeout: float | None = CONNECT_TIMEOUT_S,
    settings: Settings | None = None,
    **overrides: Any,
) -> Connection:
    """Connect over TCP, TLS or a Unix socket, as the proactive end.

    Args:
        host: The peer's address.
        port: Its TCP port.
        path: The path of a Unix socket, in place of host and port.
        ssl: A client-side context, for TLS; or give the settings' ``ca``.
        server_hostname: The name that the peer's certificate must have; ``host`` by default.
        handler: Called with each stream that the peer creates, in a thread of its own. Without one they wait for
            :meth:`Connection.accept_stream`.
        timeout: Seconds for connecting (10); ``None`` waits without a limit.
        settings: The connection's configuration; the defaults are vanilla bymux.
        **overrides: Settings by name, as `Settings` has them.

    Returns:
        The connection, which is a context manager.

    Raises:
        ConnectionLost: The peer cannot be reached.
        Timeout: Connecting took too long.
        ConfigurationError: Neither host and port nor path.

    Example:
        >>> with bymux.connect("127.0.0.1", 7000) as connection:
        ...     print(connection.ping())
    """

    async def start(thread: LoopThread) -> Connection:
        opening = aio.connect(
            host,
            port,
            path=path,
            ssl=ssl,
            server_hostname=server_hostname,
            handler=_streams(thread, handler),
            timeout=timeout,
            settings=settings,
            **overrides,
        )
        return Connection(thread, await opening)

    return LoopThread.running(start, _abort)


def serve(
    handler: Handler,
    host: str | Sequence[str] | None = "127.0.0.1",
    port: int | None = None,
    *,
    path: str | None = None,
    sock: socket.socket | Sequence[socket.socket] | None = None,
    ssl: ssl_module.SSLContext | None = None,
    on_connection: ConnectionHandler | None = None,
    settings: Settings | None = None,
    **overrides: Any,
) -> Server:
    """Listen over TCP, TLS or a Unix socket, as the reactive end, and run handlers in threads.

    Args:
        handler: Called with each stream that a peer creates, in a thread of its own. When it returns, the stream is closed; when
            it raises, the stream is aborted, and what it raised is logged. When the stream or the server ends first, what the
            handler waits for on the stream raises.
        host: The address or name to listen on, or several. The default is reachable from this machine only; ``None`` listens on
            all interfaces.
        port: The TCP port of every address; 0 or ``None`` for one that the system chooses.
        path: The path of a Unix socket, in place of host and port. The file of a server that was killed is replaced.
        sock: One or more bound sockets to listen on instead, such as those of socket activation, or with ``SO_REUSEPORT``. The
            server closes them.
        ssl: A server-side context, for TLS; or give the settings' ``certificate`` and ``key``.
        on_connection: Called with each connection, in a thread of its own. Whatever it raises ends that connection and counts as
            a failed handler; to refuse a peer it calls ``connection.abort()``. Streams are served meanwhile, unless
            ``allow_at_start`` is off.
        settings: The configuration of each connection; the defaults are vanilla bymux.
        **overrides: Settings by name, as `Settings` has them.

    Returns:
        The server, which is a context manager.

    Raises:
        ConfigurationError: The address cannot be listened on, or another server listens on the path.

    Example:
        >>> def echo(stream):
        ...     for data in stream:
        ...         stream.write(data)
        >>> with bymux.serve(echo, "127.0.0.1", 7000) as server:
        ...     server.wait()
    """
    made = Settings.of(settings, overrides)
    handlers = HandlerThreads(made.max_handlers, made.max_handlers_per_address)

    async def start(thread: LoopThread) -> Server:
        def view(connection: aio.Connection) -> Connection:
            return Connection(thread, connection, owns_thread=False)

        on_streams = _streams(thread, handler, handlers)
        assert on_streams is not None
        opening = aio.serve(
            on_streams,
            host,
            port,
            path=path,
            sock=sock,
            ssl=ssl,
            on_connection=None if on_connection is None else handlers.adapt(on_connection, view),
            settings=made,
        )
        return Server(thread, await opening)

    return LoopThread.running(start, _abort)


def attach(
    reader: socket.socket | IO[bytes],
    writer: socket.socket | IO[bytes],
    *,
    role: Role,
    handler: Handler | None = None,
    settings: Settings | None = None,
    **overrides: Any,
) -> Connection:
    """Start a connection over a connected socket, or over two pipes such as those of a process.

    Both belong to the connection from now on, and are closed with it.

    Args:
        reader: The bytes from the peer: a stream socket, or the end of a pipe.
        writer: The bytes to the peer: the same socket, or the end of another pipe.
        role: This end's role; the peer has the other one.
        handler: Called with each stream that the peer creates, in a thread of its own.
        settings: The connection's configuration; the defaults are vanilla bymux.
        **overrides: Settings by name, as `Settings` has them.

    Returns:
        The connection, which is a context manager.

    Raises:
        ValueError: They are neither one socket nor two pipes.

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
            connection._runner.on_ended(transport.close)
        return Connection(thread, connection)

    return LoopThread.running(start, _abort)


async def _open_pair(
    reader: socket.socket | IO[bytes], writer: socket.socket | IO[bytes], made: list[asyncio.BaseTransport]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Make a reader and a writer of asyncio; ``made`` receives the transports below."""
    if isinstance(reader, socket.socket) and reader is writer:
        reader.setblocking(False)
        opened = await asyncio.open_connection(sock=reader)
        made.append(opened[1].transport)
        return opened
    if isinstance(reader, socket.socket) or isinstance(writer, socket.socket):
        raise ValueError("a socket is both reader and writer: attach(sock, sock, role=...)")
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

    Both belong to the caller and must stay open while the connection does; the connection's thread polls the subscription, so no
    other may.

    Args:
        publication: The bytes to the peer.
        subscription: The bytes from the peer.
        role: This end's role; the peer has the other one.
        handler: Called with each stream that the peer creates, in a thread of its own.
        message_limit: Bytes of one message, at most what one fragment holds (``publication.max_payload_length``).
        settings: The connection's configuration; the defaults are vanilla bymux.
        **overrides: Settings by name, as `Settings` has them.

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
        return Connection(thread, connection)

    return LoopThread.running(start, _abort)
