"""A server of one page over HTTP, in a thread with its own event loop.

Each connection serves one request: its head has a deadline, and the connection ends with the response. The number of connections is
limited. A connection beyond the limit replaces the one that has waited longest without completing a request, so silent connections
cannot keep others out. A second thread renders the page, once for all requests that are waiting for it, because its source can be
slow.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.exposure import is_loopback
from mainstem._internal.listening import bind_sockets, listening_addresses, url_of
from mainstem._internal.log_throttle import LogThrottle, kind_of
from mainstem.aeron.channel_values import listen_address
from mainstem.errors import ConfigurationError, MainstemError
from mainstem.metrics.page_http import END_OF_HEAD, PATH, page_response, parse_head, refusal, response, without_body
from mainstem.metrics.prometheus import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

# Only a few systems scrape a page, and each has one connection at a time.
MAX_CONNECTIONS = 64
BACKLOG = 128
# The request of a scrape has a few hundred bytes.
MAX_HEAD_BYTES = 8192
# For the head of a request, from the time at which the connection is accepted.
HEAD_SECONDS = 10.0
# For the page. By default, Prometheus abandons a scrape after 10 s.
PAGE_SECONDS = 60.0
# For the peer to read the response.
SEND_SECONDS = 30.0
# For a page that is being rendered when the server closes.
CLOSE_SECONDS = 5.0
# If there is no free descriptor, accepting pauses, and connections wait in the kernel's queue.
ACCEPT_PAUSE_S = 0.1

log = LogThrottle(logging.getLogger("mainstem.metrics"))


class PageServer:
    """Serves a page at ``/metrics`` until it is closed. A context manager.

    A request over loopback must name the host by an address, as ``localhost``, or by the host of ``listen``. Otherwise a web page
    could make its own domain resolve to 127.0.0.1 and read the metrics under that name.
    """

    def __init__(self, listen: str, page: Callable[[], str], *, name: str) -> None:
        """Start the server on ``listen`` (HOST:PORT).

        Raises ConfigurationError, with ``name`` in its message, if it cannot listen there.
        """
        self._page = page
        self._host, self._listening = _listen(listen, name)
        self.url = f"{url_of(self._listening[0], 'http')}{PATH}"
        self._runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
        self._loop = self._runner.get_loop()
        self._closing = asyncio.Event()
        # All connections, and, in order of arrival, those that have not completed a request.
        self._connections: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.Task[None], None] = {}
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
        try:
            for listening in self._listening:
                self._loop.add_reader(listening, self._accept, listening)
            await self._closing.wait()
        finally:
            for listening in self._listening:
                self._loop.remove_reader(listening)
                listening.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, ConnectionError):
            return  # the peer has disconnected
        except OSError as error:
            self._log("descriptors", f"no connection is accepted for a moment: {error.strerror}")
            self._loop.remove_reader(listening)
            self._loop.call_later(ACCEPT_PAUSE_S, self._resume, listening)
            return
        sock.setblocking(False)
        if len(self._connections) >= MAX_CONNECTIONS and not self._make_room():
            with suppress(OSError):
                sock.send(response(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at one time"))
            sock.close()
            return
        task = self._loop.create_task(self._answer(sock))
        self._connections.add(task)
        self._silent[task] = None
        task.add_done_callback(lambda _: self._ended(task, sock))

    def _resume(self, listening: socket.socket) -> None:
        if not self._closing.is_set():
            self._loop.add_reader(listening, self._accept, listening)

    def _make_room(self) -> bool:
        """End the connection that has been silent for longest. Return whether there was one."""
        oldest = next(iter(self._silent), None)
        if oldest is None:
            return False
        oldest.cancel()
        self._connections.discard(oldest)
        del self._silent[oldest]
        return True

    def _ended(self, task: asyncio.Task[None], sock: socket.socket) -> None:
        self._connections.discard(task)
        self._silent.pop(task, None)
        sock.close()

    async def _answer(self, sock: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await self._read_head(sock)
            self._silent.pop(task, None)
            reply = await self._reply(head, is_local=is_loopback(sock.getsockname()[0]))
            async with asyncio.timeout(SEND_SECONDS):
                await self._loop.sock_sendall(sock, reply)
        except OSError:  # including TimeoutError
            return  # the peer has disconnected or is too slow

    async def _read_head(self, sock: socket.socket) -> bytes:
        """Return the bytes received up to the end of the head, or one byte more than allowed if it does not end."""
        head = bytearray()
        while END_OF_HEAD not in head and len(head) <= MAX_HEAD_BYTES:
            received = await self._loop.sock_recv(sock, MAX_HEAD_BYTES + 1 - len(head))
            if not received:
                raise ConnectionResetError
            head += received
        return bytes(head)

    async def _reply(self, head: bytes, *, is_local: bool) -> bytes:
        if len(head) > MAX_HEAD_BYTES:
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


def _listen(listen: str, name: str) -> tuple[str, list[socket.socket]]:
    kind = socket.SOCK_STREAM
    host, port = listen_address(listen, name)
    try:
        return host, bind_sockets(listening_addresses(host, port, kind), kind=kind, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot listen on {listen}: {error.strerror}") from None
