"""A page of metrics over HTTP, for Prometheus."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from mainstem.aeron.channel_values import parse_address
from mainstem.errors import ConfigurationError, MainstemError
from mainstem.metrics.prometheus import CONTENT_TYPE, render_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstem.metrics.families import Family


class MetricsServer:
    """Serves a program's metrics to Prometheus, at ``/metrics``, in threads of its own. A context manager.

    It has no access control: listen on loopback, or where only Prometheus can reach it.

    Args:
        listen: ``HOST:PORT``; ``:PORT`` is loopback, and port 0 one that the system chooses.
        sources: Functions that return metrics, such as ``Endpoints.families``. Each scrape calls all of them, in another thread.

    Raises:
        ConfigurationError: ``listen`` is no address, or cannot be listened on.

    Example:
        >>> with MetricsServer("127.0.0.1:9464", endpoints.families) as server:
        ...     print(server.url)
        http://127.0.0.1:9464/metrics
    """

    def __init__(self, listen: str, *sources: Callable[[], Iterable[Family]]) -> None:
        def page() -> str:
            return render_families(family for source in sources for family in source())

        self._server = http_server(listen, page, name="listen")
        self._thread = threading.Thread(target=self._server.serve_forever, name="mainstem-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What Prometheus scrapes."""
        return url_of(self._server)

    def close(self) -> None:
        """Stops serving. Twice is fine.

        Example:
            >>> server.close()
        """
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def http_server(listen: str, page: Callable[[], str], *, name: str) -> ThreadingHTTPServer:
    """Returns a server of ``page`` at HOST:PORT, which is to be run. Raises ConfigurationError, which has ``name``."""
    try:
        host, port = parse_address(listen if not listen.startswith(":") else f"127.0.0.1{listen}")
        return ThreadingHTTPServer((host, port), _handler(page))
    except ValueError as error:
        raise ConfigurationError(f"{name}: {listen!r}: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot listen on {listen}: {error.strerror}") from None


def url_of(server: ThreadingHTTPServer) -> str:
    """Returns the page's address."""
    return f"http://{server.server_address[0]!s}:{server.server_address[1]}/metrics"


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
