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

from mainstem._core import layout
from mainstem._internal.listening import name_of
from mainstem._internal.tasks import start_task
from mainstem.errors import ConnectionLost
from mainstem.mux.tls import tls_hint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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
# Why a pair of publications can send nothing.
CLOSED = "the publication to the peer was closed"
NOT_READ = "the peer no longer reads"


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
        """Return one of ``PEER_FACTS``, like :meth:`asyncio.BaseTransport.get_extra_info`, even after the transport has ended.

        ``tls_hint`` is a text if the peer of a plain socket speaks TLS.
        """
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


class SocketTransport(asyncio.BufferedProtocol):
    """A transport over a socket (TCP, TLS, Unix), which receives into one buffer that it reuses.

    Without TLS, it writes segments to the socket without joining them first. asyncio's own transport would copy them twice, and
    would copy the bytes that the kernel does not take a third time.

    It is the protocol of an asyncio transport that the event loop is still connecting, which includes TLS. It has no handler until
    the loop's method has returned and ``start`` is called, because a task that is cancelled before that may make uvloop close the
    transport without calling ``connection_lost``. Whatever arrives before ``start`` is kept.
    """

    def __init__(self) -> None:
        self._handler: TransportHandler | None = None
        self._early: list[bytes] = []
        self._is_lost = False
        self._has_tls = False
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

    @classmethod
    async def connected(cls, connect: Callable[[Callable[[], SocketTransport]], Awaitable[object]]) -> SocketTransport:
        """Return a transport that ``connect`` has connected: one of the event loop's methods, which gets a protocol factory."""
        transport = cls()
        try:
            await connect(lambda: transport)
        except BaseException:
            transport.abort()
            raise
        return transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of other event loops (uvloop) do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._has_tls = transport.get_extra_info("sslcontext") is not None

    def start(self, handler: TransportHandler) -> None:
        """Serve ``handler`` from now on, because the event loop's method that connects has returned.

        Raises the handler's exception if it fails; then the transport is aborted.
        """
        transport = self._transport
        assert transport is not None
        self._handler = handler
        try:
            self._prepare(transport)
            handler.transport_ready(self)
            early, self._early = self._early, []
            for data in early:
                handler.data_received(memoryview(data))
        except Exception as error:
            self._error = error
            transport.abort()
            raise
        finally:
            if self._is_lost:
                handler.transport_lost(self._error)

    def _prepare(self, transport: asyncio.Transport) -> None:
        self._facts.update((name, transport.get_extra_info(name)) for name in PEER_FACTS)
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            if raw.family in (socket.AF_INET, socket.AF_INET6):
                with contextlib.suppress(OSError):
                    raw.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, KERNEL_LOW_WATER)
                    if _is_nearby(raw):
                        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_HIGH_WATER)
            if not self._has_tls and not transport.is_closing():
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
        if not self.has_received:
            self.has_received = True
            if not self._has_tls:
                self._facts["tls_hint"] = tls_hint(self._buffer[:nbytes])
        if self._handler is None:
            self._early.append(bytes(self._buffer[:nbytes]))
        else:
            self._handler.data_received(self._buffer[:nbytes])

    def get_extra_info(self, name: str) -> Any:
        return self._facts.get(name)

    def connection_lost(self, exc: Exception | None) -> None:
        self.paused = True
        self._pending.clear()
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
        self._is_lost = True
        self._error = exc or self._error
        if self._handler is not None:
            self._handler.transport_lost(self._error)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self._handler is not None:
            self._handler.writing_resumed()

    def write(self, segments: list[bytes | memoryview]) -> None:
        """Send or queue bytes. A broken transport drops them, and ``connection_lost`` follows."""
        transport = self._transport
        if transport is None or transport.is_closing():
            self.paused = True
            return
        if self._fd < 0:
            transport.write(b"".join(segments))
            return
        if self._pending:  # a connection's last packets are written even while it is paused
            self._pending += segments
            return
        sent = 0
        try:
            if len(segments) == 1:
                sent = os.write(self._fd, segments[0])
            else:
                if len(segments) > GATHER_LIMIT:
                    segments = [b"".join(segments)]
                sent = os.writev(self._fd, segments)
        except BlockingIOError:
            pass
        except OSError as error:
            self._error = error
            transport.abort()
        if sent < sum(map(len, segments)):
            self._pending = _without(segments, sent)
            self.paused = True
            self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        pending, self._pending = self._pending, []
        self.write(pending)
        if self._pending:
            return
        self._loop.remove_writer(self._fd)
        if self._closing:
            self.close()
        else:
            self.resume_writing()

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


