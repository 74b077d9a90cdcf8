"""An HTTP client that sends exactly the bytes of a test and reads the response."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from tests.support.waiting import soon


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Peer:
    """One connection. It writes requests unchanged. ``open`` has the connections that are not closed."""

    open: ClassVar[list[Peer]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.open.append(self)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def response(self, *, has_body: bool = True) -> Response:
        head = await soon(self.reader.readuntil(b"\r\n\r\n"))
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines[1:] if x)}
        status = int(lines[0].split(" ")[1])
        length = int(headers.get("content-length", "0")) if has_body and status != 304 else 0
        return Response(status, headers, await soon(self.reader.readexactly(length)))

    async def get(self, target: str, *, method: str = "GET", **headers: str) -> Response:
        fields = {"Host": "127.0.0.1", **{name.replace("_", "-"): value for name, value in headers.items()}}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await self.send(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1"))
        return await self.response(has_body=method != "HEAD")

    async def wait_closed(self) -> None:
        """Wait until the server ends the connection, and read what it still sends."""
        with suppress(ConnectionError):
            while await soon(self.reader.read(65536)):
                pass

    async def close(self) -> None:
        self.writer.close()
        if self in self.open:
            self.open.remove(self)
        with suppress(OSError):
            await self.writer.wait_closed()


async def connect(url: str, **options: Any) -> Peer:
    parts = urlsplit(url)
    return Peer(*await asyncio.open_connection(parts.hostname, parts.port, **options))


async def get(url: str, target: str, *, method: str = "GET", **headers: str) -> Response:
    """Send one request over its own connection and return the response."""
    peer = await connect(url)
    try:
        return await peer.get(target, method=method, **headers)
    finally:
        await peer.close()
