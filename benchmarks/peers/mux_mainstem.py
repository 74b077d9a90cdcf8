"""Mainstem: bymux for streams, Jmux for requests."""

from __future__ import annotations

import asyncio
import time

from mux_common import CHECK_EVERY, CHUNK, SMALL, Options, main, percentiles, report, requests, until_stopped

from mainstem import bymux, jmux


async def count_bytes(stream: bymux.aio.Stream) -> None:
    count = 0
    while data := await stream.read():
        count += len(data)
    stream.write(count.to_bytes(8, "big"))
    await stream.close()


async def count_messages(stream: bymux.aio.Stream) -> None:
    count = 0
    try:
        while True:
            count += len(await stream.readexactly(64))
    except asyncio.IncompleteReadError:
        stream.write(count.to_bytes(8, "big"))
        await stream.close()


async def by_first_byte(stream: bymux.aio.Stream) -> None:
    """Echo messages of 64 bytes, consume bulk data, or do nothing, depending on the stream's first byte."""
    kind = await stream.readexactly(1)
    if kind == b"e":
        try:
            while True:
                stream.write(await stream.readexactly(64))
        except asyncio.IncompleteReadError:
            pass
    elif kind == b"b":
        while await stream.read():
            pass
    else:
        await stream.read()
    await stream.close()


async def answer_request(session: jmux.aio.ServerSession) -> None:
    session.write(await session.read(-1))
    session.finish()


async def server(options: Options) -> None:
    if options.mode == "request":
        async with jmux.aio.serve(answer_request, "127.0.0.1", options.port):
            await until_stopped()
        return
    handler = {"bulk": count_bytes, "small": count_messages, "flushed": count_messages}.get(options.mode, by_first_byte)
    async with bymux.aio.serve(handler, "127.0.0.1", options.port, settings=bymux.Settings(peer_streams=2000)):
        await until_stopped()


async def client(options: Options) -> None:
    if options.mode == "request":
        async with jmux.aio.connect("127.0.0.1", options.port) as jmux_client:
            await requests(options, jmux_client.request)
        return
    connection = await bymux.aio.connect("127.0.0.1", options.port)
    if options.mode in ("mixed", "idle"):
        await (mixed if options.mode == "mixed" else idle)(connection, options)
        connection.abort()
        return
    begun = time.monotonic()
    end = begun + options.seconds

    async def one() -> int:
        stream = await connection.open_stream()
        while time.monotonic() < end:
            if options.mode == "bulk":
                stream.write(CHUNK)
                await stream.drain()
                continue
            wait = stream.flush if options.mode == "flushed" else stream.drain
            for _ in range(CHECK_EVERY):
                stream.write(SMALL)
                await wait()
        stream.finish()
        return int.from_bytes(await stream.readexactly(8), "big")

    total = sum(await asyncio.gather(*(one() for _ in range(options.streams))))
    report(rate=total / (time.monotonic() - begun) / (1e6 if options.mode == "bulk" else 64))
    connection.abort()


async def round_trips(connection: bymux.aio.Connection, seconds: float) -> dict[str, float]:
    stream = await connection.open_stream()
    stream.write(b"e")
    times = []
    end = time.monotonic_ns() + int(seconds * 1e9)
    while (begun := time.monotonic_ns()) < end:
        stream.write(SMALL)
        await stream.readexactly(64)
        times.append(time.monotonic_ns() - begun)
    return percentiles(times[len(times) // 10 :]) | {"rate": len(times) / seconds}


async def mixed(connection: bymux.aio.Connection, options: Options) -> None:
    bulk = await connection.open_stream()
    bulk.write(b"b")
    moved = 0

    async def saturate() -> None:
        nonlocal moved
        while True:
            bulk.write(CHUNK)
            moved += len(CHUNK)
            await bulk.drain()

    saturating = asyncio.ensure_future(saturate())
    await asyncio.sleep(0.2)
    moved = 0
    found = await round_trips(connection, options.seconds)
    saturating.cancel()
    report(**found, bulk=moved / 1e6 / options.seconds)


async def idle(connection: bymux.aio.Connection, options: Options) -> None:
    for _ in range(options.streams):
        (await connection.open_stream()).write(b"i")
    await connection.ping()
    report(**await round_trips(connection, options.seconds))


if __name__ == "__main__":
    main(server, client)
