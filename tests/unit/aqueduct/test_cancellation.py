"""Cancelled calls, and calls that are waiting when the connection is lost.

`tests/system/test_cancellation.py` cancels every call of the API.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest
from memory_adapter import join, turns
from tests.support.waiting import soon

from mainstem.aqueduct import Message
from mainstem.aqueduct.aio import channel, oneshot
from mainstem.aqueduct.pipe import Pipe
from mainstem.errors import Aborted, ClosedError, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def interrupted(step: Awaitable[Any], after: int) -> tuple[bool, Any]:
    """Run a call, cancel it after `after` loop iterations if it is not done, and return whether it was done and its result."""
    task = asyncio.ensure_future(step)
    for _ in range(after):
        if task.done():
            break
        await asyncio.sleep(0)
    if not task.done():
        task.cancel()
    try:
        return True, await task
    except asyncio.CancelledError:
        return False, None


async def test_a_send_cancelled_while_yielding_sends_nothing() -> None:
    sender, receiver = channel(max_messages=10_000)
    sent = 0
    cancelled = 0
    for number in range(1000):
        done, _ = await interrupted(sender.send(b"%d" % number), 1)
        sent += done
        cancelled += not done
    assert cancelled
    messages = 0
    while receiver.try_receive() is not None:
        messages += 1
    assert messages == sent


async def test_a_oneshot_arrives_even_if_waiting_for_its_acknowledgment_is_cancelled() -> None:
    client, server = join()
    await client.headers()
    respond, response = oneshot()
    await client.sender.send(Message(b"", [response]))
    done, _ = await interrupted(respond.send_acknowledged(b"tide"), 1)
    assert not done
    del respond
    gc.collect()
    message = await server.receiver.receive()
    assert await soon(message.attachments[0].receive()) == b"tide"
    client.abort()


async def test_an_acknowledged_send_on_a_finished_sender_raises() -> None:
    client, _ = join()
    await client.headers()
    client.sender.finish()
    with pytest.raises(ClosedError):
        await client.sender.send_acknowledged(b"tide")
    client.abort()


async def test_every_waiting_call_raises_the_same_class_for_a_lost_connection() -> None:
    client, server = join()
    await client.headers()
    sender, receiver = channel()
    incoming, far = channel()
    await client.sender.send(Message(b"", [receiver, incoming]))
    message = await server.receiver.receive()

    async def iterate() -> None:
        async for _ in far:
            pass

    waits = [
        asyncio.ensure_future(step)
        for step in (
            far.receive(),
            iterate(),
            sender.wait_closed(),
            sender.send_acknowledged(b"tide"),
            server.receiver.receive(),
            client.wait_closed(),
        )
    ]
    await asyncio.sleep(0)
    client._protocol.fail(ConnectionLost("the path is gone"))
    outcomes = await soon(asyncio.gather(*waits, return_exceptions=True))
    assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * len(waits)
    for step in (sender.send(b""), sender.send_acknowledged(b""), far.receive(), client.sender.send(b"")):
        with pytest.raises(ConnectionLost):
            await step
    del message
    client.abort()


async def test_dropping_a_received_sender_ends_its_channel() -> None:
    client, server = join()

    async def ignore_everything() -> None:
        async for message in server.receiver:
            del message

    handler = asyncio.ensure_future(ignore_everything())
    sender, receiver = channel()
    await client.sender.send(Message(b"tide", [sender]))
    with pytest.raises(Aborted):
        await soon(receiver.receive())
    handler.cancel()
    client.abort()
    server.abort()


async def test_ended_channels_are_freed_without_the_garbage_collector() -> None:
    client, server = join()

    async def respond() -> None:
        async for message in server.receiver:
            await message.attachments[0].send(b"tide")
            del message

    def pipes() -> int:
        return sum(type(each) is Pipe for each in gc.get_objects())

    handler = asyncio.ensure_future(respond())
    gc.collect()
    before = pipes()
    gc.disable()
    try:
        for _ in range(20):
            sender, receiver = oneshot()
            await client.sender.send(Message(b"", [sender]))
            assert await soon(receiver.receive()) == b"tide"
            del sender, receiver
            await turns(10)
        assert pipes() <= before + 2
    finally:
        gc.enable()
    handler.cancel()
    client.abort()
    server.abort()
