"""The calls raise what the tables in docs/mux-ends.md, "What each call raises", say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.mux_pair import bymux_pair, jmux_pair
from tests.support.waiting import settle, soon

from mainstem import bymux
from mainstem.bymux.codec import Packet, encode_stream
from mainstem.errors import ClosedError
from mainstem.jmux import aio as jmux

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PAGE = Path(__file__).resolve().parents[3] / "docs" / "mux-ends.md"
UNSENT = bytes(5000)  # more than the peer's window


async def hold(stream: Any) -> None:
    await asyncio.Event().wait()


async def leave(stream: Any) -> None:
    async with stream:
        pass


async def write(stream: Any) -> None:
    stream.write(b"x")


async def finish(stream: Any) -> None:
    stream.finish()


STREAM_CALLS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "read()": lambda stream: stream.read(),
    "read(-1)": lambda stream: stream.read(-1),
    "readexactly(4)": lambda stream: stream.readexactly(4),
    "write()": write,
    "drain()": lambda stream: stream.drain(),
    "flush()": lambda stream: stream.flush(),
}
BYMUX_CALLS = {
    **STREAM_CALLS,
    "close()": lambda stream: stream.close(),
    "leaving the block": leave,
    "ping()": lambda stream: stream.ping(),
    "connection.open_stream()": lambda stream: stream.connection.open_stream(),
    "connection.accept_stream()": lambda stream: stream.connection.accept_stream(),
    "connection.ping()": lambda stream: stream.connection.ping(),
    "connection.close()": lambda stream: stream.connection.close(0.01),
}
JMUX_CALLS = {
    **STREAM_CALLS,
    "finish()": finish,
    "close()": lambda session: session.close(),
    "leaving the block": leave,
}
SITUATIONS = ("connection lost", "ended by the peer", "aborted by the peer", "aborted here", "connection closed here")


async def bymux_stream(situation: str) -> Any:
    served: list[bymux.aio.Stream] = []

    async def handler(stream: bymux.aio.Stream) -> None:
        served.append(stream)
        await stream.readexactly(4)
        if situation == "ended by the peer":
            stream.finish()
        await hold(stream)

    client, server = bymux_pair(handler, settings=bymux.Settings(stream_window=1000))
    stream = await client.open_stream()
    await settle()
    stream.write(UNSENT)
    await settle()
    if situation == "connection lost":
        server._protocol.end(abort=True)
    elif situation == "aborted by the peer":
        served[0].abort()
    elif situation == "aborted here":
        stream.abort()
    elif situation == "connection closed here":
        client._protocol.end()
    await settle()
    return stream


async def jmux_session(situation: str) -> Any:
    async def handler(session: jmux.ServerSession) -> None:
        await session.readexactly(4)
        if situation == "aborted by the peer":
            session.abort()
        elif situation == "ended by the peer":
            return
        await hold(session)

    client, endpoint = jmux_pair(handler, settings=jmux.Settings(initial_ration=1024))
    session = await client.open_session()
    session.write(UNSENT)
    await settle()
    if situation == "connection lost":
        endpoint.servers[0].end(abort=True)
    elif situation == "aborted here":
        session.abort()
    elif situation == "connection closed here":
        await client.close()
    await settle()
    return session


async def outcome(open_stream: Callable[[str], Awaitable[Any]], situation: str, call: Any) -> str:
    stream = await open_stream(situation)
    calling = asyncio.ensure_future(call(stream))
    await settle()
    await asyncio.wait([calling], timeout=0.05)
    # First run everything that became due meanwhile; on a busy machine, all of it can be due at once.
    await settle()
    if not calling.done():
        calling.cancel()
        await asyncio.wait([calling])
        return "waits"
    try:
        result = await calling
    except (Exception, EOFError) as error:
        return type(error).__name__
    return 'returns `b""`' if result == b"" else "returns"


async def table(open_stream: Callable[[str], Awaitable[Any]], calls: dict[str, Any]) -> str:
    lines = ["| | " + " | ".join(SITUATIONS) + " |", "|---" * (len(SITUATIONS) + 1) + "|"]
    for name, call in calls.items():
        cells = [await outcome(open_stream, situation, call) for situation in SITUATIONS]
        lines.append(
            f"| `{name}` | " + " | ".join(cells) + " |" if "(" in name else f"| {name} | " + " | ".join(cells) + " |"
        )
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "open_stream", "calls"), [("bymux", bymux_stream, BYMUX_CALLS), ("jmux", jmux_session, JMUX_CALLS)]
)
async def test_calls_raise_what_the_guide_says(name: str, open_stream: Any, calls: Any) -> None:
    expected = await table(open_stream, calls)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    marker = f"<!-- raises {name} -->\n\n{expected}\n"
    assert marker in PAGE.read_text(), f"docs/mux-ends.md should have:\n{marker}"


async def test_a_ping_raises_once_its_stream_has_ended() -> None:
    client, server = bymux_pair()
    async with client, server, client.open_stream() as stream:
        transport: Any = client._protocol.transport
        await settle()
        transport.other = None  # the peer does not get the ping
        pinging = asyncio.ensure_future(stream.ping(None))
        await settle()
        stream.finish()
        stream.stop_read()
        await settle()
        for packet in (Packet.CLOSE, Packet.STOP_READ):
            client._protocol.data_received(memoryview(encode_stream(packet, stream.id)))
        with pytest.raises(ClosedError, match=f"stream {stream.id} has ended"):
            await soon(pinging)
        assert not client._protocol.pings._waiters
        client.abort()
        server.abort()
