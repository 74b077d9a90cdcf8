"""Every wait of the API may be cancelled: no message is lost, none comes twice, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from memory_link import join, turns

from mainstem.aqueduct import Limits, Message, channel, oneshot
from mainstem.errors import ClosedError, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mainstem.aqueduct import Connection, Receiver, Sender

SEEDS = int(os.environ.get("MAINSTEM_CANCELLATIONS", "300"))
MESSAGES = 25


async def interrupted(step: Awaitable[Any], after: int) -> tuple[bool, Any]:
    """Run a call, and cancel it after so many turns of the loop if it is not done; whether it was, and its result."""
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


class Run:
    """One seeded run: numbers go through a channel while every call on both sides is cancelled again and again."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.perhaps: set[bytes] = set()
        self.received: list[bytes] = []

    def patience(self) -> int:
        return self.random.choice((0, 0, 1, 1, 2, 3, 5, 8, 13))

    async def insist(self, make: Any) -> Any:
        """Repeat a call, which is cancelled now and then, until it is done."""
        while True:
            done, result = await interrupted(make(), self.patience())
            if done:
                return result

    async def produce(self, sender: Sender[bytes]) -> None:
        for number in range(MESSAGES):
            message = b"%d" % number
            if self.random.random() < 0.2:
                # Whether one that is cancelled has gone out cannot be known, but it may come once only.
                done, _ = await interrupted(sender.send_acknowledged(message), self.patience())
                if not done:
                    self.perhaps.add(message)
            else:
                await self.insist(lambda message=message: sender.send(message))
        sender.finish()
        await self.insist(sender.wait_closed)

    async def consume(self, receiver: Receiver[bytes]) -> None:
        while True:
            try:
                if self.random.random() < 0.5:
                    self.received.append(await self.insist(receiver.receive))
                else:
                    await interrupted(self.iterate(receiver, self.random.randrange(1, 6)), self.patience())
            except ClosedError:
                return
            if receiver.is_networked and self.random.random() < 0.05:
                gc.collect()

    async def iterate(self, receiver: Receiver[bytes], count: int) -> None:
        async for message in receiver:
            self.received.append(message)
            count -= 1
            if not count:
                return


@pytest.mark.parametrize("block", range(10))
async def test_cancelled_calls_lose_nothing_and_repeat_nothing(block: int) -> None:
    for seed in range(block, SEEDS, 10):
        run = Run(seed)
        limits = Limits(receive_messages=run.random.choice((1, 4, 4096)), send_messages=8)
        client, server = join(limits)
        await run.insist(client.headers)
        await run.insist(server.headers)
        to_server = run.random.random() < 0.5
        sender, receiver = channel(bound=run.random.choice((1, 3, 1024)))
        respond, response = oneshot()
        expected = [b"%d" % number for number in range(MESSAGES)]
        if run.random.random() < 0.5:
            # Queued while both halves are here.
            await run.insist(lambda sender=sender: sender.send(b"before"))
            expected.insert(0, b"before")
        parts = [receiver if to_server else sender, respond]
        await run.insist(lambda parts=parts, entry=client.sender: entry.send(Message(b"", parts)))
        message = await run.insist(server.receiver.receive)
        far, far_respond = message.attachments
        ends = (sender, far) if to_server else (far, receiver)
        async with asyncio.timeout(30):
            await asyncio.gather(run.produce(ends[0]), run.consume(ends[1]))
            await run.insist(lambda respond=far_respond: respond.send(b"done"))
            assert await run.insist(response.receive) == b"done"
        assert [each for each in run.received if each not in run.perhaps] == [
            each for each in expected if each not in run.perhaps
        ], f"seed {seed}"
        assert len(set(run.received)) == len(run.received), f"seed {seed}: a message came twice"
        del sender, receiver, respond, response, parts, message, far, far_respond, ends
        await leave(run, client, server)


async def leave(run: Run, client: Connection, server: Connection) -> None:
    """End both connections; nothing of the run is left."""
    client.sender.finish()
    await run.insist(lambda: client.wind_down(5))
    client.close()
    await run.insist(client.wait_closed)
    await turns(5)
    gc.collect()
    await turns(5)
    for connection in (client, server):
        assert connection.engine.live_halves == 0
        assert not connection._session.outcomes
        assert not connection._session.senders
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_send_that_is_cancelled_while_it_gives_way_has_sent_nothing() -> None:
    sender, receiver = channel(bound=10_000)
    sent = 0
    cancelled = 0
    for number in range(1000):
        done, _ = await interrupted(sender.send(b"%d" % number), 1)
        sent += done
        cancelled += not done
    assert cancelled
    messages = 0
    while receiver.receive_nowait() is not None:
        messages += 1
    assert messages == sent


async def test_a_oneshot_whose_acknowledgement_is_no_longer_waited_for_still_arrives() -> None:
    client, server = join()
    await client.headers()
    respond, response = oneshot()
    await client.sender.send(Message(b"", [response]))
    done, _ = await interrupted(respond.send_acknowledged(b"tide"), 1)
    assert not done
    del respond
    gc.collect()
    message = await server.receiver.receive()
    assert await asyncio.wait_for(message.attachments[0].receive(), 5) == b"tide"
    await client.close()


async def test_a_finished_sender_says_so_when_it_is_to_send_with_an_acknowledgement() -> None:
    client, _ = join()
    await client.headers()
    client.sender.finish()
    with pytest.raises(ClosedError):
        await client.sender.send_acknowledged(b"tide")
    await client.close()


async def test_whatever_waits_learns_of_a_lost_connection_by_one_class() -> None:
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
    client._session.fail(ConnectionLost("the path is gone"))
    outcomes = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 5)
    assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * len(waits)
    for step in (sender.send(b""), sender.send_acknowledged(b""), far.receive(), client.sender.send(b"")):
        with pytest.raises(ConnectionLost):
            await step
    del message
    await client.close()


async def test_a_time_out_of_the_choice_of_a_serialiser_is_mainstems_own() -> None:
    from mainstem.errors import TimedOut

    client, _ = join()
    session = client._session
    with pytest.raises(TimedOut):
        await session.wait_for(asyncio.get_running_loop().create_future(), 0.01)
    await client.close()