def _without(segments: list[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    """Return what is left of segments after their first ``sent`` bytes."""
    for index, segment in enumerate(segments):
        length = len(segment)
        if sent < length:
            return [memoryview(segment)[sent:], *segments[index + 1 :]]
        sent -= length
    return []


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
    """The method of a publication that is used here. It never blocks, and returns a position or one of Aeron's negative numbers.

    If it also has ``is_connected`` and ``closed``, as Aeron's does, a lost connection is noticed without an offer.
    """

    def offer(self, buffer: bytes, /) -> int:
        """Send one message."""
        ...


class Subscription(Protocol):
    """The method of a subscription that is used here. It calls ``handler`` with messages in order; ``bytes()`` accepts them.

    If it also has ``images`` and ``closed``, as Aeron's does, the end of the peer's stream is noticed.
    """

    def poll(self, handler: Callable[[Any], object], limit: int) -> int:
        """Receive at most ``limit`` messages."""
        ...


class PublicationTransport(_TaskTransport):
    """A transport over a publication to the peer and a subscription from it (Aeron's, or any objects with ``offer`` and ``poll``).

    Bytes are split into messages of at most ``message_limit``, which must fit into one fragment; message boundaries have no
    meaning. A message of type ``END`` marks the end of the sender's bytes.

    An offer is retried while there is back pressure, and until the peer's subscription has joined. Anything else that ends either
    direction without ``END`` is a lost connection: a publication that is closed, has used its positions or is no longer connected;
    a peer's stream that ended; a driver that has gone, which closes all of them. What has arrived is read first. If only the
    peer's subscription is gone, the peer may have ended the connection in order, and its last messages may still be on their way:
    they have ``LAST_MESSAGES_S`` to arrive.

    The first message says which of several images is the peer's; the others, such as a dead predecessor's, are then ignored.
    """

    # The payload of one fragment in the smallest datagram that every network carries.
    MESSAGE_LIMIT = 1344
    FRAGMENT_LIMIT = 64
    END = b"\0"
    DATA = b"\1"
    LAST_MESSAGES_S = 1.0

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
        self._was_connected = False
        self._had_image = False
        self._image: Any = None  # the peer's, once a message of it has arrived
        self._lost: Exception | None = None  # why messages cannot be sent
        self._lost_at_s = 0.0  # in the event loop's time, when that ends the connection

    def _work(self) -> list[Callable[[], Any]]:
        return [self._run]

    async def _run(self) -> None:
        idle = 0.0
        while not self._peer_ended:
            work = self._offer()
            if not self._closing:  # otherwise data that still arrives is of no use
                work += self._poll()
            elif not self._pending and not self._out and self._say_end():
                return
            if not work and not self._peer_ended:
                self._check_path()
            if work:
                idle = 0.0
            elif idle < POLL_IDLE_MAX_S:
                idle += POLL_IDLE_MAX_S / 20
            await asyncio.sleep(idle)

    def _poll(self) -> int:
        if self._image is not None:
            polled: int = self._image.poll(self._on_message, self.FRAGMENT_LIMIT)
            return polled
        return self._subscription.poll(self._on_first, self.FRAGMENT_LIMIT)

    def _on_first(self, message: Any) -> None:
        """Process a message of a subscription whose peer's image is not known yet, if it has images."""
        session_id = getattr(message, "session_id", None)
        if session_id is not None and self._image is None:
            images = getattr(self._subscription, "images", ())
            self._image = next((image for image in images if image.session_id == session_id), None)
        if self._image is None or self._image.session_id == session_id:
            self._on_message(message)

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
        if self._lost is None:
            for message in self._pending:
                if (status := self._publication.offer(message)) < 0:
                    self._refused(status)
                    break
                sent += 1
        if sent:
            self._was_connected = True
            del self._pending[:sent]
            if not self._pending:
                self._sent()
        return sent

    def _say_end(self) -> bool:
        if self._lost is None and (status := self._publication.offer(self.END)) < 0:
            self._refused(status)
            return False
        return self._lost is None

    def _refused(self, status: int) -> None:
        if status == layout.OFFER_CLOSED:
            self._lose(CLOSED)
        elif status == layout.OFFER_MAX_POSITION_EXCEEDED:
            self._lose("the publication to the peer has used all of its positions")
        elif status == layout.OFFER_NOT_CONNECTED and self._was_connected:
            self._lose(NOT_READ, within_s=self.LAST_MESSAGES_S)

    def _lose(self, reason: str, *, within_s: float = 0.0) -> None:
        """Note that nothing can be sent any more, and why. What arrives within this time is still read."""
        cause = getattr(self._publication, "error", None)
        self._lost = cause if isinstance(cause, Exception) else ConnectionLost(reason)
        self._lost_at_s = asyncio.get_running_loop().time() + (0.0 if self._closing else within_s)

    def _check_path(self) -> None:
        """Raise if either direction is gone. Everything that has arrived has been read."""
        publication, subscription = self._publication, self._subscription
        if self._lost is None:
            if getattr(publication, "closed", False):
                self._lose(CLOSED)
            elif getattr(publication, "is_connected", False):
                self._was_connected = True
            elif self._was_connected and hasattr(publication, "is_connected"):
                self._lose(NOT_READ, within_s=self.LAST_MESSAGES_S)
        is_live = self._hears_peer(subscription)
        if self._lost is not None and (not is_live or asyncio.get_running_loop().time() >= self._lost_at_s):
            raise self._lost
        if not is_live:
            cause = getattr(subscription, "error", None)
            raise cause if isinstance(cause, Exception) else ConnectionLost("the peer's publication has ended")

    def _hears_peer(self, subscription: Any) -> bool:
        """Return whether more messages may arrive."""
        if self._closing:  # nothing is read any more
            return True
        if getattr(subscription, "closed", False):
            return False
        images = getattr(subscription, "images", None)
        if images is None:
            return True
        if self._image is not None:
            return not (self._image.closed or self._image.is_end_of_stream)
        is_live = any(not (image.closed or image.is_end_of_stream) for image in images)
        self._had_image |= is_live
        return is_live or not self._had_image
