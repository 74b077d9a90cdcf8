"""An asyncio stream: its reading and writing halves, the same for both multiplexers.

A :class:`BaseStream` stands between three parties, all in the thread of one event loop:

* the user's tasks, which call ``read``, ``write``, ``drain`` and the like;
* the connection's protocol object (:mod:`mainstem.mux.protocol`), which calls the functions at the end of this file and those in
  the multiplexer's ``STREAM_HANDLERS`` for the engine's events;
* the engine's handle for the stream (bymux's ``StreamState``, Jmux's ``Session``), which holds the bytes waiting to be sent
  (``queue``) and counts the bytes that were received but not read (``unconsumed``).

Where data is kept. Received bytes wait in ``_buffer`` and nowhere else. They count against the window granted to the peer until
``_consumed`` reports them to the protocol, which then restores the peer's credit. Written bytes wait in the handle's queue until
credit and a turn allow sending them; this class has no copy of them.

Reads are safe to cancel. A read first waits until it can return everything it was asked for, then takes the bytes out of the
buffer in one step, without ``await``. A read of more bytes than the window would wait forever that way, so while it waits, the
bytes in the buffer are reported as consumed. ``_credited`` counts those bytes and the bytes that ``unread`` put back, which are
not reported again when they are read. The buffer therefore holds at most the window plus the largest read that ever waited, or
plus ``read_limit`` bytes for ``read(-1)``, which checks that limit while it waits and again before it returns.

Invariants:

* One task reads at a time (a second one gets ``LocalProtocolError``). Any number of tasks can write and wait in ``drain``.
* ``_eof`` and ``_read_error`` exclude each other in effect: an error after the peer's end of data is not an error for readers.
  Both are final, and bytes that arrived before them are read first.
* ``_write_error`` is the first error of the writing half and is final; later errors do not replace it. ``_write_failure`` is the
  same error if written bytes may be lost because of it: ``flush`` and ``close`` raise it, and so does the end of the block
  unless it was already raised. It is not set by an abort on this side, nor once the writing half has ended gracefully.
* Exactly one of ``_wake_writers`` and ``_fail_writes`` completes each future in ``_drainers``. A future whose task was cancelled
  is removed.

A handler in its own task (``_task``) serves each stream that a peer opened. ``_set_exception`` cancels the handler, because
nothing it could still do for the stream has an effect. Whether a handler failed is decided by the identity of the exception it
raised (``_is_own``): the end of its own stream is not a failure, but the same exception from another connection is.

Nothing below keeps a stream alive: the engine's handle has only a weak reference (``owner``). If the application drops a stream
without closing it, the stream warns (``ResourceWarning``) and is aborted. The stream's handler and a waiting call keep it alive,
and so does the connection until it has handed the stream out.

Order. Bytes of one stream are received and sent in order. There is no order between streams.
"""

from __future__ import annotations

import asyncio
import copy
import math
import warnings
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from mainstem._core.mux.queues import InBuffer
from mainstem._internal.tasks import within
from mainstem.errors import (
    ClosedError,
    ConfigurationError,
    ConnectionLost,
    Delivery,
    IncompleteRead,
    LimitExceeded,
    LocalProtocolError,
    MainstemError,
    Timeout,
)
from mainstem.mux.protocol import cancel_tasks, logger

if TYPE_CHECKING:
    from typing import Self

    from mainstem.mux.protocol import BaseProtocol

# Default maximum number of bytes that `read` returns.
READ_LIMIT = 256 * 1024
# `drain` waits while more bytes than this are queued, and returns once half as many are left.
WRITE_LIMIT = 128 * 1024
# If a write makes the queue reach this many bytes, it is flushed immediately instead of at the end of the event loop's turn.
EAGER_BYTES = 64 * 1024


X = TypeVar("X", bound=MainstemError)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStats:
    """The byte counts of one stream.

    Attributes:
        bytes_sent: Bytes that were passed to the transport.
        bytes_received: Bytes that arrived.
        unsent_bytes: Written bytes that are waiting for credit or for their turn.
        unread_bytes: Bytes that arrived but were not read.
    """

    bytes_sent: int
    bytes_received: int
    unsent_bytes: int
    unread_bytes: int


def _copy(error: X) -> X:
    """Copy an error that several streams share, so that details of one stream can be added."""
    own = copy.copy(error)
    own.__cause__ = error
    return own


