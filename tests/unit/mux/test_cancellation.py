"""Every awaitable of both APIs is cancelled at seeded points: nothing is lost, nothing comes twice, nothing is left running.

``MAINSTEM_CANCELLATION_SEEDS`` sets the number of seeds of each protocol; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.mux_pair import bymux_pair, jmux_pair

from mainstem.mux import bymux, jmux

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainstem.mux.async_stream import AsyncStream

SEEDS = int(os.environ.get("MAINSTEM_CANCELLATION_SEEDS", "25"))
STREAMS = 4
T = TypeVar("T")


class Interrupter:
    """Runs awaitables as tasks and cancels some of them after a few turns of the event loop, then starts them again."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0

    async def __call__(self, start: Callable[[], Awaitable[T]], *, again: bool = True) -> T:
        while True:
            task = asyncio.ensure_future(start())
            try:
                if self.rng.random() < 0.5:
                    for _ in range(self.rng.randrange(7)):
                        await asyncio.sleep(0)
                    if task.cancel():
                        await asyncio.wait({task})
                        self.count += 1
                        if task.cancelled() and again:
                            continue
                return await task
            finally:  # the caller itself may have been cancelled
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def read(self, stream: AsyncStream, size: int) -> bytes:
        """All ``size`` bytes of a stream and its end, by one kind of read after the other."""
        received = b""
        while True:
            left = size - len(received)
            kind = self.rng.randrange(4)
            if kind == 0 and left:
                count = self.rng.randint(1, left)
                received += await self(lambda count=count: stream.readexactly(count))  # type: ignore[misc]
            elif kind == 1:
                received += await self(lambda: stream.read(-1))
                return received
            else:
                limit = self.rng.randint(1, 3000)
                data = await self(lambda limit=limit: stream.read(limit))  # type: ignore[misc]
                if not data:
                    return received
                received += data

    async def write(self, stream: AsyncStream, data: bytes) -> None:
        at = 0
        while at < len(data):
            size = self.rng.randint(1, 4000)
            stream.write(data[at : at + size])
            at += size
            await self(self.rng.choice((stream.drain, stream.flush)))


async def nothing_left(*engines: Any) -> None:
    """No task but the caller's, no stream, no waiting future."""
    for _ in range(200):
        if len(asyncio.all_tasks()) == 1:
            break
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    for engine in engines:
        assert engine.over
        assert not engine.tasks
        assert engine._timer is None


async def bymux_seed(seed: int) -> int:
    interrupt = Interrupter(seed)
    rng = interrupt.rng
    settings = bymux.Settings(stream_window=rng.choice((100, 1000, 100_000)), peer_streams=2, packet_limit=500)
    client, server = bymux_pair(settings=settings, cut=rng.choice((1, 7, 1000)) if rng.random() < 0.3 else 100_000)
    echoed = 0

    async def echo(stream: bymux.BymuxStream) -> None:
        nonlocal echoed
        size = int.from_bytes(await interrupt(lambda: stream.readexactly(4)), "big")
        data = await interrupt.read(stream, size)
        assert len(data) == size
        await interrupt.write(stream, data)
        await interrupt(stream.close)
        echoed += 1

    async def accept() -> None:
        serving = []
        for _ in range(STREAMS):
            stream = await interrupt(server.accept_stream)
            assert stream is not None
            serving.append(asyncio.ensure_future(echo(stream)))
        await asyncio.gather(*serving)

    async def request() -> None:
        data = rng.randbytes(rng.choice((0, 1, 500, 5000)))
        stream = await interrupt(client.open_stream)
        async with stream:
            stream.write(len(data).to_bytes(4, "big"))
            sending = asyncio.ensure_future(send(stream, data))
            assert await interrupt.read(stream, len(data)) == data
            await sending

    async def send(stream: bymux.BymuxStream, data: bytes) -> None:
        await interrupt.write(stream, data)
        if rng.random() < 0.5:
            assert await interrupt(stream.ping) >= 0
        await interrupt(stream.close)

    await asyncio.gather(accept(), *(request() for _ in range(STREAMS)))
    assert echoed == STREAMS
    assert await interrupt(client.ping) >= 0
    await asyncio.gather(interrupt(client.close), interrupt(server.close))
    await interrupt(client.wait_ended)
    await nothing_left(client, server)
    for end in (client, server):
        assert not end.sans_io.streams
        assert not end._streams
    return interrupt.count


