"""An HTTP server from Python's standard library; each test supplies its handler."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

POLL_S = 0.01  # how often a server checks whether to stop; the default is half a second


@contextmanager
def plain_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    # Headers and body are written separately: without this, each response waits for a delayed acknowledgment.
    handler.disable_nagle_algorithm = True
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
