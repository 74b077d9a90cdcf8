"""Channels that nobody reads, beside one that is being read."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import soon, until

from mainstem import aqueduct
from mainstem.aqueduct import Message
from mainstem.aqueduct.aio import Connection, channel, oneshot
from mainstem.errors import BackPressured, MainstemError, Timeout

if TYPE_CHECKING:
    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system

UNREAD = 8
PAIRS = [(client, server) for client in ("qh3", "aioquic") for server in ("qh3", "aioquic")]


@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_a_receiver_continues_while_unread_channels_are_paused(
    certificates: CertificateFiles, client: str, server: str
) -> None:
    kept: list[Any] = []
    engines = []

    async def handler(connection: Connection) -> None:
        engines.append(connection._protocol.engine)
        async for message in connection.receiver:
            if message.payload == b"unread":
                kept.extend(message.attachments)
                continue
            wanted, answers = message.attachments
            async for question in wanted:
                await answers.send(question)

    limits: Any = {"max_buffered_bytes": 1 << 20, "receive_bytes": 64 << 10}
    serving = await aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, backend=server, **limits
    )
    async with (
        serving,
        aqueduct.aio.connect("localhost", serving.port, ca=certificates.ca, backend=client) as connection,
    ):
        questions, wanted = channel()
        answers, answered = channel()
        fillers = []
        for _ in range(UNREAD):
            sender, receiver = channel(max_bytes=150_000)
            await connection.sender.send(Message(b"unread", [receiver]))
            fillers.append(sender)
        await connection.sender.send(Message(b"echo", [wanted, answers]))
        await questions.send(b"first")
        assert await soon(answered.receive()) == b"first"
        for sender in fillers:
            with contextlib.suppress(BackPressured):
                while True:
                    sender.try_send(bytes(1000))
        if server == "qh3":
            # qh3 cannot pause individual streams, so the buffers grow this far.
            await until(lambda: engines[0].buffer.size > 1 << 20, progress=lambda: engines[0].buffer.size)
        for number in range(50):
            await soon(questions.send(b"%d" % number))
            assert await soon(answered.receive()) == b"%d" % number
        # An orderly close would wait for messages that nobody reads.
        connection.abort()
        await connection.close()


async def test_a_oneshot_gets_a_response_despite_an_unread_flood(
    certificates: CertificateFiles,
) -> None:
    kept: list[Any] = []

    async def handler(connection: Connection) -> None:
        async for message in connection.receiver:
            if message.payload == b"unread":
                kept.extend(message.attachments)
            else:
                await message.attachments[0].send(b"answer")

    serving = await aqueduct.aio.serve(handler, certificate=certificates.certificate, key=certificates.key)
    async with serving, aqueduct.aio.connect("localhost", serving.port, ca=certificates.ca) as connection:
        sender, receiver = channel()
        await connection.sender.send(Message(b"unread", [receiver]))

        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await sender.send(bytes(10_000))
                sent += 1

        task = asyncio.ensure_future(flood())
        before = 0
        while sent == 0 or sent != before:
            before = sent
            await asyncio.sleep(0.3)  # long enough to show that a paused flood has stopped
        for _ in range(20):
            answer_to, answer = oneshot()
            await soon(connection.sender.send(Message(b"ask", [answer_to])))
            assert await soon(answer) == b"answer"
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        connection.abort()
        await connection.close()


@pytest.mark.long
@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_bulk_transfer_continues_beside_unread_channels(certificates: CertificateFiles, backend: str) -> None:
    kept: list[Any] = []
    engines = []
    piece = bytes(64 << 10)
    count = 0

    async def handler(connection: Connection) -> None:
        nonlocal count
        engines.append(connection._protocol.engine)
        async for message in connection.receiver:
            [receiver] = message.attachments
            if message.payload == b"bulk":
                async for payload in receiver:
                    count += len(payload)
                continue
            kept.append(receiver)
            if message.payload == b"read at first":
                kept.append(asyncio.ensure_future(read_at_first(receiver)))

    async def read_at_first(receiver: Any) -> None:
        # On a slow machine, the connection may end first.
        with contextlib.suppress(MainstemError):
            for _ in range(20):
                await receiver.receive()

    async def fill(number: int) -> None:
        sender, receiver = channel(max_bytes=4 << 20)
        senders.append(sender)
        await connection.sender.send(Message(b"read at first" if number % 2 else b"unread", [receiver]))
        with contextlib.suppress(Timeout):
            while True:
                await sender.send(piece, timeout=1.0)

    serving = await aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, backend=backend
    )
    async with (
        serving,
        aqueduct.aio.connect("localhost", serving.port, ca=certificates.ca, backend=backend) as connection,
    ):
        senders: list[Any] = []
        await asyncio.gather(*map(fill, range(20)))
        sender, receiver = channel()
        await connection.sender.send(Message(b"bulk", [receiver]))
        for _ in range(100):
            await soon(sender.send(piece))
        sender.finish()
        await soon(sender.wait_closed())
        assert count == 100 * len(piece)
        assert not engines[0].buffer.paused
        assert engines[0].buffer.size < engines[0].context.limits.max_buffered_bytes
        connection.abort()
        await connection.close()
