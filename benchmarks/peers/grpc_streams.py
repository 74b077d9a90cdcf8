"""gRPC's asyncio streaming over one HTTP/2 connection, without TLS: bytes in, bytes out."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc
from aqueduct_common import Options, rate, ready, run, time_rounds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def _count(messages: AsyncIterator[bytes], _: Any) -> bytes:
    count = 0
    async for _message in messages:
        count += 1
    return b"%d" % count


async def _echo(request: bytes, _: Any) -> bytes:
    return request


async def _talk(messages: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
    async for message in messages:
        yield message


async def serve(options: Options) -> None:
    server = grpc.aio.server()
    handlers = {
        "Count": grpc.stream_unary_rpc_method_handler(_count),
        "Echo": grpc.unary_unary_rpc_method_handler(_echo),
        "Talk": grpc.stream_stream_rpc_method_handler(_talk),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", handlers),))
    server.add_insecure_port(f"127.0.0.1:{options.port}")
    await server.start()
    ready()
    await asyncio.get_running_loop().create_future()


async def ask(options: Options) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{options.port}") as channel:
        await channel.channel_ready()
        if options.what == "ordered":
            await _stream(channel, options)
        elif options.what == "open":
            call = channel.unary_unary("/bench/Echo")

            async def once() -> None:
                await call(b"echo")

            await time_rounds(options.rounds, once)
        else:
            talk = channel.stream_stream("/bench/Talk")()

            async def again() -> None:
                await talk.write(b"echo")
                await talk.read()

            await time_rounds(options.rounds, again)
            await talk.done_writing()


async def _stream(channel: Any, options: Options) -> None:
    call = channel.stream_unary("/bench/Count")()
    message = bytes(options.size)
    sent = 0
    started = time.perf_counter()
    while time.perf_counter() - started < options.seconds:
        for _ in range(16):
            await call.write(message)
        sent += 16
    await call.done_writing()
    await call
    rate(sent, options.size, started)


if __name__ == "__main__":
    run(serve, ask)
