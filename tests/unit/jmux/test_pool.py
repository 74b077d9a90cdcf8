"""A client's connection pool: calls wait for a free session, whatever happens to the connection being opened."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.mux_pair import MemoryEndpoint, MemoryTransport
from tests.support.waiting import STALL_S, settle, soon, until

from mainstem._internal.pauses import GrowingPause
from mainstem.errors import ClosedError, ConnectionLost
from mainstem.jmux.aio_client import Client
from mainstem.jmux.codec import MAX_SESSIONS
from mainstem.jmux.settings import Settings

if TYPE_CHECKING:
    from mainstem.jmux import aio as jmux
    from mainstem.mux.transports import TransportHandler


async def echo(session: jmux.ServerSession) -> None:
    session.write(await session.read(-1))


class Gate(MemoryEndpoint):
    """A server that accepts ``accepts`` connections. Further ones are refused, or hang while ``hangs`` is set."""

    def __init__(self, accepts: int) -> None:
        super().__init__(echo, None)
        self.accepts = accepts
        self.hangs = False
        self.attempts = 0
        self.connecting = 0
        self.silent: MemoryTransport | None = None

    async def connect(self, handler: TransportHandler, timeout: float) -> None:
        self.attempts += 1
        self.connecting += 1
        try:
            if self.accepts <= 0 and self.hangs:
                await asyncio.Event().wait()
            if self.accepts <= 0:
                raise ConnectionLost("the server is full", delivery="none")
            self.accepts -= 1
            await super().connect(handler, timeout)
        finally:
            self.connecting -= 1

    async def connect_in_silence(self, handler: TransportHandler, timeout: float) -> None:
        """Connect to a server that sends no header."""
        self.silent = MemoryTransport(handler)
        handler.transport_ready(self.silent)


def client_of(gate: Gate, *, max_connections: int = 2) -> Client:
    endpoint: Any = gate
    return Client.made(endpoint, settings=Settings(max_connections=max_connections), timeout=STALL_S)


async def busy(client: Client) -> list[jmux.ClientSession]:
    """Open all sessions of the first connection."""
    return [await client.open_session() for _ in range(MAX_SESSIONS)]


@pytest.mark.parametrize("hangs", [False, True], ids=["refused", "hangs"])
async def test_calls_wait_for_a_session_if_the_server_accepts_no_more_connections(hangs: bool) -> None:
    gate = Gate(accepts=1)
    gate.hangs = hangs
    client = client_of(gate)
    sessions = await busy(client)
    calls = [asyncio.ensure_future(client.request(b"%d" % number)) for number in range(3)]
    await until(lambda: gate.attempts == (2 if hangs else 3))
    assert not any(call.done() for call in calls)
    sessions[0].abort()
    assert await soon(asyncio.gather(*calls)) == [b"0", b"1", b"2"]
    assert client.stats().connections == 1
    await client.close()
    assert not gate.connecting


async def test_connecting_is_retried_while_a_call_waits() -> None:
    gate = Gate(accepts=1)
    client = client_of(gate)
    _sessions = await busy(client)
    call = asyncio.ensure_future(client.request(b"x"))
    await until(lambda: gate.attempts == 4)
    gate.accepts = 1
    assert await soon(call) == b"x"
    assert client.stats().connections == 2
    await client.close()


async def test_waiting_calls_reconnect_when_the_only_connection_is_lost() -> None:
    gate = Gate(accepts=1)
    client = client_of(gate)
    _sessions = await busy(client)
    # The next attempt would be far in the future.
    client._pool._pause = GrowingPause(STALL_S, STALL_S, random.Random(1))
    waiting = asyncio.ensure_future(client.open_session())
    await until(lambda: client._pool._retry is not None)
    gate.accepts = 1
    client._pool.connections[0].end(abort=True)
    await soon(waiting)
    assert client.stats().connections == 1
    await client.close()


async def test_every_call_fails_if_no_connection_can_be_opened() -> None:
    gate = Gate(accepts=0)
    client = client_of(gate)
    outcomes = await soon(asyncio.gather(*(client.open_session() for _ in range(3)), return_exceptions=True))
    assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 3
    assert len(set(map(id, outcomes))) == 3, "each has an error of its own"
    assert gate.attempts == client.stats().connections_unreached == 1
    await client.close()


async def test_close_cancels_connecting() -> None:
    gate = Gate(accepts=1)
    client = client_of(gate)
    _sessions = await busy(client)
    gate.hangs = True
    waiting = asyncio.ensure_future(client._open_session())
    await until(lambda: gate.connecting == 1)
    await client.close()
    assert gate.connecting == 0
    with pytest.raises(ClosedError):
        await soon(waiting)
    with pytest.raises(ClosedError):
        await client.open_session()
    await settle()
    assert all(server.over for server in gate.servers)


async def test_close_cancels_waiting_for_the_header() -> None:
    gate = Gate(accepts=1)
    client = client_of(gate)
    _sessions = await busy(client)
    gate.connect = gate.connect_in_silence  # type: ignore[method-assign]
    waiting = asyncio.ensure_future(client.open_session())
    await until(lambda: gate.silent is not None)
    await client.close()
    assert gate.silent is not None
    assert gate.silent.ended
    assert client.stats().connections == 0
    with pytest.raises(ClosedError):
        await soon(waiting)


async def test_connecting_is_cancelled_with_the_last_waiting_call() -> None:
    gate = Gate(accepts=0)
    gate.hangs = True
    client = client_of(gate)
    calls = [asyncio.ensure_future(client.open_session()) for _ in range(2)]
    await until(lambda: gate.connecting == 1)
    calls[0].cancel()
    await settle()
    assert gate.connecting == 1
    gate.accepts = 1
    calls[1].cancel()
    newcomers = [asyncio.ensure_future(client.open_session()) for _ in range(2)]
    await soon(asyncio.gather(*newcomers))
    assert gate.attempts == 2
    assert client.stats().connections == 1
    assert not client._pool.waiters
    await client.close()
