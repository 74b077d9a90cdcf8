"""rsocket over TCP: request-stream for streams (the server sends, the client counts), request-response for requests."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from typing import Any

from mux_common import CHUNK, SMALL, Options, main, report, requests, until_stopped
from reactivestreams.subscriber import DefaultSubscriber
from rsocket.helpers import create_future, single_transport_provider
from rsocket.payload import Payload
from rsocket.request_handler import BaseRequestHandler
from rsocket.rsocket_client import RSocketClient
from rsocket.rsocket_server import RSocketServer
from rsocket.streams.stream_from_generator import StreamFromGenerator
from rsocket.transports.tcp import TransportTCP

CREDIT = 256  # items requested at a time, and again when half of them have arrived


class Handler(BaseRequestHandler):
    """Echoes requests, and streams items endlessly."""

    async def request_response(self, payload: Payload) -> Any:
        return create_future(Payload(payload.data))

    async def request_stream(self, payload: Payload) -> Any:
        item = Payload(CHUNK if payload.data == b"bulk" else SMALL)

        def items() -> Any:
            while True:
                yield item, False

        return StreamFromGenerator(items)


class Counter(DefaultSubscriber):
    """Counts bytes and renews the credit."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.asked = CREDIT

    def on_subscribe(self, subscription: Any) -> None:
        self.subscription = subscription

    def on_next(self, value: Payload, is_complete: bool = False) -> None:
        self.count += len(value.data)
        self.asked -= 1
        if self.asked == CREDIT // 2:
            self.asked += CREDIT
            self.subscription.request(CREDIT)


async def server(options: Options) -> None:
    logging.disable()

    def serve(*streams: Any) -> None:
        RSocketServer(TransportTCP(*streams), handler_factory=Handler)

    async with await asyncio.start_server(serve, "127.0.0.1", options.port):
        await until_stopped()


async def client(options: Options) -> None:
    logging.disable()
    transport = TransportTCP(*await asyncio.open_connection("127.0.0.1", options.port))
    async with RSocketClient(single_transport_provider(transport), keep_alive_period=timedelta(seconds=20)) as rsocket:
        if options.mode == "request":

            async def call(data: bytes) -> bytes:
                return bytes((await rsocket.request_response(Payload(data))).data)

            await requests(options, call)
            return
        counters = [Counter() for _ in range(options.streams)]
        begun = time.monotonic()
        for counter in counters:
            kind = b"bulk" if options.mode == "bulk" else b"small"
            rsocket.request_stream(Payload(kind)).initial_request_n(CREDIT).subscribe(counter)
        await asyncio.sleep(options.seconds)
        total = sum(counter.count for counter in counters)
        report(rate=total / (time.monotonic() - begun) / (64 if options.mode == "small" else 1e6))
        import os

        os._exit(0)  # its streams never end by themselves


if __name__ == "__main__":
    main(server, client)
