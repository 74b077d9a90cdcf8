"""Deadlines of calls reach the server, retries back off, and connecting completes when the server's header arrives."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.mux_pair import MemoryTransport, bymux_pair, jmux_pair
from tests.support.waiting import STALL_S, settle, soon

from mainstem import bymux
from mainstem.errors import Aborted, ConfigurationError, ConnectionLost, Timeout
from mainstem.jmux.aio_client import Client

if TYPE_CHECKING:
    from mainstem.jmux import aio as jmux
    from mainstem.mux.transports import TransportHandler


def let_pass(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the event loop's clock."""
    loop = asyncio.get_running_loop()
    before = loop.time
    monkeypatch.setattr(loop, "time", lambda: before() + seconds)


async def test_a_call_that_times_out_cancels_its_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def slow(session: jmux.ServerSession) -> None:
        await session.read(-1)
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    client, endpoint = jmux_pair(slow)
    calling = asyncio.ensure_future(client.request(b"x", timeout=2 * STALL_S))
    await soon(started.wait())
    let_pass(2 * STALL_S, monkeypatch)
    with pytest.raises(Timeout, match="no response within"):
        await soon(calling)
    await soon(cancelled.wait())
    await settle()
    assert endpoint.transports[0].sent.endswith(bytes.fromhex("20000000"))  # type: ignore[attr-defined]


async def test_the_timeout_of_a_call_covers_all_attempts() -> None:
    attempts = 0

    async def refuse(session: jmux.ServerSession) -> None:
        nonlocal attempts
        attempts += 1
        session.reject("busy")

    client, _ = jmux_pair(refuse)
    with pytest.raises(Timeout):
        await soon(client.request(b"x", attempts=1000, timeout=0.2))
    assert 2 <= attempts <= 6, "the pauses double"
    attempts = 0
    with pytest.raises(Aborted, match="busy"):
        await soon(client.request(b"x", attempts=3))
    assert attempts == 3


async def test_retry_delays_have_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(session: jmux.ServerSession) -> None:
        session.reject("busy")

    pauses: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float, *arguments: Any) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", record)
    client, _ = jmux_pair(refuse)
    client._entropy = random.Random(1)
    with pytest.raises(Aborted):
        await client.request(b"x", attempts=7)
    assert len(pauses) == 6
    for pause, most in zip(pauses, (0.05, 0.1, 0.2, 0.4, 0.8, 1.0), strict=True):
        assert most / 2 <= pause <= most
    assert len({pause / most for pause, most in zip(pauses, (0.05, 0.1, 0.2, 0.4, 0.8, 1.0), strict=True)}) > 1


class SilentEndpoint:
    """A server that accepts, sends nothing, and then ends."""

    def __init__(self) -> None:
        self.transport: MemoryTransport | None = None

    async def connect(self, handler: TransportHandler, timeout: float) -> None:
        self.transport = MemoryTransport(handler)
        handler.transport_ready(self.transport)


async def test_connect_returns_after_the_header_or_raises() -> None:
    endpoint = SilentEndpoint()
    client = Client.made(endpoint, timeout=0.05)  # type: ignore[arg-type]
    with pytest.raises(Timeout, match="header"):
        await soon(client._pool.free())
    assert client.stats().connections == 0
    client = Client.made(endpoint, timeout=STALL_S)  # type: ignore[arg-type]
    connecting = asyncio.ensure_future(client._pool.free())
    await settle()
    assert not connecting.done()
    assert endpoint.transport is not None
    endpoint.transport.lose(None)
    with pytest.raises(ConnectionLost) as caught:
        await soon(connecting)
    assert caught.value.delivery == "none"
    connecting = asyncio.ensure_future(client._pool.free())
    await settle()
    connecting.cancel()
    await settle()
    assert endpoint.transport.ended, "a cancelled connect leaves no connection behind"


async def test_close_waits_for_close_timeout() -> None:
    async def endless(stream: bymux.aio.Stream) -> None:
        await asyncio.Event().wait()

    client, server = bymux_pair(endless, settings=bymux.Settings(close_timeout=0.05))
    stream = await client.open_stream()
    await soon(client.close())
    assert client.closed
    assert stream.closed
    await soon(server.close())
    with pytest.raises(ConfigurationError, match="close_timeout"):
        bymux.Settings(close_timeout=-1)
