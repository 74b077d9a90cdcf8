"""The QUIC library alone, as its own asyncio classes offer it: streams and datagrams, a length before each message."""

from __future__ import annotations

import asyncio
import importlib
import socket
import time
from pathlib import Path
from typing import Any

from aqueduct_common import BATCH, PACKET, Options, answer, options, rate, ready, run, time_rounds

LIBRARY = options().backend
asyncio_part = importlib.import_module(f"{LIBRARY}.asyncio")
configuration_part = importlib.import_module(f"{LIBRARY}.quic.configuration")
events = importlib.import_module(f"{LIBRARY}.quic.events")
Protocol = importlib.import_module(f"{LIBRARY}.asyncio.protocol").QuicConnectionProtocol
MAX_WAITING = 1 << 20  # bytes that may wait in the library, which has no bound of its own


class Counting(Protocol):  # type: ignore[misc, valid-type]
    """The server: counts messages, echoes on bidirectional streams that begin with an ``e``."""

    count = 0

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._parts: dict[int, bytearray] = {}

    def quic_event_received(self, event: Any) -> None:
        if isinstance(event, events.StreamDataReceived):
            stream_id = event.stream_id
            if not stream_id & 2 and event.data[:1] == b"e":
                self._quic.send_stream_data(stream_id, event.data, event.end_stream)
                return
            buffer = self._parts.setdefault(stream_id, bytearray())
            buffer += event.data
            position, messages = 0, []
            while len(buffer) - position >= 4:
                size = int.from_bytes(buffer[position : position + 4], "big")
                if len(buffer) - position - 4 < size:
                    break
                messages.append(bytes(buffer[position + 4 : position + 4 + size]))
                position += 4 + size
            del buffer[:position]
            self.count += len(messages)
            if event.end_stream:
                del self._parts[stream_id]
                if not stream_id & 2:
                    self._quic.send_stream_data(stream_id, b"%d" % self.count, True)
        elif isinstance(event, events.DatagramFrameReceived):
            self.count += 1


class Asking(Protocol):  # type: ignore[misc, valid-type]
    """The client: keeps what comes back, by stream."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.replies: dict[int, asyncio.Future[bytes]] = {}

    def quic_event_received(self, event: Any) -> None:
        if isinstance(event, events.StreamDataReceived):
            reply = self.replies.pop(event.stream_id, None)
            if reply is not None and not reply.done():
                reply.set_result(event.data)

    def waiting(self) -> int:
        if hasattr(self._quic, "get_send_buffer_size"):
            return int(self._quic.get_send_buffer_size())
        return sum(stream.sender._buffer_stop - stream.sender._buffer_start for stream in self._quic._streams.values())

    async def drain(self) -> None:
        while self.waiting() > MAX_WAITING:
            await asyncio.sleep(0.0005)

    async def ask(self, stream_id: int, data: bytes, *, end: bool) -> bytes:
        reply = self.replies[stream_id] = asyncio.get_running_loop().create_future()
        self._quic.send_stream_data(stream_id, data, end)
        self.transmit()
        return await reply


def _configuration(options: Options, *, is_client: bool) -> Any:
    configuration = configuration_part.QuicConfiguration(is_client=is_client, alpn_protocols=["bare"])
    configuration.max_datagram_frame_size = 65536
    configuration.max_datagram_size = PACKET
    if is_client:
        configuration.load_verify_locations(str(Path(options.directory) / "ca.pem"))
    else:
        configuration.load_cert_chain(
            str(Path(options.directory) / "cert.pem"), str(Path(options.directory) / "key.pem")
        )
    return configuration


def _enlarge(transport: Any) -> None:
    """The same socket buffers as the other peers ask for."""
    sock = transport.get_extra_info("socket")
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, 4 << 20)


async def serve(options: Options) -> None:
    configuration = _configuration(options, is_client=False)
    server = await asyncio_part.serve("127.0.0.1", options.port, configuration=configuration, create_protocol=Counting)
    _enlarge(server._transport)
    ready()
    await asyncio.get_running_loop().create_future()


async def ask(options: Options) -> None:
    configuration = _configuration(options, is_client=True)
    connecting = asyncio_part.connect("localhost", options.port, configuration=configuration, create_protocol=Asking)
    async with connecting as client:
        _enlarge(client._transport)
        if options.what == "open":
            await time_rounds(options.rounds, lambda: _echo(client, end=True))
        elif options.what == "again":
            stream_id = client._quic.get_next_available_stream_id()

            async def again() -> None:
                await client.ask(stream_id, b"echo", end=False)

            await time_rounds(options.rounds, again)
        else:
            await _stream(client, options)


async def _echo(client: Any, *, end: bool) -> None:
    await client.ask(client._quic.get_next_available_stream_id(), b"echo", end=end)


async def _stream(client: Any, options: Options) -> None:
    quic = client._quic
    message = bytes(options.size)
    framed = options.size.to_bytes(4, "big") + message
    batch = max(1, min(BATCH, (256 << 10) // max(1, options.size)))
    last = quic.get_next_available_stream_id()
    sent = 0
    ordered = quic.get_next_available_stream_id()
    started = time.perf_counter()
    while time.perf_counter() - started < options.seconds:
        for _ in range(batch):
            if options.what == "ordered":
                quic.send_stream_data(ordered, framed)
            elif options.what == "datagrams":
                quic.send_datagram_frame(message)
            else:
                await _room_for_a_stream(quic, client)
                quic.send_stream_data(quic.get_next_available_stream_id(is_unidirectional=True), framed, True)
        client.transmit()
        sent += batch
        await asyncio.sleep(0)
        await client.drain()
    if options.what == "ordered":
        await client.ask(ordered, b"", end=True)
        rate(sent, options.size, started)
        return
    ended = time.perf_counter()
    await asyncio.sleep(0.3)
    received = int(await client.ask(last, (1).to_bytes(4, "big") + b"x", end=True)) - 1
    answer(messages=received / (ended - started), lost=1 - received / sent)


async def _room_for_a_stream(quic: Any, client: Any) -> None:
    core = getattr(quic, "_core", None)
    while core is not None and core.stream_limits[1] - core.stream_limits[3] <= 0:
        client.transmit()
        await asyncio.sleep(0.0002)


if __name__ == "__main__":
    run(serve, ask)
