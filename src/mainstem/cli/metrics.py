"""Print a driver's counters for Prometheus, or serve them to it."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.aeron.channel_values import parse_address
from mainstem.aeron.directory import default_directory
from mainstem.aeron.tools.reading import DirectoryReader
from mainstem.cli._directory import DirectoryOption  # noqa: TC001 - typer reads the annotations
from mainstem.cli._stream import say
from mainstem.clock import SYSTEM_CLOCK
from mainstem.errors import ConfigurationError, MainstemError
from mainstem.metrics.prometheus import CONTENT_TYPE, render

if TYPE_CHECKING:
    from collections.abc import Callable


def run(
    directory: DirectoryOption = "",
    listen: Annotated[
        str, typer.Option("--listen", "-l", help="Serve at HOST:PORT, path /metrics, until Ctrl-C.")
    ] = "",
) -> None:
    """Print a driver's counters for Prometheus, or serve them to it.

    Reads the directory of any driver, Mainstem's or the reference's, from outside; it needs read permission only.
    """
    place = directory or default_directory()

    def page() -> str:
        # Opened anew for each scrape: the driver may have restarted meanwhile.
        with DirectoryReader(place) as reader:
            return render(reader.snapshot(epoch_ms=SYSTEM_CLOCK.epoch_ms(), now_ns=SYSTEM_CLOCK.monotonic_ns()))

    if not listen:
        sys.stdout.write(page())
        return
    try:
        host, port = parse_address(listen if not listen.startswith(":") else f"127.0.0.1{listen}")
        server = ThreadingHTTPServer((host, port), _handler(page))
    except ValueError as error:
        raise ConfigurationError(f"--listen: {listen!r}: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"--listen: cannot listen on {listen}: {error.strerror}") from None
    with server:
        say(f"serving http://{server.server_address[0]!s}:{server.server_address[1]}/metrics")
        server.serve_forever()


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
