"""h2 under an asyncio protocol of our own, with large frames and windows: its fastest configuration."""

from __future__ import annotations

import asyncio
import time
from collections import deque

import h2.config
import h2.connection
import h2.events
import h2.settings
from mux_common import CHECK_EVERY, CHUNK, SMALL, Options, main, report, requests, until_stopped

WINDOW = 1024 * 1024
FRAME = 64 * 1024
REQUEST = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "x")]
RESPONSE = [(":status", "200")]


class Peer(asyncio.Protocol):
    """One connection. ``received`` is called with (stream, data), ``ended`` with a stream."""

    def __init__(self, *, client: bool, mode: str) -> None:
        config = h2.config.H2Configuration(
            client_side=client,
            header_encoding=None,
            validate_inbound_headers=False,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.h2 = h2.connection.H2Connection(config)
        self.mode = mode
        self.counts: dict[int, int] = {}
        self.bodies: dict[int, bytes] = {}
        self.finished: dict[int, asyncio.Future[bytes]] = {}
        self.blocked: deque[asyncio.Future[None]] = deque()
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.h2.local_settings = h2.settings.Settings(
            client=self.h2.config.client_side,
            initial_values={
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
                h2.settings.SettingCodes.MAX_FRAME_SIZE: FRAME,
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 1000,
            },
        )
        self.h2.max_inbound_frame_size = FRAME
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(64 * WINDOW)
        self.flush()

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.transport.write(data)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.wake()

    def wake(self) -> None:
        while self.blocked:
            waiter = self.blocked.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                stream = event.stream_id
                self.counts[stream] = self.counts.get(stream, 0) + len(event.data)
                if self.mode == "request" or self.h2.config.client_side:
                    self.bodies[stream] = self.bodies.get(stream, b"") + event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
            elif isinstance(event, h2.events.StreamEnded):
                self.on_end(event.stream_id)
            elif isinstance(event, h2.events.WindowUpdated | h2.events.RemoteSettingsChanged):
                self.wake()
        self.flush()

    def on_end(self, stream: int) -> None:
        if self.h2.config.client_side:
            future = self.finished.pop(stream)
            if not future.done():
                future.set_result(self.bodies.pop(stream, b""))
            return
        count = self.counts.pop(stream, 0)
        body = self.bodies.pop(stream, b"") if self.mode == "request" else count.to_bytes(8, "big")
        self.h2.send_headers(stream, RESPONSE)
        self.h2.send_data(stream, body, end_stream=True)

    def open(self) -> int:
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, REQUEST)
        self.finished[stream] = asyncio.get_running_loop().create_future()
        return stream

    async def send(self, stream: int, data: bytes) -> None:
        while self.paused or self.h2.local_flow_control_window(stream) < len(data):
            waiter = asyncio.get_running_loop().create_future()
            self.blocked.append(waiter)
            await waiter
        self.h2.send_data(stream, data)
        self.flush()


async def server(options: Options) -> None:
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: Peer(client=False, mode=options.mode), "127.0.0.1", options.port):
        await until_stopped()


async def client(options: Options) -> None:
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: Peer(client=True, mode=options.mode), "127.0.0.1", options.port)
    while peer.h2.remote_settings.max_frame_size < FRAME:
        await asyncio.sleep(0.001)
    if options.mode == "request":

        async def call(data: bytes) -> bytes:
            stream = peer.open()
            future = peer.finished[stream]
            peer.h2.send_data(stream, data, end_stream=True)
            peer.flush()
            return await future

        await requests(options, call)
        return
    begun = time.monotonic()
    end = begun + options.seconds

    async def one() -> int:
        stream = peer.open()
        future = peer.finished[stream]
        while time.monotonic() < end:
            if options.mode == "bulk":
                await peer.send(stream, CHUNK)
                continue
            for _ in range(CHECK_EVERY):
                await peer.send(stream, SMALL)
        peer.h2.end_stream(stream)
        peer.flush()
        return int.from_bytes(await future, "big")

    total = sum(await asyncio.gather(*(one() for _ in range(options.streams))))
    report(rate=total / (time.monotonic() - begun) / (64 if options.mode == "small" else 1e6))


if __name__ == "__main__":
    main(server, client)
