"""A proxy between a client and a server that breaks connections after a number of bytes, in each way in which networks do."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.bymux.tunnel import reset

if TYPE_CHECKING:
    from typing import Self

CHUNK = 16 * 1024
# Both directions end in order; both are reset; one direction ends in order; nothing is forwarded any more, and nothing ends.
WAYS = ("close", "reset", "half", "suspend")
TO_SERVER, TO_CLIENT = 0, 1

Place = tuple[str, int] | Path


@dataclass(frozen=True)
class Break:
    """How a connection breaks: after ``after`` bytes in one direction."""

    way: str
    direction: int
    after: int


async def gone(writer: asyncio.StreamWriter) -> None:
    """Abort a connection, and wait until its socket is closed."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


class BrokenLink:
    """Forwards connections from ``listen`` to ``to``. The first one breaks; later ones do not."""

    def __init__(self, to: Place, listen: Place, broken: Break) -> None:
        self._to, self._listen = to, listen
        self._breaks: list[Break] = [broken]
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.has_broken = False

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        if isinstance(self._listen, Path):
            self._server = await asyncio.start_unix_server(self._start, self._listen)
        else:
            self._server = await asyncio.start_server(self._start, *self._listen)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:
            await gone(writer)
        await self._server.wait_closed()

    def _start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        task = asyncio.ensure_future(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broken = self._breaks.pop() if self._breaks else None
        ended = asyncio.Event()  # set when the connection is to be closed or reset
        ends, running = [writer], []
        try:
            there, back = await self._connect()
            ends.append(back)
            self._writers.append(back)
            for direction, (source, sink) in enumerate(((reader, back), (there, writer))):
                own = broken if broken is not None and broken.direction == direction else None
                running.append(asyncio.ensure_future(self._carry(source, sink, own, broken, ended)))
            ending = asyncio.ensure_future(ended.wait())
            running.append(ending)
            waiting = set(running)
            while len(waiting) > 1 and not ending.done():
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except (asyncio.CancelledError, ConnectionError):  # the link ends, or the server has
            pass
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for end in ends:
                if broken is not None and broken.way == "reset" and ended.is_set():
                    reset(end)
                end.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._to, Path):
            return await asyncio.open_unix_connection(self._to)
        return await asyncio.open_connection(*self._to)

    async def _carry(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        own: Break | None,
        broken: Break | None,
        ended: asyncio.Event,
    ) -> None:
        left = own.after if own is not None else -1
        with contextlib.suppress(ConnectionError):
            while data := await source.read(CHUNK):
                if self.has_broken and broken is not None and broken.way == "suspend":
                    await asyncio.Event().wait()
                if left >= 0:
                    data, left = data[:left], left - min(left, len(data))
                sink.write(data)
                await sink.drain()
                if own is not None and not left:
                    self.has_broken = True
                    if own.way == "suspend":
                        await asyncio.Event().wait()
                    if own.way in ("close", "reset"):
                        ended.set()
                    break
            if sink.can_write_eof():
                sink.write_eof()
            if own is not None and own.way == "half" and self.has_broken:
                while await source.read(CHUNK):  # the sender notices nothing: its bytes are taken
                    pass