async def jmux_seed(seed: int) -> int:
    interrupt = Interrupter(seed)
    rng = interrupt.rng
    settings = jmux.Settings(initial_ration=rng.choice((256, 1024, 102_400)), fragment_limit=300)
    executed: dict[bytes, int] = {}

    async def echo(session: jmux.ServerSession) -> None:
        name = await interrupt(lambda: session.readexactly(8))
        size = int.from_bytes(name[4:], "big")
        data = await interrupt.read(session, size)
        executed[name] = executed.get(name, 0) + 1
        await interrupt.write(session, data)
        if rng.random() < 0.3:
            session.finish(ack_required=True)
            await interrupt(session.acknowledged)

    client, endpoint = jmux_pair(echo, settings=settings, max_connections=2)
    await interrupt(client.add_connection)
    names = iter(range(1 << 30))
    expected: list[bytes] = []

    def request_of(data: bytes) -> tuple[bytes, bytes]:
        name = next(names).to_bytes(4, "big") + len(data).to_bytes(4, "big")
        return name, name + data

    async def stream() -> None:
        data = rng.randbytes(rng.choice((0, 1, 500, 5000)))
        name, request = request_of(data)
        session = await interrupt(client.open_session)
        async with session:
            await interrupt.write(session, request)
            session.finish()
            assert await interrupt.read(session, len(data)) == data
        expected.append(name)

    async def call() -> None:
        data = rng.randbytes(rng.choice((0, 1, 500, 5000)))
        while True:
            name, request = request_of(data)  # a cancelled call may have been executed, so the next is another one
            try:
                response = await interrupt(lambda request=request: client.call(request), again=False)  # type: ignore[misc]
            except asyncio.CancelledError:
                continue
            assert response == data
            expected.append(name)
            return

    await asyncio.gather(*(stream() for _ in range(STREAMS)), *(call() for _ in range(STREAMS)))
    assert all(executed[name] == 1 for name in expected), "what was answered was executed once"
    assert max(executed.values()) == 1, "nothing was executed twice"
    for _ in range(50):
        await asyncio.sleep(0)
    engines = list(client._engines)
    for engine in engines:
        assert engine.sans_io.busy == 0, "every session id is free again"
        assert not engine.sans_io.sessions
    await asyncio.gather(*(interrupt(lambda server=server: server.shut_down(0.0)) for server in endpoint.servers))
    await interrupt(client.close)
    assert not client._waiters
    await nothing_left(*engines, *endpoint.servers)
    return interrupt.count


async def run(scenario: Callable[[int], Awaitable[int]]) -> None:
    total = 0
    for seed in range(SEEDS):
        try:
            async with asyncio.timeout(20):
                total += await scenario(seed)
        except BaseException as error:
            error.add_note(f"seed {seed} of {scenario.__name__}")  # type: ignore[attr-defined]
            raise
    print(f"{total} cancellations in {SEEDS} seeds")
    assert total >= SEEDS * 10


async def test_bymux_survives_a_cancellation_anywhere() -> None:
    await run(bymux_seed)


async def test_jmux_survives_a_cancellation_anywhere() -> None:
    await run(jmux_seed)


async def test_cancelling_the_user_of_a_stream_leaves_nothing_behind() -> None:
    """The whole exchange is cancelled, at each of its first turns: streams end, handlers end, ids are free."""

    async def hold(stream: Any) -> None:
        async for data in stream:
            stream.write(data)
        await asyncio.Event().wait()

    for turns in range(40):
        client, server = bymux_pair(hold, settings=bymux.Settings(stream_window=100))
        jmux_client, endpoint = jmux_pair(hold, settings=jmux.Settings(initial_ration=256))

        async def exchange(client: bymux.Connection = client) -> None:
            async with await client.open_stream() as stream:
                stream.write(bytes(1000))
                await stream.readexactly(1000)
                await stream.close()
                await stream.read(-1)

        async def request(client: Any = jmux_client) -> None:
            async with client.request() as session:
                session.write(bytes(1000))
                session.finish()
                await session.read(-1)

        tasks = [asyncio.ensure_future(exchange()), asyncio.ensure_future(request())]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not client.sans_io.streams, turns
        assert not server.sans_io.streams, turns
        assert not server.tasks, turns
        for engine in jmux_client._engines:
            assert not engine.sans_io.busy, turns
        for other in endpoint.servers:
            assert not other.tasks, turns
        await asyncio.gather(client.close(), server.close(), jmux_client.close(), return_exceptions=True)
        await asyncio.gather(*(other.wait_ended() for other in endpoint.servers))
