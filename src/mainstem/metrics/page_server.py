"""A page of metrics for Prometheus over HTTP, served in a thread with its own event loop.

Each connection serves one request and ends with the response. Its limits are those of every HTTP server
(:mod:`mainstem._internal.http_listener`). A second thread renders the page, once for all requests that are waiting for it, because
its source can be slow.

Recordings are served with aiohttp (``mainstem.serve``). An application that only wants its metrics scraped need not install that.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.exposure import check_host_exposure, is_loopback
from mainstem._internal.http_listener import BACKLOG, ConnectionCounts, ConnectionLimits, HttpListener
from mainstem._internal.listening import bind_sockets, listening_addresses, url_of
from mainstem._internal.log_throttle import LogThrottle, kind_of
from mainstem._internal.prometheus import CONTENT_TYPE, render_families
from mainstem.aeron.channel_values import listen_address
from mainstem.errors import ConfigurationError, MainstemError
from mainstem.metrics.page_http import END_OF_HEAD, PATH, page_response, parse_head, refusal, response, without_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstem._internal.prometheus import Family

# The request of a scrape has a few hundred bytes.
MAX_HEAD_BYTES = 8192
# For the page. By default, Prometheus abandons a scrape after 10 s.
PAGE_SECONDS = 60.0
# For the peer to read the response.
SEND_SECONDS = 30.0
# For a page that is being rendered when the server closes.
CLOSE_SECONDS = 5.0
log = LogThrottle(logging.getLogger("mainstem.metrics"))


class PageServer:
    """Serves a page at ``/metrics`` until it is closed. A context manager.

    A request over loopback must name the host by an address, as ``localhost``, or by the host of ``listen``. Otherwise a web page
    could make its own domain resolve to 127.0.0.1 and read the metrics under that name.
    """

    def __init__(
        self,
        listen: str,
        page: Callable[[], str],
        *,
        name: str,
        insecure: bool,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """Start the server on ``listen`` (HOST:PORT).

        Raises ConfigurationError, with ``name`` in its message, if it cannot listen there, or if other hosts could connect, unless
        ``insecure``.
        """
        self._page = page
        check_host_exposure(listen_address(listen, name)[0], insecure=insecure, name=name)
        self._host, self._listening = _listen(listen, name)
        self.url = f"{url_of(self._listening[0], 'http')}{PATH}"
        self._runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
        self._loop = self._runner.get_loop()
        self._closing = asyncio.Event()
        self._counts = ConnectionCounts()
        self._listener = HttpListener(
            self._listening, lambda: _Exchange(self), limits or ConnectionLimits(), self._counts, log
        )
        self._writing: asyncio.Future[bytes] | None = None
        self._writer: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name="mainstem-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all connections and stop serving. Idempotent."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()
        if self._writer is not None:
            self._writer.join(CLOSE_SECONDS)

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the loop's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        self._listener.start()
        try:
            await self._closing.wait()
        finally:
            await self._listener.close(abort=True)
            await asyncio.sleep(0)  # connections are closed in the next round of the loop

    def request_started(self, exchange: _Exchange) -> None:
        """Note that a request is complete."""
        connection = self._listener.connection_of(exchange)
        if connection is not None:
            connection.request_started()

    async def reply(self, head: bytes, *, is_local: bool) -> bytes:
        """Return the response to the request with this head."""
        if END_OF_HEAD not in head[:MAX_HEAD_BYTES]:
            return response(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the head is longer than {MAX_HEAD_BYTES} bytes"
            )
        request = parse_head(head)
        reply = refusal(request, own_name=self._host if is_local else None) or await self._page_reply()
        return without_body(reply) if request is not None and request.method == "HEAD" else reply

    async def _page_reply(self) -> bytes:
        if self._writing is None:
            self._writer = threading.Thread(target=self._write, name="mainstem-metrics-page", daemon=True)
            self._writer.start()
            self._writing = self._loop.create_future()
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                return await asyncio.shield(self._writing)
        except TimeoutError:
            return response(HTTPStatus.SERVICE_UNAVAILABLE, f"the page was not ready within {PAGE_SECONDS:g} s")

    def _written(self, reply: bytes) -> None:
        assert self._writing is not None
        self._writing.set_result(reply)
        self._writing = None

    @staticmethod
    def _log(kind: object, text: str, error: BaseException | None = None) -> None:
        log.log(logging.WARNING, kind, text, SYSTEM_CLOCK.monotonic_ns(), error=error)

    # -- the page's thread -------------------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            reply = page_response(HTTPStatus.OK, self._page().encode(), CONTENT_TYPE)
        except MainstemError as error:
            reply = response(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except Exception as error:
            self._log(kind_of(error), "a source of metrics raised", error)
            reply = response(HTTPStatus.INTERNAL_SERVER_ERROR, "a source of metrics raised; the program's log has more")
        with suppress(RuntimeError):  # the server was closed in the meantime
            self._loop.call_soon_threadsafe(self._written, reply)


class _Exchange(asyncio.Protocol):
    """One request and its response."""

    def __init__(self, server: PageServer) -> None:
        self._server = server
        self._transport: asyncio.Transport
        self._head = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if END_OF_HEAD in self._head[:MAX_HEAD_BYTES] or len(self._head) > MAX_HEAD_BYTES:
            self._transport.pause_reading()
            self._server.request_started(self)
            self._task = asyncio.get_running_loop().create_task(self._answer(bytes(self._head)))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the interface
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _answer(self, head: bytes) -> None:
        is_local = is_loopback(self._transport.get_extra_info("sockname")[0])
        self._transport.write(await self._server.reply(head, is_local=is_local))
        self._timer = asyncio.get_running_loop().call_later(SEND_SECONDS, self._transport.abort)
        self._transport.close()  # after the response has been sent


def _listen(listen: str, name: str) -> tuple[str, list[socket.socket]]:
    kind = socket.SOCK_STREAM
    host, port = listen_address(listen, name)
    try:
        return host, bind_sockets(listening_addresses(host, port, kind), kind=kind, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot listen on {listen}: {error.strerror}") from None


class MetricsServer:
    """Serves an application's metrics to Prometheus at ``/metrics``, in a thread of its own. A context manager.

    There is no access control: listen on loopback, or where only Prometheus can connect. On loopback a request must name the host
    by an address, as ``localhost``, or by the host of ``listen``.

    Args:
        listen: ``HOST:PORT``, for every address of the host. ``:PORT`` means 127.0.0.1. For port 0, the system chooses a port.
        sources: Functions that return metrics, such as ``Endpoints.families``. A scrape calls all of them in another thread;
            simultaneous scrapes share one page.

    Raises:
        ConfigurationError: ``listen`` is not an address, or the server cannot listen on it.

    Example:
        >>> with MetricsServer("127.0.0.1:9464", endpoints.families) as server:
        ...     print(server.url)
        http://127.0.0.1:9464/metrics
    """

    def __init__(self, listen: str, *sources: Callable[[], Iterable[Family]]) -> None:
        def page() -> str:
            return render_families(family for source in sources for family in source())

        self._server = PageServer(listen, page, name="listen", insecure=True)

    @property
    def url(self) -> str:
        """The URL for Prometheus to scrape."""
        return self._server.url

    def close(self) -> None:
        """End all connections and stop serving. Idempotent."""
        self._server.close()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
