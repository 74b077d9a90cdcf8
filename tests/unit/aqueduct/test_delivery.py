"""What a lost connection reports about messages: the calls raise what the table in docs/aqueduct-ends.md says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from memory_adapter import MemoryAdapter, join, turns
from tests.support.waiting import soon

from mainstem.aqueduct import Limits, Message, Mode
from mainstem.aqueduct.aio import channel
from mainstem.aqueduct.events import SendProgress
from mainstem.aqueduct.frames import HANDSHAKE_TIMED_OUT, NO_PLACE, SERIALIZATION_ERROR
from mainstem.aqueduct.quic.lifecycle import REFUSALS
from mainstem.errors import BackPressured, ConnectionLost, Delivery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainstem.aqueduct.aio import Connection, Sender

PAGE = Path(__file__).resolve().parents[3] / "docs" / "aqueduct-ends.md"


class World:
    """A client whose connection will be lost, and a channel to the server."""

    def __init__(self) -> None:
        # Messages are acknowledged when the server has room for them: one message on a channel that nobody reads.
        self.client, self.server = join(Limits(receive_messages=1))
        self.kept: list[Any] = []
        self.sender: Sender[Any]

    @property
    def adapter(self) -> MemoryAdapter:
        adapter = self.client._protocol.adapter
        assert isinstance(adapter, MemoryAdapter)
        return adapter

    async def start(self) -> None:
        await self.client.headers()
        self.sender, receiver = channel(mode=Mode.UNORDERED)
        await self.client.sender.send(Message(b"", [receiver]))
        self.kept.append(await self.server.receiver.receive())
        await turns(10)

    def no_streams(self) -> None:
        """From now on, QUIC gives the client no streams."""
        update = self.adapter.update

        def update_without(conn: Any) -> None:
            update(conn)
            conn.output.transport_state(uni_streams=0)

        self.adapter.update = update_without  # type: ignore[method-assign]
        update_without(self.client._protocol.engine)

    def silent(self) -> None:
        """From now on, nothing arrives from the server."""
        self.adapter.deliver = lambda engine, now_ns: False  # type: ignore[method-assign]

    async def lose(self, **facts: str) -> None:
        await turns(10)
        self.client._protocol.fail(ConnectionLost("the path is gone", **facts))


async def nothing(world: World) -> None:
    await world.lose()


async def all_wait(world: World) -> None:
    world.no_streams()
    await world.sender.send(b"1")
    await world.lose()


async def some_wait(world: World) -> None:
    world.silent()
    await world.sender.send(b"1")
    await turns(5)
    world.no_streams()
    await world.sender.send(b"2")
    await world.lose()


async def all_left(world: World) -> None:
    world.silent()
    await world.sender.send(b"1")
    await world.lose()


async def acknowledged(world: World) -> None:
    await world.sender.send_acknowledged(b"1")
    await world.lose()


async def some_acknowledged(world: World) -> None:
    await world.sender.send_acknowledged(b"1")
    await world.sender.send(b"2")
    await world.lose()


async def refused(world: World) -> None:
    world.silent()
    await world.sender.send(b"1")
    await world.lose(delivery=Delivery.NONE)


SITUATIONS: dict[str, Callable[[World], Awaitable[None]]] = {
    "nothing was sent": nothing,
    "every message waits here, for room in QUIC": all_wait,
    "some messages left, others wait here": some_wait,
    "all left, none is acknowledged": all_left,
    "all left, some are acknowledged": some_acknowledged,
    "all are acknowledged: they may have waited in the peer's queue": acknowledged,
    "the peer refused the connection (codes 3, 5 and 6)": refused,
}


async def delivery(situation: Callable[[World], Awaitable[None]], step: Callable[[World], Awaitable[Any]]) -> str:
    world = World()
    await world.start()
    await situation(world)
    with pytest.raises(ConnectionLost) as caught:
        await soon(step(world))
    world.client.abort()
    return caught.value.delivery


async def test_error_delivery_matches_the_guide() -> None:
    lines = ["| what became of the channel's messages | `delivery` |", "| --- | --- |"]
    for text, situation in SITUATIONS.items():
        outcomes = {
            await delivery(situation, lambda world: world.sender.send(b"late")),
            await delivery(situation, lambda world: world.sender.wait_closed()),
            await delivery(situation, lambda world: world.sender.send_acknowledged(b"late")),
        }
        lines.append(f"| {text} | {', '.join(sorted(outcomes))} |")
    expected = "<!-- delivery -->\n\n" + "\n".join(lines) + "\n"
    assert expected in PAGE.read_text(), f"docs/aqueduct-ends.md should have:\n{expected}"


@pytest.mark.parametrize(("room", "expected"), [(True, "unknown"), (False, "none")])
async def test_each_acknowledged_send_has_its_own_delivery_status(room: bool, expected: str) -> None:
    world = World()
    await world.start()
    await world.sender.send_acknowledged(b"1")
    world.silent()
    if not room:
        world.no_streams()
    waiting = asyncio.ensure_future(world.sender.send_acknowledged(b"2"))
    await world.lose()
    with pytest.raises(ConnectionLost) as caught:
        await soon(waiting)
    assert caught.value.delivery == expected
    world.client.abort()


async def test_connection_stats_count_messages_of_all_channels() -> None:
    async def lost(connection: Connection) -> str:
        with pytest.raises(ConnectionLost) as caught:
            await soon(connection.wait_closed())
        return caught.value.delivery

    client, _ = join()
    client._protocol.fail(ConnectionLost("the path is gone"))
    assert await lost(client) == "none"
    world = World()
    await world.start()
    world.sender.finish()
    await world.sender.wait_closed()
    await world.lose()
    assert await lost(world.client) == "unknown", "the entrypoint's message was acknowledged"
    world = World()
    await world.start()
    await some_wait(world)
    assert await lost(world.client) == "partial"
    world.client.abort()


async def test_senders_get_their_limits_from_the_connection_settings() -> None:
    client, _ = join(Limits(send_messages=3))
    for _ in range(3):
        client.sender.try_send(b"tide")
    with pytest.raises(BackPressured, match="the limit is 3"):
        client.sender.try_send(b"tide")
    client.abort()


def test_send_progress_is_described_in_words() -> None:
    assert SendProgress().delivery == SendProgress(queued=2).delivery == "none"
    assert SendProgress(sent=2).delivery == SendProgress(sent=2, acknowledged=2).delivery == "unknown"
    assert SendProgress(sent=2, acknowledged=1).delivery == SendProgress(sent=2, queued=1).delivery == "partial"
    assert SendProgress(1, 1, 0) + SendProgress(2, 0, 1) == SendProgress(3, 1, 1)
    assert REFUSALS == (SERIALIZATION_ERROR, HANDSHAKE_TIMED_OUT, NO_PLACE)
