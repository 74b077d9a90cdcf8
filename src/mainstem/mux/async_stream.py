"""The reading and the writing half of a stream under asyncio, the same for every multiplexer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mainstem.mux.queues import InBuffer

if TYPE_CHECKING:
    from typing import Self

    from mainstem.errors import MainstemError

# What `read` returns at most unless told otherwise.
READ_LIMIT = 256 * 1024
# `drain` waits while more than this is queued, and returns once half of it is left.
WRITE_LIMIT = 128 * 1024


class Halves:
    """``read``, ``readexactly`` and iteration over what arrived, and the waiting part of ``drain``.

    One task may read at a time; any number may wait for a drain.
    """

    __slots__ = ("_buffer", "_drainers", "_eof", "_read_error", "_reader", "_write_error")

    def __init__(self) -> None:
        self._buffer = InBuffer()
        self._eof = False
        self._read_error: MainstemError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._drainers: list[asyncio.Future[None]] = []
        self._write_error: MainstemError | None = None

    async def read(self, limit: int = READ_LIMIT) -> bytes:
        """Between one and ``limit`` bytes as soon as there are some; ``b""`` at the end. Negative: everything up to the end.

        Raises the error that ended the stream, after what arrived before it was read.
        """
        buffer = self._buffer
        if limit < 0:
            parts = []
            while part := await self.read():
                parts.append(part)
            return b"".join(parts)
        while not buffer.size:
            if self._eof or not limit:
                return b""
            await self._wait_for_data()
        data = buffer.read_some(limit)
        self._consumed(len(data))
        return data

    async def readexactly(self, count: int) -> bytes:
        """Exactly ``count`` bytes. Raises ``asyncio.IncompleteReadError`` when the stream ends before."""
        buffer = self._buffer
        if buffer.size >= count:
            data = buffer.read_exactly(count)
            self._consumed(count)
            return data
        parts: list[bytes] = []
        missing = count
        while missing:
            if not buffer.size:
                if self._eof:
                    raise asyncio.IncompleteReadError(b"".join(parts), count)
                await self._wait_for_data()
                continue
            part = buffer.read_exactly(min(missing, buffer.size))
            parts.append(part)
            missing -= len(part)
            self._consumed(len(part))
        return b"".join(parts)

    def at_eof(self) -> bool:
        """Whether everything was read and no more will come."""
        return self._eof and not self._buffer.size

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        data = await self.read()
        if not data:
            raise StopAsyncIteration
        return data

    async def _wait_for_data(self) -> None:
        if self._read_error is not None:
            raise self._read_error
        if self._reader is not None:
            raise RuntimeError("another task is reading from this stream already")
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _consumed(self, count: int) -> None:
        """The reader took ``count`` bytes out."""
        raise NotImplementedError

    def _feed(self, data: bytes) -> None:
        self._buffer.append(data)
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)

    def _feed_end(self, error: MainstemError | None = None) -> None:
        """No more will come: in order, or because of ``error``."""
        if error is None:
            self._eof = True
        elif not self._eof:
            self._read_error = error
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def _wait_drained(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drainers.append(future)
        await future

    def _drained(self) -> None:
        drainers, self._drainers = self._drainers, []
        for future in drainers:
            if not future.done():
                future.set_result(None)

    def _write_failed(self, error: MainstemError) -> None:
        if self._write_error is None:
            self._write_error = error
        drainers, self._drainers = self._drainers, []
        for future in drainers:
            if not future.done():
                future.set_exception(error)
