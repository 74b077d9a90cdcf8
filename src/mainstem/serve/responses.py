"""Responses that cut off a peer that does not read: JSON, text, and ranges of files by ``sendfile``."""

from __future__ import annotations

import asyncio
import json
import os
from typing import IO, TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp.abc import AbstractStreamWriter

    from mainstem.serve.limits import Limits
    from mainstem.serve.metrics import ServerMetrics

# What a connection holds of a body in memory while its peer does not read; the transport copies it.
WRITE_BYTES = 128 << 10
# Caches must not store the response: only the holder of a token may read it, and it can change.
COMMON_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Server": "mainstem",
}


class Response(web.StreamResponse):
    """A response that a peer must read chunk by chunk within time limits. ``ended`` is called after it was sent or has failed.

    The length is None if it is not known in advance.
    """

    def __init__(
        self, status: int, headers: Mapping[str, str], limits: Limits, metrics: ServerMetrics, length: int | None
    ) -> None:
        super().__init__(status=status, headers={**COMMON_HEADERS, **headers})
        self.content_length = length
        self.limits, self.metrics = limits, metrics
        self.ended: Callable[[], None] = lambda: None
        self._is_sent = False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send head and body. Raises ConnectionResetError if the peer does not read them in time."""
        if self._is_sent:
            return await super().prepare(request)
        self._is_sent = True
        transport = request.transport
        try:
            async with asyncio.timeout(self.limits.chunk_seconds):
                writer = await super().prepare(request)
            if request.method != "HEAD":
                await self.send_body(request)
            async with asyncio.timeout(self.limits.chunk_seconds):
                await self.write_eof()
        except (TimeoutError, ConnectionError, OSError) as error:
            if transport is not None:
                transport.abort()
            raise ConnectionResetError("the peer does not read") from error
        except BaseException:
            if transport is not None:
                transport.abort()
            raise
        finally:
            self.metrics.requests[self.status] += 1
            self.ended()
        return writer

    async def send_body(self, request: web.BaseRequest) -> None:
        """Send the body, with a time limit for each chunk."""

    async def send_piece(self, data: bytes | memoryview) -> None:
        """Send some bytes. Raises TimeoutError if the peer does not read them in time."""
        view = memoryview(data)
        async with asyncio.timeout(self.limits.chunk_seconds):
            for at in range(0, len(view), WRITE_BYTES):
                await self.write(view[at : at + WRITE_BYTES])
        self.metrics.bytes_sent += len(data)


class BytesResponse(Response):
    def __init__(
        self, status: int, headers: Mapping[str, str], limits: Limits, metrics: ServerMetrics, body: bytes | memoryview
    ) -> None:
        super().__init__(status, headers, limits, metrics, len(body))
        self._bytes = memoryview(body)

    async def send_body(self, request: web.BaseRequest) -> None:  # noqa: ARG002 - of the interface
        step = self.limits.chunk_bytes
        for at in range(0, len(self._bytes), step):
            await self.send_piece(self._bytes[at : at + step])


class FileResponse(Response):
    """A range of a file, which the kernel sends. ``head`` replaces the first bytes of the file.

    It counts as a transfer from its creation until ``prepare`` ends, which closes the file.
    """

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        limits: Limits,
        metrics: ServerMetrics,
        file: IO[bytes],
        start: int,
        end: int,
        head: bytes = b"",
    ) -> None:
        super().__init__(status, headers, limits, metrics, end - start)
        self._file, self._first, self._end, self._head = file, start, end, head
        # Count it from here on, so that requests that arrive at the same time do not all pass the limit.
        metrics.transfers += 1

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        try:
            return await super().prepare(request)
        finally:
            self.metrics.transfers -= 1
            self._file.close()

    async def send_body(self, request: web.BaseRequest) -> None:
        """Send the range. Raises ConnectionResetError if the file is truncated in the meantime."""
        at = self._first
        if self._head:
            await self._send_from_memory(at)
            return
        loop = asyncio.get_running_loop()
        while at < self._end:
            transport = request.transport
            if transport is None:
                raise ConnectionResetError("the peer has gone")
            count = min(self._end - at, self.limits.chunk_bytes)
            async with asyncio.timeout(self.limits.chunk_seconds):
                sent = await loop.sendfile(transport, self._file, at, count)
            if not sent:
                raise ConnectionResetError("the file is shorter now")
            at += sent
            self.metrics.bytes_sent += sent

    async def _send_from_memory(self, at: int) -> None:
        if at < len(self._head):
            data = self._head[at : self._end]
            await self.send_piece(data)
            at += len(data)
        while at < self._end:
            data = os.pread(self._file.fileno(), min(self._end - at, self.limits.chunk_bytes), at)
            if not data:
                raise ConnectionResetError("the file is shorter now")
            await self.send_piece(data)
            at += len(data)


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
