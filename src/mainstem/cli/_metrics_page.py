"""A page of metrics over HTTP, for Prometheus."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from mainstem.aeron.channel_values import parse_address
from mainstem.errors import ConfigurationError, MainstemError
from mainstem.metrics.prometheus import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable


def metrics_server(listen: str, page: Callable[[], str], *, name: str) -> ThreadingHTTPServer:
    """Returns a server of ``page`` at HOST:PORT, which is to be run. Raises ConfigurationError, which has ``name``."""
    try:
        host, port = parse_address(listen if not listen.startswith(":") else f"127.0.0.1{listen}")
        return ThreadingHTTPServer((host, port), _handler(page))
    except ValueError as error:
        raise ConfigurationError(f"{name}: {listen!r}: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot listen on {listen}: {error.strerror}") from None


def _handler(page: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            try:
                body = page().encode()
            except MainstemError as error:
                self.send_error(503, str(error))
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing: scrapes are frequent."""

    return Handler
