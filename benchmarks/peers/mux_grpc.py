"""gRPC's aio: stream-unary calls for streams, unary calls for requests; bytes without a serializer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc.aio
from mux_common import CHECK_EVERY, CHUNK, SMALL, Options, main, report, requests, until_stopped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def swallow(chunks: AsyncIterator[bytes], _: Any) -> bytes:
    count = 0
    async for chunk in chunks:
        count += len(chunk)
    return count.to_bytes(8, "big")


async def echo(data: bytes, _: Any) -> bytes:
    return data


async def server(options: Options) -> None:
    found = grpc.aio.server()
    handlers = {
        "swallow": grpc.stream_unary_rpc_method_handler(swallow),
        "echo": grpc.unary_unary_rpc_method_handler(echo),
    }
    found.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", handlers),))
    found.add_insecure_port(f"127.0.0.1:{options.port}")
    await found.start()
    await until_stopped()
    await found.stop(0)


async def client(options: Options) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{options.port}") as channel:
        if options.mode == "request":
            await requests(options, channel.unary_unary("/bench/echo"))
            return
        method = channel.stream_unary("/bench/swallow")
        begun = time.monotonic()
        end = begun + options.seconds

        async def one() -> int:
            call = method()
            while time.monotonic() < end:
                if options.mode == "bulk":
                    await call.write(CHUNK)
                    continue
                for _ in range(CHECK_EVERY):
                    await call.write(SMALL)
            await call.done_writing()
            return int.from_bytes(await call, "big")

        total = sum(await asyncio.gather(*(one() for _ in range(options.streams))))
        report(rate=total / (time.monotonic() - begun) / (64 if options.mode == "small" else 1e6))


if __name__ == "__main__":
    main(server, client)
