"""Transports that carry a connection's bytes under asyncio: a socket (TCP, TLS, Unix), a reader and writer, or publications.

A transport has a bounded queue: while ``paused`` is true, its handler must not write more until ``writing_resumed`` is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Protocol, cast

from mainstem._internal.listening import name_of
from mainstem._internal.tasks import start_task

if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes per read from a socket: large enough that a bulk stream costs few wake-ups, small enough to stay in a CPU cache.
RECEIVE_BUFFER = 256 * 1024
# Maximum bytes that a transport holds beyond those the kernel took. They are sent before anything urgent, so the limit is low.
WRITE_HIGH_WATER = 64 * 1024
# Maximum unsent bytes that the kernel holds, limited for the same reason (Linux's TCP_NOTSENT_LOWAT).
KERNEL_LOW_WATER = 128 * 1024
# Maximum segments per gathering system call. More of them (many small messages) are cheaper to join.
GATHER_LIMIT = 64
_TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)
# Maximum bytes from a nearby peer that the kernel holds unread. By default, Linux lets them grow to several megabytes, all ahead
# of a small message. A peer is nearby if TCP's handshake took less than NEARBY_US, so that this many bytes in flight are enough
# for any rate.
RECEIVE_HIGH_WATER = 512 * 1024
NEARBY_US = 1000
# The position of the smoothed round trip, in microseconds, in Linux's struct tcp_info. Right after the handshake, it is the
# handshake's round trip.
_TCP_INFO_RTT = struct.Struct("=68xI")
# Information about the peer. asyncio's TLS transports no longer have it once they are closed, so it is read at the start.
PEER_FACTS = ("peername", "peercert", "ssl_object")
# Maximum seconds between idle polls of a pair of publications, which back off.
POLL_IDLE_MAX_S = 0.001


class TransportHandler(Protocol):
    """The user of a transport. Its methods are called in the event loop's thread."""

    def transport_ready(self, transport: Transport) -> None:
        """Note that the transport is connected."""
        ...

    def data_received(self, data: memoryview) -> None:
        """Process received bytes. The transport reuses the memory when the call returns."""
        ...

    def writing_resumed(self) -> None:
        """Note that the transport is no longer paused."""
        ...

    def transport_lost(self, error: Exception | None) -> None:
        """Note that the transport has ended; ``error`` is ``None`` if the peer ended it gracefully."""
        ...


class Transport(Protocol):
    """An ordered, reliable byte stream to and from one peer."""

    paused: bool
    peer: str

    def get_extra_info(self, name: str) -> Any:
        """Return one of ``PEER_FACTS``, like :meth:`asyncio.BaseTransport.get_extra_info`, even after the transport has ended."""
        ...

    def write(self, segments: list[bytes | memoryview]) -> None:
        """Queue segments of bytes; may set ``paused``."""
        ...

    def close(self) -> None:
        """End the transport once its queue is empty."""
        ...

    def abort(self) -> None:
        """End the transport immediately, dropping its queue."""
        ...


def _is_nearby(raw: socket.socket) -> bool:
    """Return whether the peer of a new TCP connection is on this host or its local network; False if the system cannot tell."""
    if not hasattr(socket, "TCP_INFO"):
        return False
    info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_RTT.size)
    return len(info) == _TCP_INFO_RTT.size and 0 < _TCP_INFO_RTT.unpack(info)[0] < NEARBY_US


class UnconnectedProtocol(asyncio.Protocol):
    """The protocol of an asyncio transport until it is connected, which includes TLS: then it passes the transport on."""

    def __init__(self, connected: Callable[[asyncio.Transport], object]) -> None:
        self._connected = connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of other event loops (uvloop) do not inherit from asyncio's.
        self._connected(cast("asyncio.Transport", transport))


