"""The client for callers that block: the asyncio client, run by a thread. Every method may be called from any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._internal.loop_thread import LoopThread
from mainstem.jmux import aio_client
from mainstem.jmux.blocking_session import Session
from mainstem.jmux.settings import Settings
from mainstem.mux.blocking import PeerFacade
from mainstem.mux.sockets import CONNECT_TIMEOUT_S

if TYPE_CHECKING:
    import ssl as ssl_module
    from typing import Self

    from mainstem._internal.endpoint_stats import EndpointStats
    from mainstem.errors import Delivery


class ClientSession(Session[aio_client.ClientSession]):
    """One request and its response. Each call that waits takes ``timeout`` in seconds and raises ``Timeout``.

    As a context manager it is closed at the end of the block; a block that raises, or leaves the response unread, aborts it.

    Example:
        >>> with client.open_session() as session:
        ...     session.write(b"whole request")
        ...     session.finish()
        ...     print(session.read(-1, timeout=5))
    """

    @property
    def delivery(self) -> Delivery:
        """How much of the request the server may have processed, by what is known now."""
        return self._inner.delivery

    @property
    def may_retry(self) -> bool:
        """Whether sending the request again cannot make the server execute it twice."""
        return self._inner.may_retry

    @property
    def acknowledgment_required(self) -> bool:
        """Whether the server asked for an acknowledgment once the response is processed."""
        return self._inner.acknowledgment_required

    def finish(self) -> None:
        """Marks the request as complete. Twice is fine.

        Raises:
            MainstemError: What ended the session.

        Example:
            >>> session.write(b"whole request")
            >>> session.finish()
        """
        self._thread.call(self._inner.finish)

    def acknowledge(self) -> None:
        """Reports to the server that the response was processed; :meth:`close` does the same.

        Raises:
            LocalProtocolError: The server did not ask for it, or it was sent already.

        Example:
            >>> if session.acknowledgment_required:
            ...     session.acknowledge()
        """
        self._thread.call(self._inner.acknowledge)

    def close(self) -> None:
        """Ends the session: acknowledges a response that was read, and aborts without one. Twice is fine.

        Raises:
            MainstemError: What ended the session before its response was complete, unless a call raised it before.

        Example:
            >>> session = client.open_session()
            >>> session.close()
        """
        self._thread.run(self._inner.close)


class Client(PeerFacade[aio_client.Client]):
    """Sends requests to one server, over as many connections as 128 requests each make necessary.

    A context manager; :func:`connect` returns it. Any number of threads may use it at once.

    Example:
        >>> with jmux.connect("127.0.0.1", 7001) as client:
        ...     print(client.request(b"whole request"))
    """

    def stats(self) -> EndpointStats:
        """Returns what the client has now and what it has counted.

        Returns:
            The figures of all its connections, those that have ended among them.

        Example:
            >>> client.stats().streams_opened
            128
        """
        return self._inner.stats()

    def open_session(self, *, timeout: float | None = None) -> ClientSession:
        """Opens a session for one request, which is written and read as a stream.

        While all sessions are busy it waits for a free one, or for another connection.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            The session, which is a context manager.

        Raises:
            ClosedError: The client is closed.
            ConnectionLost: There is no connection, and the server cannot be reached.
            Timeout: The timeout passed; or there is no connection, and connecting took too long.

        Example:
            >>> with client.open_session() as session:
            ...     session.write(b"whole request")
            ...     session.finish()
            ...     print(session.read(-1))
        """

        async def work() -> ClientSession:
            return ClientSession(self._thread, await self._inner._open_session(timeout))

        def undo(outcome: ClientSession | BaseException) -> None:
            if isinstance(outcome, ClientSession):
                outcome._inner.abort()

        return self._thread.run(work(), undo=undo)

    def request(
        self, payload: bytes | bytearray | memoryview, timeout: float | None = None, *, attempts: int = 2
    ) -> bytes:
        """Sends a whole request and waits for the whole response.

        The request is sent again only where the specification guarantees that the server processed nothing of it, or when the
        server could not be reached, after a pause that doubles with each attempt. Every error has ``delivery`` and ``may_retry``.

        Args:
            payload: The request.
            timeout: Seconds for all attempts together, after which the session is aborted, which cancels its handler;
                ``None`` waits without a limit.
            attempts: How often the request is sent at most.

        Returns:
            The response.

        Raises:
            Timeout: The timeout passed.
            LimitExceeded: The response is longer than the settings' ``read_limit``.
            Aborted: The server aborted the session.
            ConnectionLost: The connection broke, or the server cannot be reached.
            MainstemError: What else ended the session or the connection.

        Example:
            >>> response = client.request(b"whole request", timeout=5)
        """
        return self._thread.run(self._inner.request(payload, timeout, attempts=attempts))

    def close(self) -> None:
        """Ends every connection and the thread; requests that are not complete fail. Twice is fine.

        Example:
            >>> client.close()
        """
        try:
            if not self.closed:
                self._thread.run(self._inner.close())
        finally:
            self.abort()

    def abort(self) -> None:
        """Ends every connection at once; requests that are not complete fail.

        Example:
            >>> client.abort()
        """
        self._thread.stop(self._inner.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def connect(
    host: str | None = None,
    port: int | None = None,
    *,
    path: str | None = None,
    ssl: ssl_module.SSLContext | None = None,
    server_hostname: str | None = None,
    settings: Settings | None = None,
    timeout: float | None = CONNECT_TIMEOUT_S,
    **overrides: Any,
) -> Client:
    """Connects to a server over TCP, TLS or a Unix socket.

    Args:
        host: The server's address.
        port: Its TCP port.
        path: The path of a Unix socket, in place of host and port.
        ssl: A client-side context, for TLS; or give the settings' ``ca``.
        server_hostname: The name that the server's certificate must have; ``host`` by default.
        settings: The limits and times of the client and its connections.
        timeout: Seconds for each connecting, the server's header included; ``None`` waits without a limit.
        overrides: Fields of :class:`Settings`, in place of those of ``settings``.

    Returns:
        A client with its first connection. It is a context manager.

    Raises:
        ConnectionLost: The server cannot be reached.
        Timeout: Connecting took too long.
        RemoteProtocolError: The server does not speak Jmux.
        ConfigurationError: Neither host and port nor path.

    Example:
        >>> with jmux.connect("127.0.0.1", 7001) as client:
        ...     print(client.request(b"whole request"))
    """
    made = Settings.of(settings, overrides)

    async def start(thread: LoopThread) -> Client:
        opening = aio_client.connect(
            host, port, path=path, ssl=ssl, server_hostname=server_hostname, settings=made, timeout=timeout
        )
        return Client(thread, await opening)

    def undo(outcome: Client | BaseException) -> None:
        if isinstance(outcome, Client):
            outcome._inner.abort()

    return LoopThread.running(start, undo)
