"""A schema registry whose responses can be wrong in any way that a test needs."""

from __future__ import annotations

import json
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.support.plain_server import running

from mainstem.codecs import schemas

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

SCHEMA = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'


class Registry(ThreadingHTTPServer):
    """A registry whose responses can be wrong in any way that a test needs."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: Counter[str] = Counter()
        self.authorization: list[str | None] = []
        self.responses: dict[str, tuple[int, bytes]] = {
            "/schemas/ids/1": (200, json.dumps({"schema": SCHEMA}).encode()),
            "/schemas/ids/2": (200, json.dumps({"schema": "{}", "schemaType": "JSON"}).encode()),
            "/schemas/ids/3": (200, json.dumps({"schema": SCHEMA, "references": [{"name": "x"}]}).encode()),
            "/schemas/ids/4": (200, b'{"schema": "' + b"x" * (schemas.MAX_RESPONSE_LENGTH + 1) + b'"}'),
            "/schemas/ids/5": (200, b"[" * 200_000),
            "/schemas/ids/6": (307, b""),
            "/schemas/ids/7": (401, b"{}"),
            "/schemas/ids/8": (503, b""),
            "/schemas/ids/9": (404, b"<html>no such page</html>"),
            "/schemas/ids/10": (404, b'{"error_code":404,"message":"HTTP 404 Not Found"}'),
        }


class Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.requests[self.path] += 1
        self.server.authorization.append(self.headers["Authorization"])
        status, body = self.server.responses.get(self.path, (404, b'{"error_code":40403}'))
        self.send_response(status)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def running_registry() -> AbstractContextManager[Registry]:
    """Return a context manager whose registry listens during the ``with`` block."""
    return running(Registry())
