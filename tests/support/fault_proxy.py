"""An HTTP proxy on loopback that injects an object store's faults before it lets requests through."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

from tests.support.waiting import STALL_S

SLOW_DOWN = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 90\r\nConnection: close\r\n\r\n"
    + b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>".ljust(90)
)
INTERNAL = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/xml\r\nContent-Length: 90\r\nConnection: close\r\n\r\n"
    + b"<Error><Code>InternalError</Code><Message>We encountered an error.</Message></Error>".ljust(90)
)
_CONFLICT_BODY = b"<Error><Code>ConditionalRequestConflict</Code><Message>Conflicting operation</Message></Error>"
CONFLICT = b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
    len(_CONFLICT_BODY), _CONFLICT_BODY,
)  # fmt: skip
REFUSED = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: 70\r\nConnection: close\r\n\r\n"
    + b"<Error><Code>AccessDenied</Code><Message>Denied.</Message></Error>".ljust(70)
)
MAX_REQUEST = 64 << 20


class FaultProxy:
    """Forwards each request to ``target`` on its own connection, after injecting the faults in ``faults`` in order.

    A fault is ``slow_down``, ``internal``, ``conflict``, ``refuse``,
    ``reset`` (before the request is forwarded), ``cut`` (the response's body
    ends in the middle), ``lost`` (the request is forwarded and its response dropped), ``trickle`` (the response arrives in small
    chunks), ``stale`` (the proxy repeats its previous response to the same request) or ``pass``. ``only`` limits faults to requests
    whose first line contains it; if ``faults`` is empty, ``draw`` chooses one for each request.
    """

    def __init__(self, target: tuple[str, int], draw: Callable[[bytes], str] = lambda line: "pass") -> None:
        self._target, self._draw = target, draw
        self._responses: dict[bytes, bytes] = {}
        self.injected: Counter[str] = Counter()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.faults: deque[str] = deque()
        self.only = b""
        self.requests: list[bytes] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(STALL_S)

    @property
    def url(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(STALL_S)
            if not (request := read_request(client)):
                return
            line = request.partition(b"\r\n")[0]
            with self._lock:
                self.requests.append(line)
                fault = self.faults.popleft() if self.faults and self.only in line else self._draw(line)
                self.injected[fault] += 1
            if fault == "slow_down":
                client.sendall(SLOW_DOWN)
            elif fault == "internal":
                client.sendall(INTERNAL)
            elif fault == "conflict":
                client.sendall(CONFLICT)
            elif fault == "refuse":
                client.sendall(REFUSED)
            elif fault == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                self._forward(client, request, fault)

    def _forward(self, client: socket.socket, request: bytes, fault: str) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        line = head.partition(b"\r\n")[0]
        if fault == "stale" and line in self._responses:
            client.sendall(self._responses[line])
            return
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith((b"connection:", b"expect:"))]
        with socket.create_connection(self._target) as server:
            server.settimeout(STALL_S)
            server.sendall(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
            response = b"".join(iter(lambda: server.recv(1 << 16), b""))
        if is_listing(line):
            self._responses[line] = response
        if fault == "lost":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif fault == "cut":
            head_length = response.index(b"\r\n\r\n") + 4
            client.sendall(response[: (head_length + len(response)) // 2])
        elif fault == "trickle":
            for at in range(0, len(response), 512):
                client.sendall(response[at : at + 512])
        else:
            client.sendall(response)


def is_listing(line: bytes) -> bool:
    """Return whether the first line of a request to S3 asks for a listing."""
    return line.startswith(b"GET ") and b"list-type=" in line


def read_request(client: socket.socket) -> bytes:
    """Read a request and its body, whose length is in its headers."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(1 << 16)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    if b"100-continue" in fields.get(b"expect", b""):
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        while not body.endswith(b"0\r\n\r\n"):
            body += client.recv(1 << 16)
    length = min(int(fields.get(b"content-length", b"0")), MAX_REQUEST)
    while len(body) < length:
        body += client.recv(1 << 16)
    return head + b"\r\n\r\n" + body