class IncompleteReadError(IncompleteRead, asyncio.IncompleteReadError):  # type: ignore[misc]
    """What `readexactly` raises at the end of a stream, for handlers of either class."""


class BaseStream:
    """Base class of asyncio streams.

    One task can read at a time; any number can wait in :meth:`drain`. ``async for`` yields data as it arrives, until the end.
    Every read can be cancelled, for example by a timeout: the next read returns the data that it did not.
    """

    _KIND: ClassVar = "stream"

    _engine: Any
    _closed = False  # closed or aborted on this side
    _credited = 0
    _any_read = False
    _eof = False
    _eof_seen = False
    _reported = False
    _task: asyncio.Task[Any] | None = None
    _read_error: MainstemError | None = None
    _reader: asyncio.Future[None] | None = None
    _drainers: tuple[asyncio.Future[bool], ...] = ()
    _write_error: MainstemError | None = None
    _write_failure: MainstemError | None = None
    _short_read: IncompleteRead | None = None

    def __init__(self, connection: BaseProtocol, handle: Any, whole: bytes | None = None) -> None:
        """Make a stream; ``whole`` is all of the peer's data if it has arrived already."""
        self._handle = handle
        self._engine = connection.engine
        self._buffer = InBuffer()
        handle.owner = weakref.ref(self)
        self._connection = connection
        if whole is not None:
            if whole:
                self._buffer.append(whole)
            self._eof = True

    @property
    def id(self) -> int:
        """The stream's id on the wire."""
        return int(self._handle.id)

    @property
    def queued(self) -> int:
        """The number of written bytes that are waiting for credit or for their turn."""
        return int(self._handle.queue.size)

    @property
    def closed(self) -> bool:
        """Whether the stream was closed here or both directions have ended. Data that has already arrived can still be read."""
        return self._closed or bool(self._handle.ended) or self._connection.over

    @property
    def error(self) -> MainstemError | None:
        """The error that ended the stream early.

        ``None`` while it is open, after an orderly end, and after an end on this side that lost nothing.
        """
        errors = [error for error in (self._read_error, self._write_error) if error is not None]
        causes = [error for error in errors if not isinstance(error, ClosedError)]
        return next(iter(causes + [error for error in errors if error.unsent]), None)

    @property
    def peer_address(self) -> Any:
        """The peer's address in the form that its socket uses: host and port for TCP; ``None`` if there is none."""
        return self._connection.peer_address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it; ``None`` without TLS."""
        return self._connection.peer_certificate

    def stats(self) -> StreamStats:
        """Return the stream's byte counts. Can be called from any thread."""
        return StreamStats(
            bytes_sent=self._handle.sent,
            bytes_received=self._buffer.received,
            unsent_bytes=self.queued,
            unread_bytes=self._buffer.size,
        )

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        error = f" by {self.error!r}" if self.error is not None else ""
        return f"<{type(self).__name__} {self.id} to {self._connection.peer_name}, {state}{error}>"

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is None or self._closed or self._handle.ended or connection.over:
            return
        if connection.call_soon(connection.stream_dropped, self._handle):
            warnings.warn(f"{self!r} was dropped without being closed", ResourceWarning, stacklevel=2, source=self)

    def abort(self) -> None:
        """End the stream at once."""
        raise NotImplementedError

    @property
    def _broken(self) -> bool:
        return self._read_error is not None or self._write_error is not None

    # ---- reading

    async def read(self, limit: int = READ_LIMIT, *, timeout: float | None = None) -> bytes:
        """Wait for bytes and return them.

        Args:
            limit: Maximum number of bytes to return. A negative limit returns everything up to the end, but at most
                ``read_limit`` bytes (see the settings).
            timeout: Seconds to wait; ``None`` waits forever.

        Returns:
            Between one and ``limit`` bytes, as soon as there are any; ``b""`` at the end.

        Raises:
            LimitExceeded: More than ``read_limit`` bytes arrived before the end; smaller reads can return them.
            Timeout: The timeout passed.
            LocalProtocolError: Another task or thread is waiting in a read of this stream.
            MainstemError: The error that ended the stream, raised after all earlier bytes have been read. With a negative
                limit, those bytes are left for other reads.

        Example:
            >>> data = await stream.read(timeout=5)
        """
        if timeout is not None:
            return await within(timeout, self.read(limit), f"read of {self._KIND} {self.id}")
        buffer = self._buffer
        if limit < 0:
            while not self._eof:
                await self._more_than(None)
            self._check_read_limit()
            self._eof_seen = True
            data = buffer.read_all()
        else:
            while not buffer.size:
                if self._eof or not limit:
                    self._eof_seen = self._eof
                    return b""
                await self._more()
            data = buffer.read_some(limit)
        self._taken(len(data))
        return data

    async def readexactly(self, count: int, *, timeout: float | None = None) -> bytes:
        """Wait for ``count`` bytes and return them.

        Args:
            count: The number of bytes.
            timeout: Seconds to wait; ``None`` waits forever.

        Returns:
            Exactly ``count`` bytes.

        Raises:
            IncompleteRead: The stream ended first; ``partial`` has the bytes that arrived. Also an `asyncio.IncompleteReadError`.
            Timeout: The timeout passed.
            ConfigurationError: ``count`` is negative.
            LocalProtocolError: Another task or thread is waiting in a read of this stream.
            MainstemError: The error that ended the stream; the bytes that arrived are left for other reads.
        """
        if count < 0:
            raise ConfigurationError(f"count={count}: must be an integer >= 0")
        if timeout is not None:
            return await within(timeout, self.readexactly(count), f"read of {self._KIND} {self.id}")
        buffer = self._buffer
        while buffer.size < count:
            if self._eof:
                self._eof_seen = True
                partial = buffer.read_all()
                self._taken(len(partial))
                self._short_read = IncompleteReadError(partial, count)
                raise self._short_read
            await self._more_than(count)
            self._eof_seen = self._eof
        data = buffer.read_exactly(count)
        self._taken(count)
        return data

    def at_eof(self) -> bool:
        """Return whether everything has been read and no more will arrive."""
        return self._eof and not self._buffer.size

    def __aiter__(self) -> Self:
        """Iterate over data as `read` returns it, until the peer finishes its half. Raises the same errors as `read`."""
        return self

    async def __anext__(self) -> bytes:
        data = await self.read()
        if not data:
            raise StopAsyncIteration
        return data

    def _more(self) -> asyncio.Future[None]:
        """Return a future that completes when something arrives: bytes, the end of data, or an error."""
        if self._read_error is not None:
            self._reported = True
            raise self._read_error.with_traceback(None)
        if self._reader is not None and not self._reader.done():
            raise LocalProtocolError(
                f"cannot read {self._KIND} {self.id}: another call is waiting in a read of it; use one task or thread for reading",
                rule="one-reader",
            )
        self._reader = reader = self._connection.loop.create_future()
        return reader

    def _more_than(self, count: int | None) -> asyncio.Future[None]:
        """Like ``_more``, for a read that takes no bytes until all ``count`` (``None`` means all up to the end) have arrived."""
        if count is None:
            self._check_read_limit()
        if (size := self._buffer.size) > self._credited:
            ahead, self._credited = size - self._credited, size
            self._consumed(ahead)
        return self._more()

    def _check_read_limit(self) -> None:
        """Raise if there is already more than a read of everything may return, whether or not more will arrive."""
        limit = self._connection.settings.read_limit
        if self._buffer.size > limit:
            raise LimitExceeded(
                f"{self._KIND} {self.id} has more than {limit} bytes, the limit of one read", limit=limit
            )

    def _taken(self, count: int) -> None:
        """Account for ``count`` bytes that a read took out of the buffer."""
        if count:
            self._any_read = True
        if self._credited:
            credited = min(count, self._credited)
            self._credited -= credited
            count -= credited
        self._consumed(count)

    def _drop_buffer(self, error: MainstemError | None = None) -> None:
        """Drop unread data. From now on reads raise ``error``, unless everything up to the end had been read."""
        if error is not None and self._read_error is None and (self._buffer.size or not self._eof):
            self._read_error = error
            self._eof = False
        self._buffer.clear()
        self._credited = 0

    def _consumed(self, count: int) -> None:
        """Report to the protocol that ``count`` received bytes no longer count against the window."""
        raise NotImplementedError

    # ---- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes. Use :meth:`drain` to wait for the peer's credit."""
        raise NotImplementedError

    async def drain(self, *, timeout: float | None = None) -> None:
        """Wait while more than 128 KiB are queued. This wait is the back pressure.

        Returns immediately, or once the peer has given credit and the transport has room.

        Args:
            timeout: Seconds to wait; ``None`` waits forever.

        Raises:
            Timeout: The timeout passed.
            MainstemError: What ended the writing half.
        """
        self._check_writable()
        if self._handle.queue.size > WRITE_LIMIT:
            await within(timeout, self._drain_to(WRITE_LIMIT, WRITE_LIMIT // 2), f"drain of {self._KIND} {self.id}")

    async def flush(self, *, timeout: float | None = None) -> None:
        """Wait until the transport has taken all written data.

        Args:
            timeout: Seconds to wait; ``None`` waits forever.

        Raises:
            Timeout: The timeout passed.
            MainstemError: The error that ended the writing half first.
        """
        connection = self._connection
        if connection.writes:
            connection.sends_at_once = connection.is_alone = connection.writes == 1
            connection.writes = 0
        if self._handle.queue.size:
            connection.flush()
        if timeout is not None or self._handle.queue.size:
            await within(timeout, self._drain_to(0, 0), f"flush of {self._KIND} {self.id}")
        if self._write_failure is not None:
            self._check_written()

    async def _flush_in_time(self, timeout: float | None = None) -> None:
        """Flush, but fail the writing half with ``Timeout`` if no byte is sent for ``timeout`` seconds.

        The default timeout is the settings' ``stall_timeout``.
        """
        handle = self._handle
        if timeout is None:
            timeout = self._connection.stall_timeout
        while self._is_unsent():
            sent = handle.sent
            deadline = asyncio.timeout(None if timeout == math.inf else timeout)
            try:
                async with deadline:
                    await self._drain_to(0, 0)
            except TimeoutError:
                if not deadline.expired():
                    raise
                if handle.sent == sent:
                    self._give_up(timeout)
        self._check_written()

    def _is_unsent(self) -> bool:
        """Return whether the transport has not taken all written data yet, and its end if closing waits for that."""
        return bool(self._handle.queue.size)

    def _give_up(self, timeout: float) -> None:
        """End the writing half, and log that the peer took nothing for ``timeout`` seconds."""
        error = Timeout(
            f"{self._KIND} {self.id} was cut off: {self._connection.peer_name} took nothing for {timeout:g} s, "
            f"{self.queued} bytes {'' if self.queued else 'and the end '}were not sent",
            timeout=timeout,
        )
        error.unsent = self.queued
        logger.warning("%s", error)
        self._fail_writes(error)

    def _check_writable(self) -> None:
        if self._write_error is not None:
            self._reported = True
            raise self._write_error.with_traceback(None)

    def _check_written(self) -> None:
        if self._write_failure is not None:
            self._reported = True
            raise self._write_failure.with_traceback(None)

    async def _drain_to(self, limit: int, level: int) -> None:
        """If more than ``limit`` bytes are queued, wait until at most ``level`` are; at limit 0, also for the end of the data."""
        handle = self._handle
        while handle.queue.size > limit or (not limit and self._is_unsent()):
            self._connection.flush()
            if handle.queue.size > limit or (not limit and self._is_unsent()):
                self._check_writable()
                handle.notify_below = max(handle.notify_below, level)
                future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
                self._drainers = (*self._drainers, future)
                try:
                    if await future:
                        self._check_writable()
                finally:
                    self._drainers = tuple(drainer for drainer in self._drainers if drainer is not future)

    def _written(self, credit: int) -> None:
        """Flush data that was just queued: immediately if there is much and there is credit, else at the end of the loop's turn."""
        if credit and self._handle.queue.size >= EAGER_BYTES:
            self._connection.flush()
        elif not self._connection.flush_scheduled:
            self._connection.schedule_flush()

    # ---- called by the connection

    def _feed_eof(self) -> None:
        # An earlier error is final, because the data up to here is incomplete.
        self._eof = self._read_error is None
        if self._reader is not None:
            self._wake_reader()

    def _set_exception(self, error: MainstemError) -> None:
        """End both halves: from now on writing raises the error, and so does reading unless the end of data was received before."""
        if isinstance(error, ConnectionLost):
            error = _copy(error)
            error.delivery = self._delivery()
        if unsent := self._unsent():
            error = _copy(error)
            error.unsent = unsent
            error.args = (f"{error}; {unsent} bytes were not sent",)
        if not self._eof and self._read_error is None:
            self._read_error = error
            self._reported = self._reported or (self._reader is not None and not self._reader.done())
        self._wake_reader()
        self._fail_writes(error)
        if self._ends_handler():
            self._cancel_handler()

    def _fail_writes(self, error: MainstemError) -> None:
        """End the writing half: from now on writing raises the error, unless an earlier error ended it."""
        if self._write_error is None:
            self._write_error = error
            if error.unsent or (self._any_written() and not self._writing_ended()):
                self._write_failure = error
        self._complete_drainers(failed=True)

    def _wake_writers(self) -> None:
        self._complete_drainers(failed=False)

    def _complete_drainers(self, *, failed: bool) -> None:
        # Set a result, not an exception: asyncio would log the exception of a future whose task was cancelled meanwhile.
        drainers, self._drainers = self._drainers, ()
        for future in drainers:
            if not future.done():
                future.set_result(failed)

    def _cancel_handler(self) -> None:
        """Cancel the handler's task, but only once, and not if it is the caller."""
        task = self._task
        # A second cancellation would interrupt the handler's cleanup after the first.
        if task is not None and not task.cancelling():
            cancel_tasks({task})

    def _ends_handler(self) -> bool:
        """Return whether a handler is of no more use once its stream has failed."""
        return True

    def _is_own(self, error: BaseException) -> bool:
        """Return whether an error, or each in a group, only reports the end of this stream or its connection."""
        if isinstance(error, BaseExceptionGroup):
            return all(map(self._is_own, error.exceptions))
        return any(error is own for own in self._endings())

    def _endings(self) -> tuple[BaseException | None, ...]:
        """Return the errors that this stream or its connection raises because it has ended."""
        return self._read_error, self._write_error, self._write_failure, self._short_read, self._connection.failure

    def _unsent(self) -> int:
        """Return the number of written bytes that will not be sent."""
        return self.queued

    def _any_written(self) -> bool:
        return bool(self._handle.sent or self._unsent())

    def _writing_ended(self) -> bool:
        """Return whether all data and its end have been sent."""
        raise NotImplementedError

    def _delivery(self) -> Delivery:
        """Return what is known about the delivery of written bytes when the connection is lost."""
        if not self._handle.sent and not self._writing_ended():
            return Delivery.NONE
        return Delivery.PARTIAL if self._unsent() else Delivery.UNKNOWN

    def _wake_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)


# ---- called by connections and by blocking streams; functions, so that users do not see them among the methods of a stream


def handle_of(stream: BaseStream) -> Any:
    """Return the engine's handle for a stream."""
    return stream._handle


def is_closed_here(stream: BaseStream) -> bool:
    """Return whether the stream was closed or aborted on this side."""
    return stream._closed


def feed_data(stream: BaseStream, event: Any) -> None:
    """Add the bytes of a ``DataReceived`` event, or the like."""
    stream._buffer.append(event.data)
    if stream._reader is not None:
        stream._wake_reader()


def feed_eof(stream: BaseStream, _event: object) -> None:
    """Note that the peer has sent all of its data."""
    stream._feed_eof()


def wake_writers(stream: BaseStream, _event: object) -> None:
    """Complete the waits for less queued data."""
    stream._wake_writers()


def fail_stream(stream: BaseStream, error: MainstemError) -> None:
    """End both halves of a stream with an error."""
    stream._set_exception(error)


def set_handler(stream: BaseStream, task: asyncio.Task[Any]) -> None:
    """Cancel ``task``, which runs the stream's handler, once the stream fails."""
    stream._task = task


def reports_own_end(stream: BaseStream, error: BaseException) -> bool:
    """Return whether a handler's error, or each in a group, only reports the end of its stream or connection."""
    return stream._is_own(error)


def write_and_drain(stream: BaseStream, data: bytes | bytearray | memoryview, *, always: bool) -> Any:
    """Queue bytes; return the coroutine that drains the stream if it would wait or raise, or ``always``."""
    stream.write(data)
    if always or stream._write_error is not None or stream._handle.queue.size > WRITE_LIMIT:
        return stream.drain()
    return None


async def flush_in_time(stream: BaseStream) -> None:
    """Flush, but end the writing half with ``Timeout`` if no byte is sent for the settings' ``stall_timeout``."""
    await stream._flush_in_time()


def unread(stream: BaseStream, outcome: bytes | BaseException) -> None:
    """Put back what a read returned, or what it raised with `IncompleteRead`, ahead of all unread data."""
    data = outcome.partial if isinstance(outcome, IncompleteRead) else outcome
    if isinstance(data, bytes):
        stream._buffer.prepend(data)
        stream._credited += len(data)
        stream._wake_reader()