class SocketTransport(asyncio.BufferedProtocol):
    """A transport over a socket (TCP, TLS, Unix), which receives into one buffer that it reuses.

    Without TLS, it writes segments to the socket without joining them first. asyncio's own transport would copy them twice, and
    would copy the bytes that the kernel does not take a third time.
    """

    def __init__(self, handler: TransportHandler) -> None:
        self._handler = handler
        # Allocated at the first byte, so that a peer that only connects costs no memory.
        self._buffer: memoryview | None = None
        self._transport: asyncio.Transport | None = None
        self._facts: dict[str, Any] = {}
        self._loop = asyncio.get_running_loop()
        self._fd = -1
        self._pending: list[bytes | memoryview] = []
        self._closing = False
        self._error: Exception | None = None
        self.paused = False
        self.has_received = False
        self.peer = "peer"

    def take_over(self, transport: asyncio.Transport) -> None:
        """Become the protocol of a connected transport, and notify the handler."""
        transport.set_protocol(self)
        self._transport = transport
        try:
            self._prepare(transport)
            self._handler.transport_ready(self)
        except Exception as error:
            # The event loop would log it and keep the connection open.
            self._error = error
            transport.abort()
            raise

    def _prepare(self, transport: asyncio.Transport) -> None:
        self._facts = {name: transport.get_extra_info(name) for name in PEER_FACTS}
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            if raw.family in (socket.AF_INET, socket.AF_INET6):
                with contextlib.suppress(OSError):
                    raw.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, KERNEL_LOW_WATER)
                    if _is_nearby(raw):
                        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_HIGH_WATER)
            if transport.get_extra_info("sslcontext") is None:
                # Duplicate the descriptor, because the loop refuses to watch the descriptor of its own transport for others.
                # If the process has no descriptors left, bytes go through asyncio's transport.
                with contextlib.suppress(OSError):
                    self._fd = os.dup(raw.fileno())
        name = self._facts["peername"]
        self.peer = name_of(name) if name else "peer"

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        if self._buffer is None:
            self._buffer = memoryview(bytearray(RECEIVE_BUFFER))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self._buffer is not None
        self.has_received = True
        self._handler.data_received(self._buffer[:nbytes])

    def data_received(self, data: bytes) -> None:
        """Process bytes that arrived before this protocol took over the transport."""
        self.has_received = True
        self._handler.data_received(memoryview(data))

    def get_extra_info(self, name: str) -> Any:
        return self._facts.get(name)

    def connection_lost(self, exc: Exception | None) -> None:
        self.paused = True
        self._pending.clear()
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
        self._handler.transport_lost(exc or self._error)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._handler.writing_resumed()

    def write(self, segments: list[bytes | memoryview]) -> None:
        """Send or queue bytes. A broken transport drops them, and ``connection_lost`` follows."""
        transport = self._transport
        if transport is None or transport.is_closing():
            self.paused = True
        elif self._fd < 0:
            transport.write(b"".join(segments))
        elif rest := self._gather(segments):
            self._pending = rest
            self.paused = True
            self._loop.add_writer(self._fd, self._on_writable)

    def _gather(self, segments: list[bytes | memoryview]) -> list[bytes | memoryview]:
        """Write as much as the kernel takes; return the rest."""
        try:
            if len(segments) == 1:
                sent = os.write(self._fd, segments[0])
                if sent == len(segments[0]):
                    return []
            else:
                if len(segments) > GATHER_LIMIT:
                    segments = [b"".join(segments)]
                sent = os.writev(self._fd, segments)
        except BlockingIOError:
            return segments
        except OSError as error:
            self._error = error
            if self._transport is not None:
                self._transport.abort()
            return segments
        if sent == sum(map(len, segments)):
            return []
        for index, segment in enumerate(segments):
            length = len(segment)
            if sent < length:
                return [memoryview(segment)[sent:], *segments[index + 1 :]]
            sent -= length
        return []

    def _on_writable(self) -> None:
        self._pending = self._gather(self._pending)
        if self._pending:
            return
        self._loop.remove_writer(self._fd)
        if self._closing:
            self.close()
        else:
            self.paused = False
            self._handler.writing_resumed()

    def close(self) -> None:
        self._closing = True
        if self._transport is None:
            return
        if not self._transport.is_closing():
            with contextlib.suppress(RuntimeError):  # uvloop raises if it is already paused
                self._transport.pause_reading()  # data that still arrives is of no use
        if not self._pending:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _TaskTransport:
    """Base class of transports that run tasks for input and output, which subclasses define."""

    def __init__(self, handler: TransportHandler, *, peer: str) -> None:
        self._handler = handler
        self._out: list[bytes | memoryview] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._ended = False
        self._tasks: list[asyncio.Task[None]] = []
        self.paused = False
        self.peer = peer

    def start(self) -> None:
        self._handler.transport_ready(self)
        loop = asyncio.get_running_loop()
        self._tasks = [start_task(self._guard(work()), loop) for work in self._work()]

    def get_extra_info(self, name: str) -> Any:  # noqa: ARG002 - publications have no such information
        return None

    def _work(self) -> list[Callable[[], Any]]:
        raise NotImplementedError

    async def _guard(self, work: Any) -> None:
        error: Exception | None = None
        try:
            await work
        except asyncio.CancelledError:
            return
        except Exception as caught:
            error = caught
        self._end(error)

    def write(self, segments: list[bytes | memoryview]) -> None:
        """Queue a batch, and pause until it has been sent."""
        self._out += segments
        self.paused = True
        self._wake.set()

    def close(self) -> None:
        self._closing = True
        self._wake.set()

    def abort(self) -> None:
        self._out.clear()
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended = self.paused = True
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        self._release()
        self._handler.transport_lost(error)

    def _release(self) -> None:
        pass

    def _sent(self) -> None:
        if not self._ended:
            self.paused = False
            self._handler.writing_resumed()


