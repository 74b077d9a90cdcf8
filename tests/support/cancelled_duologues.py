"""Duologue workload for tests/system/test_cancellation.py: a server, and clients that echo, stream and give up."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.support.duologues import calling, serving
from tests.support.ports import free_port

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.duologue import aio
from mainstem.duologue.settings import reserved_sessions
from mainstem.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.cancellation import Canceller

MAX_CLIENTS = 40
PORTS = 2 * MAX_CLIENTS + 2
# A window holds only a few messages of this size, so senders have to wait.
LARGE = 8_000


def messages(count: int, size: int) -> list[bytes]:
    return [b"%d " % number + bytes(size) for number in range(count)]


def table(cancelled: str, never_waits: str) -> dict[str, str]:
    """Return the expected outcome of each awaitable."""
    never = {"Client.__aenter__", "Duologue.__aenter__", "Server.__aenter__"}
    waits = ("Client.__aexit__", "Client.__aiter__", "Client.close", "Client.receive", "Client.send")
    waits += ("Duologue.__aexit__", "Duologue.__aiter__", "Duologue.close", "Duologue.receive", "Duologue.send")
    waits += ("Server.__aexit__", "Server.close", "Server.shutdown", "Server.wait", "connect", "serve")
    return {**dict.fromkeys(never, never_waits), **dict.fromkeys(waits, cancelled)}


@contextmanager
def driver() -> Iterator[tuple[Aeron, int]]:
    """Yield a client of a driver, and the first of the ports for its duologues."""
    with (
        MediaDriver.launch(**reserved_sessions(), term_buffer_length=1 << 16) as made,
        Aeron.connect(made.directory) as aeron,
    ):
        yield aeron, free_port(PORTS)


async def receive(cancel: Canceller, kind: str, end: Any, count: int) -> list[bytes]:
    """Receive ``count`` messages, or fewer if the peer leaves, with a random mix of calls."""
    received: list[bytes] = []

    async def iterate(limit: int) -> None:
        async for message in end:
            received.append(message)
            limit -= 1
            if not limit:
                return
        raise ClosedError("the peer has left")

    while len(received) < count:
        try:
            if cancel.rng.random() < 0.5:
                received.append(await cancel(f"{kind}.receive", end.receive))
            else:
                limit = cancel.rng.randint(1, count - len(received))
                await cancel.once(f"{kind}.__aiter__", lambda limit=limit: iterate(limit))  # type: ignore[misc]
        except ClosedError:
            break
    return received


async def send(cancel: Canceller, kind: str, end: Any, what: list[bytes]) -> None:
    for message in what:
        await cancel(f"{kind}.send", lambda message=message: end.send(message))  # type: ignore[misc]


async def duologue_world(cancel: Canceller, resources: tuple[Aeron, int]) -> list[Callable[[], str]]:
    rng = cancel.rng
    aeron, port = resources
    sunk: dict[bytes, list[bytes]] = {}

    async def handler(duologue: aio.Duologue) -> None:
        kind, name, count, size = (await cancel("Duologue.receive", duologue.receive)).split()
        if kind == b"sink":
            sunk[name] = []
            while batch := await receive(cancel, "Duologue", duologue, 10):
                sunk[name] += batch
        elif kind == b"pour":
            await send(cancel, "Duologue", duologue, messages(int(count), int(size)))
        else:
            for _ in range(int(count)):
                await send(cancel, "Duologue", duologue, await receive(cancel, "Duologue", duologue, 1))
        ending = rng.random()
        if ending < 0.3:
            await cancel("Duologue.close", duologue.close)
        elif ending < 0.6:
            await cancel("Duologue.__aenter__", duologue.__aenter__)
            await cancel("Duologue.__aexit__", lambda: duologue.__aexit__(None, None, None))

    server = await cancel(
        "serve",
        lambda: aio.serve(
            handler,
            **serving(
                port, max_clients=MAX_CLIENTS, max_clients_per_address=MAX_CLIENTS, hello_rate=1_000.0, join_timeout=2.0
            ),
            aeron=aeron,
        ),
    )
    await cancel("Server.__aenter__", server.__aenter__)
    await cancel.once("Server.wait", server.wait, always=True)

    async def connected() -> aio.Client:
        client = await cancel("connect", lambda: aio.connect(**calling(port), aeron=aeron))
        await cancel("Client.__aenter__", client.__aenter__)
        return client

    async def leave(client: aio.Client) -> bool:
        """Return whether the client closed without being cancelled; a cancelled close aborts."""
        if rng.random() < 0.5:
            return (await cancel.once("Client.close", client.close))[0]
        return (await cancel.once("Client.__aexit__", lambda: client.__aexit__(None, None, None)))[0]

    async def echo(number: int) -> None:
        client = await connected()
        what = messages(rng.choice((1, 12)), rng.choice((0, 1_000)))
        await send(cancel, "Client", client, [b"echo %d %d 0" % (number, len(what))])
        sending = asyncio.ensure_future(send(cancel, "Client", client, what))
        assert await receive(cancel, "Client", client, len(what)) == what
        await sending
        await leave(client)
        assert client.closed

    async def pour(number: int) -> None:
        client = await connected()
        what = messages(30, LARGE)
        await send(cancel, "Client", client, [b"pour %d %d %d" % (number, len(what), LARGE)])
        await asyncio.sleep(rng.choice((0, 0.02)))
        assert await receive(cancel, "Client", client, len(what) + 1) == what
        await leave(client)

    async def sink(number: int) -> None:
        client = await connected()
        what = messages(30, LARGE)
        name = b"%d" % number
        await send(cancel, "Client", client, [b"sink %s 0 0" % name, *what])
        is_whole = await leave(client)
        arrived = sunk.get(name, [])
        assert arrived == what[: len(arrived)]
        if is_whole:
            whole.append(name)

    async def give_up() -> None:
        async def use() -> None:
            async with aio.connect(**calling(port), aeron=aeron) as client:
                await client.send(b"echo 0 100 0")
                await client.send(b"left")
                await client.receive()
                await client.receive()

        await cancel.once("a whole exchange", use, always=True)

    whole: list[bytes] = []
    await asyncio.gather(*(work(number) for number, work in enumerate((echo, echo, pour, sink, sink))), give_up())
    ending = [
        lambda: cancel("Server.close", server.close),
        lambda: cancel("Server.shutdown", lambda: server.shutdown(5.0)),
        lambda: cancel("Server.__aexit__", lambda: server.__aexit__(None, None, None)),
    ]
    rng.shuffle(ending)
    for step in ending:
        await step()
    await server.wait(timeout=5.0)
    assert all(len(sunk[name]) == 30 for name in whole), "what was closed in order arrived"
    return [lambda: server_leftovers(server)]


def server_leftovers(server: aio.Server) -> str:
    core = server._agent.core
    left = {"open": not server.closed, "handlers": server._handlers.tasks, "sessions": core._sessions}
    return " ".join(f"{kind} {value}" for kind, value in left.items() if value)
