"""Many streams over one connection: bymux over TCP, and channels of Aqueduct over QUIC, both ends in one process."""

from __future__ import annotations

import asyncio
import gc
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.curve import Curve, memory_mb

from mainstem import aqueduct, bymux

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MESSAGES = 20_000  # round trips of a point, over all streams together
MESSAGE = bytes(64)
MOST = 20_000  # streams that a peer may have


async def round_trips(streams: list[Any], exchange: Callable[[Any], Awaitable[object]]) -> float:
    """Microseconds of processor time for a message there and back, one after the other on every stream."""
    rounds = max(MESSAGES // len(streams), 1)
    start = time.process_time()
    for _ in range(rounds):
        for first in range(0, len(streams), 100):
            await asyncio.gather(*map(exchange, streams[first : first + 100]))
    return (time.process_time() - start) * 1e6 / (rounds * len(streams))


async def bymux_streams(count: int) -> dict[str, float]:
    async def echo(stream: bymux.aio.Stream) -> None:
        while data := await stream.read():
            stream.write(data)

    async def exchange(stream: bymux.aio.Stream) -> None:
        stream.write(MESSAGE)
        await stream.readexactly(len(MESSAGE))

    settings = bymux.Settings(peer_streams=MOST)
    async with bymux.aio.serve(echo, "127.0.0.1", 0, settings=settings) as listener:
        host, port = listener.address[:2]
        async with bymux.aio.connect(host, port, settings=settings) as connection:
            gc.collect()
            before = memory_mb()
            streams = [await connection.open_stream() for _ in range(count)]
            cost = await round_trips(streams, exchange)
            gc.collect()
            return {"a message there and back [us]": cost, "memory": max(memory_mb() - before, 0.1)}


async def aqueduct_channels(count: int) -> dict[str, float]:
    async def echo(connection: aqueduct.aio.Connection) -> None:
        async def serve(receiver: Any, sender: Any) -> None:
            async for message in receiver:
                await sender.send(message)

        async with asyncio.TaskGroup() as group:
            async for message in connection.receiver:
                group.create_task(serve(*message.attachments))

    async def exchange(ends: tuple[Any, Any]) -> None:
        sender, receiver = ends
        await sender.send(MESSAGE)
        await receiver.receive()

    with tempfile.TemporaryDirectory(prefix="mainstem-growth-") as name:
        files = aqueduct.make_certificates(Path(name))
        shared: dict[str, Any] = {"max_channels": 4 * MOST, "max_open_streams": 8 * MOST, "max_streams": 2 * MOST}
        async with (
            aqueduct.aio.serve(echo, certificate=files.certificate, key=files.key, **shared) as server,
            aqueduct.aio.connect("localhost", server.port, ca=files.ca, **shared) as connection,
        ):
            gc.collect()
            before = memory_mb()
            ends = []
            for _ in range(count):
                (there, far), (back, here) = aqueduct.aio.channel(), aqueduct.aio.channel()
                await connection.sender.send(aqueduct.Message(b"", [far, back]))
                ends.append((there, here))
            cost = await round_trips(ends, exchange)
            gc.collect()
            return {"a message there and back [us]": cost, "memory": max(memory_mb() - before, 0.1)}


def running(measure: Callable[[int], Any]) -> Callable[[int], dict[str, float]]:
    def run(count: int) -> dict[str, float]:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        result: dict[str, float] = asyncio.run(measure(count))
        return result

    return run


CURVES = (
    Curve(
        name="streams over bymux",
        over="streams on one connection",
        cost="processor time",
        points=(1, 10, 100, 1_000, 10_000),
        quick=(1, 100),
        measure=running(bymux_streams),
        why="A single stream pays for a system call per message; many streams share one. No operation walks all "
        "streams. From 1,000 streams on, the cost bends upward: Python's garbage collector walks more objects, and"
        " the caches hold fewer of them.",
    ),
    Curve(
        name="channels over Aqueduct",
        over="pairs of channels on one connection",
        cost="processor time",
        points=(1, 10, 100, 1_000, 10_000),
        quick=(1, 100),
        measure=running(aqueduct_channels),
        why="A single channel pays for a packet per message; many channels share packets. From 1,000 channels on, the "
        "cost bends upward, for the same reasons as with bymux.",
    ),
)
