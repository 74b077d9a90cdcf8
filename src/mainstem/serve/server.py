"""A server of one directory of recordings: socket, TLS, HTTP and shutdown."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

from mainstem._internal.listening import bind_sockets, listening_addresses, url_of
from mainstem.errors import ConfigurationError, needs_extras

with needs_extras():
    from aiohttp import web

from mainstem._internal.exposure import check_exposure
from mainstem.serve.access import TOKEN_VARIABLE, Access
from mainstem.serve.app import Application
from mainstem.serve.limits import Limits
from mainstem.serve.listener import BACKLOG, Listener
from mainstem.serve.metrics import ServerMetrics

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.serve.responses import Response


class RecordingServer:
    """Serves one directory, read-only, on the running event loop. The directory need not contain recordings yet.

    Without ``access``, no token is needed. ``insecure`` allows an address that other hosts can reach without TLS and a token.
    Raises ConfigurationError if it cannot listen on the address, or must not do so.
    """

    def __init__(
        self,
        directory: Path,
        host: str,
        port: int,
        *,
        access: Access | None = None,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        insecure: bool = False,
    ) -> None:
        self.limits = limits or Limits()
        self.metrics = ServerMetrics()
        self._tls = tls
        access = access or Access()
        self._sockets = listening_sockets(host, port)
        try:
            for sock in self._sockets:
                check_exposure(
                    sock.getsockname()[0],
                    has_tls=tls is not None,
                    has_token=not access.is_open,
                    insecure=insecure,
                    token_options=f"--token-file or {TOKEN_VARIABLE}",
                )
        except ConfigurationError:
            close_all(self._sockets)
            raise
        self.url = url_of(self._sockets[0], "https" if tls else "http")
        self._application = Application(
            directory, access, self.limits, self.metrics, literal_hosts_only=access.is_open and not insecure
        )
        self._server: web.Server | None = None
        self._listener: Listener | None = None

    async def __aenter__(self) -> RecordingServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        limits = self.limits
        self._server = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=limits.idle_seconds,
            max_line_size=limits.head_line_bytes,
            max_field_size=limits.head_line_bytes,
            max_headers=limits.head_fields,
            lingering_time=0,
            auto_decompress=False,
        )
        self._listener = Listener(self._sockets, self._server, limits, self.metrics, self._tls)
        self._listener.start()

    async def close(self) -> None:
        """Stop accepting connections, end long polls, and close everything. Responses in flight can continue for a moment."""
        if self._listener is not None:
            await self._listener.close()
        close_all(self._sockets)
        self._application.end_waits()
        if self._server is not None:
            self._server.pre_shutdown()  # closes connections without a request immediately
            await self._server.shutdown(self.limits.close_seconds)
            # Connections are closed in the next rounds of the loop.
            await asyncio.sleep(0)
        self._application.close()

    async def _handle(self, request: web.BaseRequest) -> Response:
        assert self._listener is not None
        guard = self._listener.guard_of(request.protocol)
        if guard is not None:
            guard.request_started()
        response = await self._application.handle(request)
        if guard is not None:
            response.ended = guard.request_ended
        return response


def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on every address of a host, with the same port. Raises ConfigurationError."""
    kind = socket.SOCK_STREAM
    try:
        return bind_sockets(listening_addresses(host, port, kind), kind=kind, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"--listen: cannot listen on {host}:{port}: {error.strerror}") from None


def close_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of a server, for version 1.2 or later. Raises ConfigurationError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])

    def no_password() -> str:
        raise ConfigurationError(f"--tls-key: {key} is encrypted; a key without a password is needed")

    try:
        context.load_cert_chain(certificate, key, password=no_password)
    except ssl.SSLError as error:
        raise ConfigurationError(f"--tls-cert {certificate}, --tls-key {key}: {error.reason or error}") from None
    except OSError as error:
        raise ConfigurationError(f"--tls-cert {certificate}, --tls-key {key}: {error.strerror}") from None
    return context
