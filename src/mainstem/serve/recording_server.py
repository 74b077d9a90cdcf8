"""A server of one directory of recordings, and its TLS."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from mainstem._internal.error_texts import tls_problem
from mainstem._internal.exposure import TLS_OPTIONS
from mainstem.errors import ConfigurationError
from mainstem.serve.access import TOKEN_VARIABLE, Access
from mainstem.serve.app import Application
from mainstem.serve.http_server import HttpServer
from mainstem.serve.limits import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web

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
        access = access or Access()
        self._server = HttpServer(
            host,
            port,
            self._respond,
            limits=limits or Limits(),
            tls=tls,
            insecure=insecure,
            protection={TLS_OPTIONS: tls is not None, f"`token_file` or {TOKEN_VARIABLE}": not access.is_open},
            headers={"Mainstem-Serve": "1"},
        )
        self.url = self._server.url
        self.metrics = self._server.metrics
        self._application = Application(
            directory,
            access,
            self._server.limits,
            self.metrics,
            literal_hosts_only=access.is_open and not insecure,
        )

    async def __aenter__(self) -> RecordingServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        await self._server.start()

    async def close(self) -> None:
        """Stop accepting connections, end long polls, and close everything. Responses in flight can continue for a moment."""
        await self._server.stop_accepting()
        self._application.end_waits()
        await self._server.close()
        self._application.close()

    async def _respond(self, request: web.BaseRequest) -> Response:
        return await self._application.handle(request)


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of a server, for version 1.2 or later. Raises ConfigurationError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])

    def no_password() -> str:
        raise ConfigurationError(f"`tls_key`: {key} is encrypted; a key without a password is needed")

    try:
        context.load_cert_chain(certificate, key, password=no_password)
    except ssl.SSLError as error:
        raise ConfigurationError(f"`tls_cert` {certificate}, `tls_key` {key}: {tls_problem(error)}") from None
    except OSError as error:
        raise ConfigurationError(f"`tls_cert` {certificate}, `tls_key` {key}: {error.strerror}") from None
    return context
