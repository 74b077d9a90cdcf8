"""Blocking Jmux: each client and server has a thread with an event loop that runs :mod:`.aio`.

All methods can be called from any thread. Each handler of a server runs in its own thread.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._internal.handler_threads import HandlerThreads
from mainstem._internal.loop_thread import abort_outcome, asks, ends, runs, waits
from mainstem._internal.made import Made
from mainstem._internal.overrides import apply_overrides
from mainstem.jmux import aio_client, aio_server
from mainstem.jmux.aio_server import begin
from mainstem.jmux.session_stream import SessionStream
from mainstem.jmux.settings import Settings
from mainstem.mux.blocking import BaseStream, PeerFacade, Server, open_in_thread
from mainstem.mux.sockets import CONNECT_TIMEOUT_S, ServerAddress, start_server
from mainstem.mux.tls import client_context

if TYPE_CHECKING:
    import socket
    import ssl as ssl_module
    from collections.abc import Callable, Sequence

    from mainstem._internal.loop_thread import LoopThread
    from mainstem.errors import Delivery

S = TypeVar("S", bound=SessionStream)


class Session(BaseStream[S]):
    """Base class of both ends of a session."""

    abort = runs(SessionStream.abort, is_close=True)


class ClientSession(Session[aio_client.ClientSession]):
    """One request and its response. Each call that waits takes ``timeout`` in seconds and can raise ``Timeout``.

    A ``with`` block closes the session at its end. A block that raises, or leaves the response unread, aborts it.

    Example:
        >>> with client.open_session() as session:
        ...     session.write(b"whole request")
        ...     session.finish()
        ...     print(session.read(-1, timeout=5))
    """

    _client: Client

    @property
    def delivery(self) -> Delivery:
        """How much of the request the server may have processed, as far as is known now."""
        return self._inner.delivery

    @property
    def may_retry(self) -> bool:
        """Whether it is certain that sending the request again does not make the server execute it twice."""
        return self._inner.may_retry

    @property
    def acknowledgment_required(self) -> bool:
        """Whether the server requested an acknowledgment that the response has been processed."""
        return self._inner.acknowledgment_required

    finish = runs(aio_client.ClientSession.finish)
    acknowledge = runs(aio_client.ClientSession.acknowledge)
    close = waits(aio_client.ClientSession.close, is_close=True)


class Client(PeerFacade[aio_client.Client], metaclass=Made, made_by="mainstem.jmux.connect()"):
    """Sends requests to one server, opening another connection for every 128 requests in flight.

    :func:`connect` returns it. It is a context manager, and any number of threads can use it at once.

    Example:
        >>> with jmux.connect("127.0.0.1", 7001) as client:
        ...     print(client.request(b"whole request"))
    """

    def __del__(self) -> None:
        self._warn_if_open(owns_thread=True)

    stats = asks(aio_client.Client.stats)
    request = waits(aio_client.Client.request)

    def open_session(self, *, timeout: float | None = None) -> ClientSession:
        """Open a session for one request, which you write and read as a stream.

        If all sessions are busy, wait for a free one or for another connection.

        Args:
            timeout: Seconds to wait; ``None`` waits forever.

        Returns:
            The session, which is a context manager.

        Raises:
            ClosedError: The client is closed.
            ConnectionLost: There is no connection, and the server is unreachable.
            Timeout: The timeout passed; or there is no connection, and connecting took too long.
        """

        async def work() -> ClientSession:
            session = ClientSession(self._thread, await self._inner.open_session(timeout=timeout))
            session._client = self  # the client ends if nothing refers to it
            return session

        return self._thread.run(work(), undo=abort_outcome)

    close = ends(aio_client.Client.close)

    def abort(self) -> None:
        """End all connections immediately. Incomplete requests fail."""
        self._thread.stop(self._inner.abort)

    def __exit__(self, *exc: object) -> None:
        self.close()


class ServerSession(Session[aio_server.ServerSession]):
    """One request and its response. Each call that waits takes ``timeout`` in seconds and can raise ``Timeout``.

    When the handler returns, the response is complete, and possibly empty. If the handler raises, the session is aborted.

    Example:
        >>> def handler(session):
        ...     session.write(session.read(-1))
    """

    @property
    def caller_waiting(self) -> bool:
        """Whether the client is still waiting for the response.

        False once the client has aborted the session, the connection has ended, or the response is complete. Calls in which the
        handler waits then raise an error; a handler that computes can check this.
        """
        return self._inner.caller_waiting

    finish = runs(aio_server.ServerSession.finish)
    acknowledged = waits(aio_server.ServerSession.acknowledged)
    reject = runs(aio_server.ServerSession.reject)
    close = waits(aio_server.ServerSession.close, is_close=True)


def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | bool | None = None,
    server_hostname: str | None = None,
    settings: Settings | None = None,
    timeout: float | None = CONNECT_TIMEOUT_S,
    **overrides: Any,
) -> Client:
    """Connect to a server over TCP, TLS or a Unix socket.

    Args:
        host: The server's name or address.
        port: The server's TCP port.
        path: The path of a Unix socket, instead of host and port.
        ssl: For TLS: a client-side context, or ``True`` for a default one, which trusts the system's authorities. Alternatively,
            set ``ca`` in the settings.
        server_hostname: The name that the server's certificate must have; by default, ``host``.
        settings: The limits and timeouts of the client and its connections.
        timeout: Seconds for each attempt to connect, including the server's header; ``None`` waits forever.
        overrides: Fields of :class:`Settings` by name, which override ``settings``.

    Returns:
        A client with its first connection. It is a context manager.

    Raises:
        ConnectionLost: The server is unreachable.
        Timeout: Connecting took too long.
        RemoteProtocolError: The server does not speak Jmux, or only one end uses TLS.
        ConfigurationError: Neither host and port nor a path is given, or a setting is unknown or out of range.

    Example:
        >>> with jmux.connect("127.0.0.1", 7001) as client:
        ...     print(client.request(b"whole request"))
    """
    made = apply_overrides(Settings, settings, overrides)
    address = ServerAddress(host, port, path, client_context(ssl, made), server_hostname)

    async def start(thread: LoopThread) -> Client:
        return Client.made(thread, await aio_client.open_client(address, made, timeout))

    return open_in_thread(start)


def serve(
    handler: Callable[[ServerSession], object],
    host: str | Sequence[str] | None = "127.0.0.1",
    port: int | None = None,
    *,
    path: str | None = None,
    sock: socket.socket | Sequence[socket.socket] | None = None,
    ssl: ssl_module.SSLContext | bool | None = None,
    settings: Settings | None = None,
    **overrides: Any,
) -> Server:
    """Listen for requests over TCP, TLS or a Unix socket.

    If a handler raises, its session is aborted, and the exception is logged and counted (``stats().handlers_failed``), unless it
    is the error with which the handler's own session or connection ended.

    Args:
        handler: Called with each session, in its own thread. Once the client aborts the session, the connection ends, or the
            server closes, the handler's calls on the session raise.
        host: One or more addresses or names to listen on. The default is reachable only from this host; ``None`` listens on all
            interfaces.
        port: The TCP port, the same for every address; with 0 or ``None``, the system chooses one.
        path: The path of a Unix socket, instead of host and port. A file left by a killed server is replaced.
        sock: One or more bound sockets to listen on instead, for example from socket activation or with ``SO_REUSEPORT``. The
            server closes them.
        ssl: A server-side context, for TLS. Alternatively, set ``certificate`` and ``key`` in the settings.
        settings: The limits and timeouts of the server and its connections.
        overrides: Fields of :class:`Settings` by name, which override ``settings``.

    Returns:
        The server, which is a context manager.

    Raises:
        ConfigurationError: The server cannot listen on the address, another server listens on the path, or a setting is unknown
            or out of range.

    Example:
        >>> with jmux.serve(handler, "127.0.0.1", 7001) as server:
        ...     server.wait()
    """
    made = apply_overrides(Settings, settings, overrides)
    threads = HandlerThreads(made.max_handlers, made.max_handlers_per_address)

    async def start(thread: LoopThread) -> Server:
        adapted = threads.adapt(handler, functools.partial(ServerSession, thread), begin)
        server = aio_server.make_server(adapted, made, ssl)
        return Server.made(thread, await start_server(server, host, port, path, sock))

    return open_in_thread(start)
