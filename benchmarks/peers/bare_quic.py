"""The QUIC library alone, driven as Mainstem drives it but without Aqueduct.

It uses the same connection objects, the same UDP socket with the same batches, one flush per turn of the event loop, and a limit
on queued bytes. A length precedes each message.

Messages are written and delivered one by one, as any application of streams must. They are joined into one write per turn, and
separated in one loop per chunk of received data.
"""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

from aqueduct_common import BATCH, PACKET, Options, rate, ready, report, run, time_rounds

from mainstem.aqueduct.quic import load_backend
from mainstem.aqueduct.quic.udp import UdpSocket
from mainstem.aqueduct.settings import Settings

MAX_WAITING = 1 << 20  # bytes that can be queued in the library, which has no limit of its own
DATAGRAMS_WAITING = 256  # datagrams passed to the library per turn


class Endpoint:
    """One connection, client or server, over one socket."""

    def __init__(self, port: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.udp = UdpSocket(host="127.0.0.1", port=port, family=socket.AF_INET)
        self.loop.add_reader(self.udp.fileno(), self._readable)
        self.link: Any = None
        self.established = self.loop.create_future()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._room: asyncio.Future[None] | None = None
        self._pieces: dict[int, list[bytes]] = {}

    def accept(self, data: bytes) -> None:
        """Accept a connection from a client's first datagram. Only the server does."""

    # Events from the link. Bytes of one stream that arrived together come in one call.

    def receive_stream(self, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        raise NotImplementedError

    def receive_stream_ends(self, stream_ids: list[int], pieces: list[bytes], now_ns: int) -> None:
        for stream_id, data in zip(stream_ids, pieces, strict=True):
            self.receive_stream(stream_id, data, True, now_ns)

    def receive_datagrams(self, datagrams: list[bytes], now_ns: int) -> None:
        """Ignore datagrams."""

    def receive_reset(self, stream_id: int, code: int, now_ns: int) -> None:
        """Do nothing: neither side resets a stream."""

    def handshake_completed(self, now_ns: int) -> None:
        if not self.established.done():
            self.established.set_result(None)

    def connection_lost(self, error: Exception | None, now_ns: int) -> None:
        """Do nothing when the other side has closed the connection."""

    def _readable(self) -> None:
        found = self.udp.receive()
        if not found:
            return
        address = found[0][1]
        if self.link is None:
            self.accept(found[0][0])
        self.link.receive([data for data, _ in found], address, self.loop.time())
        self._deliver()
        self.wake()

    def _deliver(self) -> None:
        self.link.deliver(self, 0)

    def wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self.flush)

    def send(self, stream_id: int, message: bytes) -> None:
        """Queue one message. All messages of this turn are sent together."""
        pieces = self._pieces.get(stream_id)
        if pieces is None:
            pieces = self._pieces[stream_id] = []
        pieces.append(len(message).to_bytes(4, "big"))
        pieces.append(message)
        if not self._scheduled:
            self.wake()

    def flush(self) -> None:
        self._scheduled = False
        quic = self.link.quic
        for stream_id, pieces in self._pieces.items():
            quic.send_stream_data(stream_id, b"".join(pieces))
        self._pieces.clear()
        datagrams = self.link.transmit(self.loop.time())
        if datagrams:
            self.udp.send(datagrams)
        self._deliver()
        due = self.link.timer()
        if self._timer is not None and (due is None or abs(self._timer.when() - due) > 1e-6):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and due is not None:
            self._timer = self.loop.call_at(due, self._on_timer)
        if self._room is not None and self.waiting() <= MAX_WAITING // 2 and not self._room.done():
            self._room.set_result(None)

    def _on_timer(self) -> None:
        self._timer = None
        self.link.handle_timer(self.loop.time())
        self._deliver()
        self.flush()

    def waiting(self) -> int:
        quic = self.link.quic
        if hasattr(quic, "get_send_buffer_size"):
            return int(quic.get_send_buffer_size())
        return sum(stream.sender._buffer_stop - stream.sender._buffer_start for stream in quic._streams.values())

    async def room(self) -> None:
        """Wait one turn of the loop, or until the queue has room."""
        await asyncio.sleep(0)
        if self.waiting() > MAX_WAITING:
            self._room = self.loop.create_future()
            await self._room
            self._room = None


class Serving(Endpoint):
    """The server: counts messages, and echoes on bidirectional streams that begin with an ``e``."""

    def __init__(self, options: Options) -> None:
        super().__init__(options.port)
        self._context = load_backend(options.backend).server_context(_settings(options, server=True), None)
        # For each stream, the chunks of an incomplete message, and the number of bytes necessary to continue.
        self._parts: dict[int, tuple[list[bytes], int]] = {}
        self.count = 0

    def accept(self, data: bytes) -> None:
        self.link = self._context.accept(self._context.parse(data))

    def receive_stream(self, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        if not stream_id & 2 and data[:1] == b"e":
            self.link.quic.send_stream_data(stream_id, data, fin)
            return
        part = self._parts.pop(stream_id, None)
        if part is not None:
            pieces, missing = part
            pieces.append(data)
            if len(data) < missing and not fin:
                self._parts[stream_id] = pieces, missing - len(data)
                return
            data = b"".join(pieces)
        missing = 4
        position, stop, messages = 0, len(data), []
        while stop - position >= 4:
            start = position + 4
            after = start + int.from_bytes(data[position:start], "big")
            if after > stop:
                missing = after - stop
                break
            messages.append(data[start:after])
            position = after
        for message in messages:
            self.take(message)
        if fin:
            if not stream_id & 2:
                self.link.quic.send_stream_data(stream_id, b"%d" % self.count, True)
        elif position < stop:
            self._parts[stream_id] = [data[position:]], missing

    def take(self, message: bytes) -> None:
        """Consume a message, as an application would."""
        self.count += 1

    def receive_datagrams(self, datagrams: list[bytes], now_ns: int) -> None:
        for data in datagrams:
            self.take(data)


class Asking(Endpoint):
    """The client: keeps received data, by stream."""

    def __init__(self, options: Options) -> None:
        super().__init__(0)
        origin = f"localhost:{options.port}"
        self.link = load_backend(options.backend).client(
            _settings(options, server=False), server_name="localhost", sessions=None, origin=origin
        )
        self.replies: dict[int, asyncio.Future[bytes]] = {}
        self.link.connect(("127.0.0.1", options.port), self.loop.time())
        self.wake()

    def receive_stream(self, stream_id: int, data: bytes, fin: bool, now_ns: int) -> None:
        reply = self.replies.pop(stream_id, None)
        if reply is not None and not reply.done():
            reply.set_result(data)

    async def ask(self, stream_id: int, data: bytes, *, end: bool) -> bytes:
        reply = self.replies[stream_id] = self.loop.create_future()
        self.flush()
        self.link.quic.send_stream_data(stream_id, data, end)
        self.wake()
        return await reply


def _settings(options: Options, *, server: bool) -> Settings:
    directory = Path(options.directory)
    if server:
        return Settings(
            alpn="bare",
            certificate=directory / "cert.pem",
            key=directory / "key.pem",
            max_datagram_size=PACKET,
        )
    return Settings(alpn="bare", ca=directory / "ca.pem", max_datagram_size=PACKET)


async def serve(options: Options) -> None:
    Serving(options)
    ready()
    await asyncio.get_running_loop().create_future()


async def ask(options: Options) -> None:
    client = Asking(options)
    await client.established
    quic = client.link.quic
    if options.what == "open":

        async def opened() -> None:
            await client.ask(quic.get_next_available_stream_id(), b"echo", end=True)

        await time_rounds(options.rounds, opened)
    elif options.what == "again":
        stream_id = quic.get_next_available_stream_id()

        async def again() -> None:
            await client.ask(stream_id, b"echo", end=False)

        await time_rounds(options.rounds, again)
    else:
        await _stream(client, options)


async def _stream(client: Asking, options: Options) -> None:
    quic = client.link.quic
    message = bytes(options.size)
    framed = options.size.to_bytes(4, "big") + message
    batch = max(1, min(BATCH, (256 << 10) // max(1, options.size)))
    sent = 0
    ordered = quic.get_next_available_stream_id()
    await client.ask(ordered, (1).to_bytes(4, "big") + b"x", end=True)
    for _ in range(options.live):
        quic.send_stream_data(quic.get_next_available_stream_id(), (1).to_bytes(4, "big") + b"x", False)
    await client.room()
    ordered = quic.get_next_available_stream_id()
    started = time.perf_counter()
    while time.perf_counter() - started < options.seconds:
        if options.what == "ordered":
            for _ in range(batch):
                client.send(ordered, message)
        elif options.what == "datagrams":
            for _ in range(batch):
                quic.send_datagram_frame(message)
            client.wake()
        else:
            for _ in range(batch):
                while not _streams_left(quic):
                    client.flush()
                    await asyncio.sleep(0.0002)
                quic.send_stream_data(quic.get_next_available_stream_id(is_unidirectional=True), framed, True)
            client.wake()
        sent += batch
        await client.room()
    if options.what == "ordered":
        await client.ask(ordered, b"", end=True)
        rate(sent, options.size, started)
        return
    ended = time.perf_counter()
    await asyncio.sleep(0.3)
    last = quic.get_next_available_stream_id()
    received = int(await client.ask(last, (1).to_bytes(4, "big") + b"x", end=True)) - 2
    report(messages=received / (ended - started), lost=1 - received / sent)


def _streams_left(quic: Any) -> int:
    core = getattr(quic, "core", None)
    if core is not None:
        return int(core.stream_limits[1] - core.stream_limits[3])
    return int(quic._remote_max_streams_uni - quic._local_next_stream_id_uni // 4)


if __name__ == "__main__":
    run(serve, ask)
