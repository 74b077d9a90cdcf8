"""Mainstem's Aqueduct: channels over QUIC."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from pathlib import Path

from aqueduct_common import PACKET, Options, rate, ready, report, resident_bytes, run, time_rounds

from mainstem import aqueduct
from mainstem.aqueduct import Message, Mode
from mainstem.aqueduct.aio import Receiver, Sender, channel, oneshot
from mainstem.errors import MainstemError, Timeout

MODES = {"ordered": Mode.ORDERED, "unordered": Mode.UNORDERED, "datagrams": Mode.UNRELIABLE}


async def serve(options: Options) -> None:
    tasks = set()
    counts: dict[bytes, int] = {}

    async def count(name: bytes, receiver: Receiver[bytes]) -> None:
        counts[name] = 0
        # The client leaves as soon as it has its report, even if messages are still in flight.
        with contextlib.suppress(MainstemError):
            async for _ in receiver:
                counts[name] += 1

    async def echo(receiver: Receiver[bytes], answers: Sender[bytes]) -> None:
        with contextlib.suppress(MainstemError):
            async for message in receiver:
                await answers.send(message)

    async def handler(connection: aqueduct.aio.Connection) -> None:
        idle = []
        async for message in connection.receiver:
            if message.payload == b"echo":
                await message.attachments[0].send(b"x")
            elif message.payload == b"count?":
                await message.attachments[0].send(b"%d" % counts.get(b"count", 0))
            elif message.payload == b"idle":
                idle.extend(message.attachments)
            else:
                work = (
                    echo(*message.attachments)
                    if message.payload == b"talk"
                    else count(b"count", message.attachments[0])
                )
                task = asyncio.ensure_future(work)
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    server = await aqueduct.aio.serve(
        handler,
        port=options.port,
        certificate=Path(options.directory) / "cert.pem",
        key=Path(options.directory) / "key.pem",
        backend=options.backend,
        max_datagram_size=PACKET,
    )
    async with server:
        ready()
        await server.wait()


async def ask(options: Options) -> None:
    connecting = aqueduct.aio.connect(
        "localhost",
        options.port,
        ca=Path(options.directory) / "ca.pem",
        backend=options.backend,
        max_datagram_size=PACKET,
    )
    async with connecting as connection:
        idle = []
        gc.collect()
        before = resident_bytes()
        for _ in range(options.live):
            sender, receiver = channel()
            await connection.sender.send(Message(b"idle", [receiver]))
            await sender.send(b"")
            idle.append(sender)
        for _ in range(options.unread):
            sender, receiver = channel(max_bytes=4 << 20)
            await connection.sender.send(Message(b"idle", [receiver]))
            idle.append(sender)
        await asyncio.gather(*map(_fill, idle[options.live :]))
        if options.live:
            # By the time the response arrives, the others have their control streams.
            await _echo(connection)
            await asyncio.sleep(0.5)
        if options.what == "memory":
            report(bytes=(resident_bytes() - before) / max(1, options.live))
        elif options.what in MODES:
            await _stream(connection, options)
        elif options.what == "open":
            await time_rounds(options.rounds, lambda: _echo(connection))
        else:
            sender, receiver = channel()
            answers, answered = channel()
            await connection.sender.send(Message(b"talk", [receiver, answers]))
            await time_rounds(options.rounds, lambda: _again(sender, answered))
        if options.unread:
            # A regular close would wait for the messages that nobody reads.
            connection.abort()


async def _stream(connection: aqueduct.aio.Connection, options: Options) -> None:
    sender, receiver = channel(mode=MODES[options.what], max_messages=16_384, max_bytes=4 << 20)
    await connection.sender.send(Message(b"count", [receiver]))
    message = bytes(options.size)
    sent = 0
    started = time.perf_counter()
    while time.perf_counter() - started < options.seconds:
        for _ in range(64):
            await sender.send(message)
        sent += 64
        if options.what == "datagrams":
            # An unreliable sender never waits, so yield to the loop.
            await asyncio.sleep(0)
    if options.what == "datagrams":
        ended = time.perf_counter()
        answer_to, count = oneshot()
        await asyncio.sleep(0.3)
        await connection.sender.send(Message(b"count?", [answer_to]))
        received = int(await count)
        report(messages=received / (ended - started), lost=1 - received / sent)
    else:
        sender.finish()
        await sender.wait_closed()
        rate(sent, options.size, started)


async def _fill(sender: Sender[bytes]) -> None:
    """Send until the channel, which nobody reads, accepts no more messages."""
    with contextlib.suppress(Timeout):
        while True:
            await sender.send(bytes(64 << 10), timeout=4)


async def _echo(connection: aqueduct.aio.Connection) -> None:
    answer_to, reply = oneshot()
    await connection.sender.send(Message(b"echo", [answer_to]))
    await reply


async def _again(sender: Sender[bytes], answered: Receiver[bytes]) -> None:
    await sender.send(b"x")
    await answered.receive()


if __name__ == "__main__":
    run(serve, ask)
