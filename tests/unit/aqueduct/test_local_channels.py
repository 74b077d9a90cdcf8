"""Channels within the process: the same handles, without a connection."""

from __future__ import annotations

import asyncio
import gc

import pytest
from tests.support.patience import soon

from mainstem.aqueduct import Mode, Receiver, Sender, channel, oneshot
from mainstem.errors import Aborted, BackPressured, ClosedError, NoReceivers


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
    with pytest.raises(Aborted):
        await receiver.receive()
    with pytest.raises(Aborted):
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
    with pytest.raises(Aborted):
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
    with pytest.raises(Aborted):
        await receiver.receive()


async def test_handles_travel_through_local_channels_as_they_are() -> None:
    outer, outer_receiver = channel()
    inner: tuple[Sender[int], Receiver[int]] = channel()
    await outer.send(inner[1])
    await inner[0].send(5)
    assert await (await outer_receiver.receive()).receive() == 5


async def test_an_acknowledged_send_returns_once_the_message_is_there() -> None:
    sender, receiver = channel(bound=1)
    await sender.send_acknowledged("first")
    waiting = asyncio.ensure_future(sender.send_acknowledged("second"))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await receiver.receive() == "first"
    await soon(waiting)
    assert receiver.receive_nowait() == "second"


async def test_unreliable_messages_beyond_the_bound_replace_the_oldest() -> None:
    sender, receiver = channel(mode=Mode.UNRELIABLE, bound=2)
    for number in range(5):
        await sender.send(number)
    sender.finish()
    assert [message async for message in receiver] == [3, 4]


@pytest.mark.parametrize("ending", ["finished", "finished unread", "cancelled", "closed"])
async def test_the_end_of_a_channel_can_be_waited_for(ending: str) -> None:
    sender, receiver = channel()
    await sender.send("tide")
    waiting = asyncio.ensure_future(sender.wait_closed())
    await asyncio.sleep(0)
    assert not waiting.done()
    if ending == "cancelled":
        sender.cancel()
        sender.cancel()
        with pytest.raises(Aborted):
            await soon(waiting)
    elif ending == "closed":
        await receiver.close()
        await receiver.close()
        with pytest.raises(NoReceivers):
            await soon(waiting)
    else:
        sender.finish()
        sender.finish()
        await asyncio.sleep(0)
        assert not waiting.done()  # a message waits to be received
        if ending == "finished":
            assert await receiver.receive() == "tide"
        else:
            await receiver.close()
        await soon(waiting)


async def test_handles_show_what_they_are() -> None:
    sender, receiver = channel(mode=Mode.UNORDERED)
    assert repr(sender) == "<Sender unordered, local>"
    assert repr(receiver) == "<Receiver unordered, local>"
    assert repr(oneshot()[0]) == "<Sender oneshot unordered, local>"
    assert (sender.mode, sender.is_networked, receiver.is_networked) == (Mode.UNORDERED, False, False)
    sender.configure(mode=Mode.ORDERED, bound=1)
    assert sender.mode is Mode.ORDERED
    sender.send_nowait(1)
    with pytest.raises(BackPressured, match="the bound is 1"):
        sender.send_nowait(2)


async def test_leaving_an_async_with_block_finishes_or_cancels_and_waits() -> None:
    sender, receiver = channel()
    reading = asyncio.ensure_future(anext(aiter(receiver)))
    async with sender:
        await sender.send(1)
        assert await soon(reading) == 1
    with pytest.raises(ClosedError):
        await receiver.receive()
    sender, receiver = channel()
    with pytest.raises(RuntimeError):
        async with sender:
            raise RuntimeError
    with receiver, pytest.raises(Aborted):
        await receiver.receive()


async def test_a_handle_that_another_thread_drops_ends_its_channel() -> None:
    sender, receiver = channel()
    waiting = asyncio.ensure_future(receiver.receive())
    await asyncio.sleep(0)
    dropped = [sender]
    del sender
    await asyncio.to_thread(dropped.clear)
    gc.collect()
    with pytest.raises(Aborted):
        await soon(waiting)
