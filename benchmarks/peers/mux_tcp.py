"""Raw asyncio streams over TCP, with one connection per stream: the baseline for the cost of a multiplexer."""

from __future__ import annotations

import asyncio
import time

from mux_common import CHECK_EVERY, CHUNK, SMALL, Options, main, report, requests, until_stopped


async def server(options: Options) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count = 0
        if options.mode == "request":
            try:
                while True:
                    writer.write(await reader.readexactly(64))
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
        elif options.mode == "small":
            try:
                while True:
                    count += len(await reader.readexactly(64))
            except asyncio.IncompleteReadError:
                pass
        else:
            while data := await reader.read(256 * 1024):
                count += len(data)
        writer.write(count.to_bytes(8, "big"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", options.port):
        await until_stopped()


async def client(options: Options) -> None:
    if options.mode == "request":
        pairs = asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()
        for _ in range(options.streams):
            pairs.put_nowait(await asyncio.open_connection("127.0.0.1", options.port))

        async def call(data: bytes) -> bytes:
            pair = pairs.get_nowait()
            reader, writer = pair
            writer.write(data)
            await writer.drain()
            response = await reader.readexactly(64)
            pairs.put_nowait(pair)
            return response

        await requests(options, call)
        return
    begun = time.monotonic()
    end = begun + options.seconds

    async def one() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", options.port)
        while time.monotonic() < end:
            if options.mode == "bulk":
                writer.write(CHUNK)
                await writer.drain()
                continue
            for _ in range(CHECK_EVERY):
                writer.write(SMALL)
                await writer.drain()
        writer.write_eof()
        count = int.from_bytes(await reader.readexactly(8), "big")
        writer.close()
        return count

    total = sum(await asyncio.gather(*(one() for _ in range(options.streams))))
    report(rate=total / (time.monotonic() - begun) / (64 if options.mode == "small" else 1e6))


if __name__ == "__main__":
    main(server, client)
