"""A TCP proxy that cuts connections after a random number of bytes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from mainstem.bymux.tunnel import reset

if TYPE_CHECKING:
    import random
    from typing import Self

CHUNK = 16 * 1024


class CuttingProxy:
    """Forwards to ``port``. Each of the first ``cuts`` connections is cut after a random number of bytes below ``most``.

    A cut is randomly either an orderly close of both directions or a reset. Later connections are not cut.
    """

    def __init__(self, port: int, *, cuts: int, most: int, rng: random.Random) -> None:
        self._to = port
        self._cuts = cuts
        self._most = most
        self._rng = rng
        self._server: asyncio.Server | None = None
        self._forwarding: set[asyncio.Task[None]] = set()
        self._carrying: set[asyncio.Task[None]] = set()
        self._closing = False
        self.cut = 0

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self._closing = True
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._forwarding)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._forwarding.add(task)
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        budget = [-1]
        if self._cuts:
            self._cuts -= 1
            budget = [self._rng.randrange(1, self._most)]
        work = {
            asyncio.ensure_future(self._carry(reader, back, budget)),
            asyncio.ensure_future(self._carry(there, writer, budget)),
        }
        self._carrying |= work
        if self._closing:
            for each in work:
                each.cancel()
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        self._carrying -= work
        is_cut = not budget[0]
        self.cut += is_cut
        for end in (writer, back):
            if is_cut and self._rng.random() < 0.5:
                reset(end)
            end.close()
            with contextlib.suppress(ConnectionError):
                await end.wait_closed()
        self._forwarding.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: list[int]) -> None:
        """Forward bytes until the end, or until the budget that both directions share is used up."""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                if budget[0] >= 0:
                    data = data[: budget[0]]
                    budget[0] -= len(data)
                writer.write(data)
                await writer.drain()
                if not budget[0]:
                    return