class StreamPairTransport(_TaskTransport):
    """A transport over any asyncio reader and writer."""

    def __init__(
        self,
        handler: TransportHandler,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        peer: str = "peer",
    ) -> None:
        super().__init__(handler, peer=peer)
        self._reader = reader
        self._writer = writer
        # With this limit, `drain` waits until the kernel has everything, so nothing is left when the writer is closed.
        writer.transport.set_write_buffer_limits(high=0)
        self._facts = {name: writer.get_extra_info(name) for name in PEER_FACTS}
        self._is_flushed = True

    def get_extra_info(self, name: str) -> Any:
        return self._facts.get(name)

    def _work(self) -> list[Callable[[], Any]]:
        return [self._receive, self._send]

    async def _receive(self) -> None:
        while data := await self._reader.read(RECEIVE_BUFFER):
            self._handler.data_received(memoryview(data))

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._out:
                data = b"".join(self._out)
                self._out.clear()
                self._is_flushed = False
                self._writer.write(data)
                await self._writer.drain()
                self._is_flushed = True
                self._sent()
            if self._closing:
                return

    def close(self) -> None:
        super().close()
        if self._tasks:
            self._tasks[0].cancel()  # data that still arrives is of no use

    def _release(self) -> None:
        with contextlib.suppress(Exception):
            if self._is_flushed:
                self._writer.close()
            else:  # a peer that does not read would keep the writer open
                self._writer.transport.abort()


class Publication(Protocol):
    """The method of a publication that is used here. It never blocks, and returns a position or a negative number."""

    def offer(self, buffer: bytes, /) -> int:
        """Send one message."""
        ...


class Subscription(Protocol):
    """The method of a subscription that is used here. It calls ``handler`` with messages in order; ``bytes()`` accepts them."""

    def poll(self, handler: Callable[[Any], object], fragment_limit: int) -> int:
        """Receive at most ``fragment_limit`` messages."""
        ...


class PublicationTransport(_TaskTransport):
    """A transport over a publication to the peer and a subscription from it (Aeron's, or any objects with ``offer`` and ``poll``).

    Bytes are split into messages of at most ``message_limit``, which must fit into one fragment; message boundaries have no
    meaning. A message of type ``END`` marks the end of the sender's bytes. Refused offers are retried, which creates back
    pressure.
    """

    # The payload of one fragment in the smallest datagram that every network carries.
    MESSAGE_LIMIT = 1344
    FRAGMENT_LIMIT = 64
    END = b"\0"
    DATA = b"\1"

    def __init__(
        self,
        handler: TransportHandler,
        publication: Publication,
        subscription: Subscription,
        *,
        message_limit: int = MESSAGE_LIMIT,
        peer: str = "peer",
    ) -> None:
        super().__init__(handler, peer=peer)
        self._publication = publication
        self._subscription = subscription
        self._limit = message_limit - 1
        self._pending: list[bytes] = []
        self._peer_ended = False

    def _work(self) -> list[Callable[[], Any]]:
        return [self._run]

    async def _run(self) -> None:
        idle = 0.0
        while not self._peer_ended:
            work = self._offer()
            if not self._closing:  # otherwise data that still arrives is of no use
                work += self._subscription.poll(self._on_message, self.FRAGMENT_LIMIT)
            if self._closing and not self._pending and not self._out and self._publication.offer(self.END) >= 0:
                return
            if work:
                idle = 0.0
            elif idle < POLL_IDLE_MAX_S:
                idle += POLL_IDLE_MAX_S / 20
            await asyncio.sleep(idle)

    def _on_message(self, message: Any) -> None:
        data = bytes(message)
        if data[:1] == self.DATA:
            self._handler.data_received(memoryview(data)[1:])
        else:
            self._peer_ended = True

    def _offer(self) -> int:
        if self._out and not self._pending:
            data = b"".join(self._out)
            self._out.clear()
            limit = self._limit
            self._pending = [self.DATA + data[at : at + limit] for at in range(0, len(data), limit)]
        sent = 0
        for message in self._pending:
            if self._publication.offer(message) < 0:
                break
            sent += 1
        if sent:
            del self._pending[:sent]
            if not self._pending:
                self._sent()
        return sent
