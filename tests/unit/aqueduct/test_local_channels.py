"""Channels within one process: the same handles, without a connection."""

from __future__ import annotations

import asyncio
import gc

import pytest
from tests.support.waiting import soon

from mainstem.aqueduct import Mode
from mainstem.aqueduct.aio import Receiver, Sender, channel, oneshot
from mainstem.errors import Aborted, BackPressured, ClosedError, Delivery, NoReceivers, Timeout


async def test_messages_arrive_in_order_until_the_sender_finishes() -> None:
    sender, receiver = channel()
    for number in range(3):
        await sender.send(number)
    sender.finish()
    assert [message async for message in receiver] == [0, 1, 2]
    with pytest.raises(ClosedError):
        await receiver.receive()
    with pytest.raises(ClosedError):
        await sender.send(4)


async def test_sending_waits_while_the_channel_is_full() -> None:
    sender, receiver = channel(max_messages=1)
    await sender.send(1)
    with pytest.raises(BackPressured):
        sender.try_send(2)
    waiting = asyncio.ensure_future(sender.send(2))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await receiver.receive() == 1
    await waiting
    assert await receiver.receive() == 2


async def test_a_waiting_receiver_is_woken() -> None:
    sender, receiver = channel()
    waiting = asyncio.ensure_future(receiver.receive())
    await asyncio.sleep(0)
    sender.try_send("x")
    assert await waiting == "x"


async def test_cancel_drops_unreceived_messages() -> None:
    sender, receiver = channel()
    await sender.send(1)
    sender.abort()
    with pytest.raises(Aborted):
        await receiver.receive()
    with pytest.raises(Aborted):
        await sender.send(2)


async def test_closing_a_receiver_notifies_the_sender() -> None:
    sender, receiver = channel()
    receiver.abort()
    with pytest.raises(NoReceivers):
        await sender.send(1)
    with pytest.raises(ClosedError):
        await receiver.receive()


async def test_dropping_a_handle_ends_its_channel() -> None:
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


async def test_a_oneshot_finishes_with_its_message() -> None:
    sender, receiver = oneshot()
    await sender.send("only")
    assert await receiver == "only"
    with pytest.raises(ClosedError):
        await sender.send("more")
    with pytest.raises(ClosedError):
        await receiver


async def test_closed_and_error_show_how_a_channel_ended() -> None:
    sender, receiver = channel()
    assert (sender.closed, receiver.closed, sender.error, receiver.error) == (False, False, None, None)
    await sender.send(1)
    sender.finish()
    assert (sender.closed, receiver.closed) == (True, False), "a message waits to be received"
    await receiver.receive()
    assert (sender.closed, receiver.closed, sender.error, receiver.error) == (True, True, None, None)
    sender, receiver = channel()
    sender.abort()
    assert isinstance(sender.error, Aborted)
    assert isinstance(receiver.error, Aborted)
    sender, receiver = channel()
    await receiver.close()
    assert isinstance(sender.error, NoReceivers)
    assert receiver.closed
    assert receiver.error is None


async def test_a_timed_out_call_has_no_effect() -> None:
    sender, receiver = channel(max_messages=1)
    with pytest.raises(Timeout, match=r"receiving a message: timed out after 0\.01 s"):
        await receiver.receive(timeout=0.01)
    await sender.send(1, timeout=0)
    for send in (sender.send, sender.send_acknowledged):
        with pytest.raises(Timeout) as caught:
            await send(2, timeout=0.01)
        assert (caught.value.delivery, caught.value.may_retry) == (Delivery.NONE, True)
    with pytest.raises(Timeout):
        await sender.close(timeout=0.01)
    assert await receiver.receive(timeout=0) == 1
    with pytest.raises(ClosedError):
        await receiver.receive(timeout=0)


async def test_local_channels_pass_handles_unchanged() -> None:
    outer, outer_receiver = channel()
    inner: tuple[Sender[int], Receiver[int]] = channel()
    await outer.send(inner[1])
    await inner[0].send(5)
    assert await (await outer_receiver.receive()).receive() == 5


async def test_an_acknowledged_send_returns_once_the_message_is_received() -> None:
    sender, receiver = channel(max_messages=1)
    await sender.send_acknowledged("first")
    waiting = asyncio.ensure_future(sender.send_acknowledged("second"))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await receiver.receive() == "first"
    await soon(waiting)
    assert receiver.try_receive() == "second"


async def test_unreliable_messages_above_the_limit_replace_the_oldest() -> None:
    sender, receiver = channel(mode=Mode.UNRELIABLE, max_messages=2)
    for number in range(5):
        await sender.send(number)
    sender.finish()
    assert [message async for message in receiver] == [3, 4]


@pytest.mark.parametrize("ending", ["finished", "finished unread", "cancelled", "closed"])
async def test_waiting_for_the_end_of_a_channel(ending: str) -> None:
    sender, receiver = channel()
    await sender.send("tide")
    waiting = asyncio.ensure_future(sender.wait_closed())
    await asyncio.sleep(0)
    assert not waiting.done()
    if ending == "cancelled":
        sender.abort()
        sender.abort()
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
        assert not waiting.done()  # a message is still unread
        if ending == "finished":
            assert await receiver.receive() == "tide"
        else:
            await receiver.close()
        await soon(waiting)


async def test_handles_have_a_readable_repr() -> None:
    sender, receiver = channel(mode=Mode.UNORDERED)
    assert repr(sender) == "<Sender unordered, local, open>"
    assert repr(receiver) == "<Receiver unordered, local, open>"
    assert repr(oneshot()[0]) == "<Sender oneshot unordered, local, closed>"
    assert (sender.mode, sender.is_networked, receiver.is_networked) == (Mode.UNORDERED, False, False)
    sender.configure(mode=Mode.ORDERED, max_messages=1)
    assert sender.mode is Mode.ORDERED
    sender.try_send(1)
    with pytest.raises(BackPressured, match="the limit is 1"):
        sender.try_send(2)


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
    async with receiver:
        with pytest.raises(Aborted):
            await receiver.receive()


async def test_dropping_a_handle_in_another_thread_ends_its_channel() -> None:
    sender, receiver = channel()
    waiting = asyncio.ensure_future(receiver.receive())
    await asyncio.sleep(0)
    dropped = [sender]
    del sender
    await asyncio.to_thread(dropped.clear)
    gc.collect()
    with pytest.raises(Aborted):
        await soon(waiting)
