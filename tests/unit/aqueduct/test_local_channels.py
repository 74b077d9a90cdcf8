"""Channels within the process: the same handles, without a connection."""

from __future__ import annotations

import asyncio
import gc

import pytest

from mainstem.aqueduct import Receiver, Sender, channel, oneshot
from mainstem.errors import BackPressured, Cancelled, ClosedError, NoReceivers


async def test_messages_come_out_in_order_until_the_sender_has_finished() -> None:
    sender, receiver = channel()
    for number in range(3):
        await sender.send(number)
    sender.finish()
    assert [message async for message in receiver] == [0, 1, 2]
    with pytest.raises(ClosedError):
        await receiver.receive()
    with pytest.raises(ClosedError):
        await sender.send(4)


async def test_a_full_channel_makes_its_sender_wait() -> None:
    sender, receiver = channel(bound=1)
    await sender.send(1)
    with pytest.raises(BackPressured):
        sender.send_nowait(2)
    waiting = asyncio.ensure_future(sender.send(2))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await receiver.receive() == 1
    await waiting
    assert await receiver.receive() == 2


async def test_a_reader_that_waits_is_woken() -> None:
    sender, receiver = channel()
    waiting = asyncio.ensure_future(receiver.receive())
    await asyncio.sleep(0)
    sender.send_nowait("x")
    assert await waiting == "x"


async def test_cancelling_drops_what_was_not_received() -> None:
    sender, receiver = channel()
    await sender.send(1)
    sender.cancel()
    with pytest.raises(Cancelled):
        await receiver.receive()
    with pytest.raises(Cancelled):
        await sender.send(2)


async def test_closing_tells_the_sender() -> None:
    sender, receiver = channel()
    receiver.close()
    with pytest.raises(NoReceivers):
        await sender.send(1)
    with pytest.raises(ClosedError):
        await receiver.receive()


async def test_dropped_handles_end_their_channel() -> None:
    sender, receiver = channel()
    del sender
    gc.collect()
    with pytest.raises(Cancelled):
        await receiver.receive()
    sender, receiver = channel()
    del receiver
    gc.collect()
    with pytest.raises(NoReceivers):
        await sender.send(1)


async def test_a_oneshot_is_finished_by_its_message() -> None:
    sender, receiver = oneshot()
    await sender.send("only")
    assert await receiver == "only"
    with pytest.raises(ClosedError):
        await sender.send("more")
    with pytest.raises(ClosedError):
        await receiver


async def test_leaving_a_with_block_finishes_or_cancels() -> None:
    sender, receiver = channel()
    with sender:
        await sender.send(1)
    assert [message async for message in receiver] == [1]
    sender, receiver = channel()
    with pytest.raises(RuntimeError), sender:
        raise RuntimeError
    with pytest.raises(Cancelled):
        await receiver.receive()


async def test_handles_travel_through_local_channels_as_they_are() -> None:
    outer, outer_receiver = channel()
    inner: tuple[Sender[int], Receiver[int]] = channel()
    await outer.send(inner[1])
    await inner[0].send(5)
    assert await (await outer_receiver.receive()).receive() == 5
