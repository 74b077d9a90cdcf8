"""An HTTP server on aiohttp: sockets, TLS, limits, log and shutdown. Recordings and the live page are served by one each."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError, needs_extras

with needs_extras():
    from aiohttp import web
    from aiohttp.http_exceptions import HttpProcessingError

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.exposure import check_exposure
from mainstem._internal.http_listener import BACKLOG, HttpListener
from mainstem._internal.listening import bind_sockets, listening_addresses, url_of
from mainstem._internal.log_throttle import LogThrottle, kind_of
from mainstem._internal.request_target import Target, parse_target
from mainstem.serve.metrics import ServerMetrics
from mainstem.serve.responses import BytesResponse, Response

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

    from mainstem.serve.limits import Limits


# Long enough for every target: a query has a name and numbers, and a token is in the Authorization field.
MAX_TARGET_LENGTH = 1024

log = LogThrottle(logging.getLogger("mainstem.serve"))


class Refusal(Exception):
    """A request that is rejected with a status and an error message."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})
        super().__init__(sentence)


class HttpServer:
    """Serves on the running event loop what ``respond`` returns to each request.

    Raises ConfigurationError if it cannot listen on the address, or if other hosts could connect, unless ``insecure`` or each of
    the options in ``protection`` is given.
    """

    def __init__(
        self,
        host: str,
        port: int,
        respond: Callable[[web.BaseRequest], Awaitable[Response]],
        *,
        limits: Limits,
        tls: ssl.SSLContext | None = None,
        insecure: bool = False,
        protection: Mapping[str, bool] | None = None,
        headers: Mapping[str, str],
    ) -> None:
        self.limits = limits
        self.metrics = ServerMetrics()
        self._respond, self._tls, self._headers = respond, tls, headers
        self._sockets = _listening_sockets(host, port)
        try:
            for sock in self._sockets:
                check_exposure(sock.getsockname()[0], insecure=insecure, protection=protection)
        except ConfigurationError:
            self._close_sockets()
            raise
        self.url = url_of(self._sockets[0], "https" if tls else "http")
        self._server: web.Server | None = None
        self._listener: HttpListener | None = None

    async def start(self) -> None:
        limits = self.limits
        self._server = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            logger=_quiet_logger(),
            keepalive_timeout=limits.idle_seconds,
            max_line_size=limits.head_line_bytes,
            max_field_size=limits.head_line_bytes,
            max_headers=limits.head_fields,
            lingering_time=0,
            auto_decompress=False,
        )
        self._listener = HttpListener(self._sockets, self._server, limits, self.metrics, log, self._tls)
        self._listener.start()

    async def stop_accepting(self) -> None:
        """Stop accepting connections."""
        if self._listener is not None:
            await self._listener.close()
        self._close_sockets()

    async def close(self) -> None:
        """Stop accepting connections, and close all. Responses in flight can continue for a moment."""
        await self.stop_accepting()
        if self._server is not None:
            self._server.pre_shutdown()  # closes connections without a request immediately
            await self._server.shutdown(self.limits.close_seconds)
            # Connections are closed in the next rounds of the loop.
            await asyncio.sleep(0)

    def _close_sockets(self) -> None:
        for sock in self._sockets:
            sock.close()

    async def _handle(self, request: web.BaseRequest) -> Response:
        assert self._listener is not None
        connection = self._listener.connection_of(request.protocol)
        if connection is not None:
            connection.request_started()
        try:
            response = await self._respond(request)
        except Exception as error:
            # The text of the error, and so a traceback, may contain what the peer sent.
            kind, file, line = kind_of(error)
            text = f"a request failed: {kind.__name__} in {file}, line {line}"
            log.log(logging.ERROR, kind_of(error), text, SYSTEM_CLOCK.monotonic_ns())
            response = BytesResponse(500, {}, self.limits, self.metrics, b"")
            response.force_close()
        response.headers.update(self._headers)
        if connection is not None:
            response.ended = connection.request_ended
        return response


def checked_target(request: web.BaseRequest) -> Target:
    """Return the target of a request that only reads. Raises Refusal for every other request."""
    if request.method not in ("GET", "HEAD"):
        raise Refusal(405, "this is read-only: GET and HEAD", {"Allow": "GET, HEAD"})
    if request.body_exists:
        raise Refusal(413, "requests must not have a body")
    if len(request.raw_path) > MAX_TARGET_LENGTH:
        raise Refusal(400, f"the path is longer than {MAX_TARGET_LENGTH} characters")
    target = parse_target(request.raw_path, request.headers.get("Host", ""))
    if target is None:
        raise Refusal(400, "the target of a request must be a path or an http URL")
    return target


class _Throttled(logging.Handler):
    """Reduces what aiohttp logs to what happened and where it came from. Its errors quote the head of the request."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        level, reason = logging.ERROR, type(error).__name__
        text = f"aiohttp logged {record.msg!r} ({reason})"
        if isinstance(error, HttpProcessingError):
            peer = f" of {record.args[0]}" if isinstance(record.args, tuple) and record.args else ""
            level, text = logging.WARNING, f"a request{peer} is refused: it is not valid HTTP ({reason})"
        log.log(level, ("http", reason), text, SYSTEM_CLOCK.monotonic_ns())


def _quiet_logger() -> logging.Logger:
    """Return a logger for aiohttp that is not in the tree of loggers, so nothing but ``_Throttled`` sees its records."""
    logger = logging.Logger("mainstem.serve.http", logging.INFO)
    logger.addHandler(_Throttled())
    return logger


def _listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on every address of a host, with the same port. Raises ConfigurationError."""
    kind = socket.SOCK_STREAM
    try:
        return bind_sockets(listening_addresses(host, port, kind), kind=kind, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"`listen`: cannot listen on {host}:{port}: {error.strerror}") from None
