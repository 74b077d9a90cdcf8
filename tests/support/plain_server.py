"""HTTP servers from Python's standard library; each test supplies its handler."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

S = TypeVar("S", bound=ThreadingHTTPServer)

POLL_S = 0.01  # how often a server checks whether to stop; the default is half a second


@contextmanager
def running(server: S) -> Iterator[S]:
    """Yield a server that serves during the ``with`` block."""
    # Headers and body are written separately: without this, each response waits for a delayed acknowledgment.
    server.RequestHandlerClass.disable_nagle_algorithm = True  # type: ignore[attr-defined]
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def plain_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Yield the URL of a server with this handler."""
    with running(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}"
