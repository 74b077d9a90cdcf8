"""A stream for asyncio: the reading and the writing half, the same for every multiplexer.

A :class:`BaseStream` stands between three parties, all in the thread of one event loop:

* the user's tasks, which call ``read``, ``write``, ``drain`` and the like;
* the connection (:mod:`mainstem.mux.connection`), which calls ``_feed_data``, ``_feed_eof``, ``_set_exception``, ``_fail_writes``
  and ``_wake_writers`` for the engine's events;
* the engine's handle of the stream (bymux's ``StreamState``, Jmux's ``Session``), which holds the bytes that wait to be sent
  (``queue``) and counts those that were received and not yet read (``unconsumed``).

What is where: received bytes wait in ``_buffer`` here, and only here. They count against the window that the peer was given
until ``_consumed`` reports them to the protocol, which then restores the peer's credit. Written bytes wait in the handle's
queue until credit and a turn let them leave; this class has no copy of them.

Reads are safe to cancel: a read waits first and takes bytes out of the buffer afterwards, in one step without ``await``, when it
can return all that it was called for. A read of more bytes than the window would wait forever that way, so while it waits the
bytes in the buffer are reported as consumed; ``_credited`` counts those, and those that ``_unread`` put back, which are not
reported again when they are read. The buffer therefore holds at most the window
beyond the largest read that ever waited, or ``read_limit`` bytes for ``read(-1)``.

Invariants:

* One task reads at a time (a second one gets ``RuntimeError``); any number may write, and wait in ``drain``.
* ``_eof`` and ``_read_error`` exclude each other in effect: an error after the peer's end of data is not an error for readers.
  Both are final, and bytes that arrived before them are read first.
* ``_write_error`` is the first error of the writing half and is final; later ones do not replace it. ``_write_failure`` is the
  same error when written bytes may be lost by it: ``flush`` and ``close`` raise it, and so does the end of the block unless it
  was raised before. It is not set by an abort from this side, nor once the writing half had ended in order.
* A future in ``_drainers`` is completed by exactly one of ``_wake_writers`` and ``_fail_writes``; one whose task was cancelled
  is removed.

A stream that a peer opened is served by a handler in a task of its own (``_task``). ``_set_exception`` cancels it: nothing that it
could still do for the stream has an effect. Whether a handler failed is decided by the identity of what it raised (``_is_own``):
the end of its own stream is not a failure, the same exception from another connection is.

Nothing below keeps a stream alive: the engine's handle has a weak reference (``owner``). A stream that the program drops open
warns (``ResourceWarning``) and is aborted. Its handler, a call that waits, and a stream that was not handed out yet keep it alive.

Order: bytes of one stream arrive and leave in order. Between streams nothing is ordered.
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
from mainstem.errors import ClosedError, ConnectionLost, Delivery, LimitExceeded, MainstemError, Timeout
from mainstem.mux.connection import logger

if TYPE_CHECKING:
    from typing import Self

    from mainstem.mux.connection import BaseConnection

# What one `read` returns at most by default.
READ_LIMIT = 256 * 1024
# `drain` waits while more than this is queued, and returns once half of it is left.
WRITE_LIMIT = 128 * 1024
# A write past this many queued bytes is sent at once instead of at the end of the event loop's turn.
EAGER_BYTES = 64 * 1024


X = TypeVar("X", bound=MainstemError)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStats:
    """What passed through one stream, and what waits in it.

    Attributes:
        bytes_sent: Bytes that were handed to the transport.
        bytes_received: Bytes that arrived.
        unsent_bytes: Written bytes that wait for credit or for their turn.
        unread_bytes: Bytes that arrived and were not read.
    """

    bytes_sent: int
    bytes_received: int
    unsent_bytes: int
    unread_bytes: int


def _copy(error: X) -> X:
    """A copy of an error that several streams share, for the facts of one of them."""
    own = copy.copy(error)
    own.__cause__ = error
    return own


class BaseStream:
    """The base of a multiplexed stream for asyncio.

    One task may read at a time; any number may wait in :meth:`drain`. ``async for`` yields what arrives until the end. Every
    read may be cancelled, by a time-out for instance: what it did not return is returned by the next one.
    """

    _KIND: ClassVar = "stream"

    _engine: Any
    _closed = False  # it was closed or aborted here
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
    _short_read: asyncio.IncompleteReadError | None = None

    def __init__(self, connection: BaseConnection, handle: Any) -> None:
        self._handle = handle
        self._engine = connection.engine
        self._buffer = InBuffer()
        handle.owner = weakref.ref(self)
        self._connection = connection

    @property
    def id(self) -> int:
        """The id on the wire."""
        return int(self._handle.id)

    @property
    def queued(self) -> int:
        """Written bytes that wait for credit or for their turn."""
        return int(self._handle.queue.size)

    @property
    def closed(self) -> bool:
        """Whether it was closed here, or both directions have ended; what had arrived before may still be read."""
        return self._closed or bool(self._handle.ended) or self._connection.over

    @property
    def error(self) -> MainstemError | None:
        """What ended it early; ``None`` while it is open, and after an end in order or from this side that lost nothing."""
        error = self._read_error or self._write_error
        return None if isinstance(error, ClosedError) and not error.unsent else error

    @property
    def peer_address(self) -> Any:
        """The peer's address as its socket names it: host and port for TCP; ``None`` when there is none."""
        return self._connection.peer_address

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's TLS certificate as :meth:`ssl.SSLSocket.getpeercert` returns it; ``None`` without TLS."""
        return self._connection.peer_certificate

    def stats(self) -> StreamStats:
        """Return what passed through the stream and what waits in it; may be called in any thread."""
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

    @property
    def _broken(self) -> bool:
        """Whether an error ended reading or writing."""
        return self._read_error is not None or self._write_error is not None

    # ---- reading

    async def read(self, limit: int = READ_LIMIT, *, timeout: float | None = None) -> bytes:
        """Wait for bytes and return them.

        Args:
            limit: The most bytes to return. A negative limit returns everything up to the end, at most the settings'
                ``read_limit``.
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            Between one and ``limit`` bytes as soon as there are some; ``b""`` at the end.

        Raises:
            LimitExceeded: More than ``read_limit`` bytes came before the end; smaller reads return them.
            Timeout: The timeout passed.
            MainstemError: What ended the stream, after the bytes from before it were read. With a negative limit those
                bytes are left for other reads.

        Example:
            >>> data = await stream.read(timeout=5)
        """
        if timeout is not None:
            return await within(timeout, self.read(limit), f"read of {self._KIND} {self.id}")
        buffer = self._buffer
        if limit < 0:
            while not self._eof:
                await self._more_than(None)
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
            count: How many bytes.
            timeout: Seconds to wait; ``None`` waits without a limit.

        Returns:
            Exactly ``count`` bytes.

        Raises:
            asyncio.IncompleteReadError: The stream ended before (an ``EOFError``); ``partial`` has the bytes that came.
            Timeout: The timeout passed.
            MainstemError: What broke the stream off; the bytes that came are left for other reads.
        """
        if timeout is not None:
            return await within(timeout, self.readexactly(count), f"read of {self._KIND} {self.id}")
        buffer = self._buffer
        while buffer.size < count:
            if self._eof:
                self._eof_seen = True
                partial = buffer.read_all()
                self._taken(len(partial))
                self._short_read = asyncio.IncompleteReadError(partial, count)
                raise self._short_read
            await self._more_than(count)
            self._eof_seen = self._eof
        data = buffer.read_exactly(count)
        self._taken(count)
        return data

    def _unread(self, data: bytes) -> None:
        """Put back what a read returned, before everything that is still to be read."""
        self._buffer.prepend(data)
        self._credited += len(data)
        self._wake_reader()

    def at_eof(self) -> bool:
        """Return whether everything was read and no more will come."""
        return self._eof and not self._buffer.size

    def __aiter__(self) -> Self:
        """Iterate over the data as `read` returns it, until the peer finishes its half. Raises what `read` raises."""
        return self

    async def __anext__(self) -> bytes:
        data = await self.read()
        if not data:
            raise StopAsyncIteration
        return data

    def _more(self) -> asyncio.Future[None]:
        """A future that completes when something comes: bytes, their end, or an error."""
        if self._read_error is not None:
            self._reported = True
            raise self._read_error.with_traceback(None)
        if self._reader is not None and not self._reader.done():
            raise RuntimeError("another task is reading from this stream already")
        self._reader = reader = self._connection.loop.create_future()
        return reader

    def _more_than(self, count: int | None) -> asyncio.Future[None]:
        """The same for a read of ``count`` bytes (``None``: of all), which takes none before they are there."""
        if size := self._buffer.size:
            if count is None and size > (limit := self._connection.settings.read_limit):
                text = f"{self._KIND} {self.id} has more than {limit} bytes, the limit of one read"
                raise LimitExceeded(text, limit=limit)
            if size > self._credited:
                ahead, self._credited = size - self._credited, size
                self._consumed(ahead)
        return self._more()

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
        """Drop what was not read. Reads raise ``error`` from now on, unless everything up to the end had been read."""
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
        """Queue bytes; :meth:`drain` waits for the peer's credit."""
        raise NotImplementedError

    async def drain(self, *, timeout: float | None = None) -> None:
        """Wait while more than 128 KiB are queued: this is where back pressure is felt.

        Return at once, or when the peer has given credit and the transport has room.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Raises:
            Timeout: The timeout passed.
            MainstemError: What ended the writing half.
        """
        self._check_writable()
        if self._handle.queue.size > WRITE_LIMIT:
            await within(timeout, self._drain_to(WRITE_LIMIT, WRITE_LIMIT // 2), f"drain of {self._KIND} {self.id}")

    async def flush(self, *, timeout: float | None = None) -> None:
        """Wait until the transport has taken everything that was written.

        Args:
            timeout: Seconds to wait; ``None`` waits without a limit.

        Raises:
            Timeout: The timeout passed.
            MainstemError: What ended the writing half before that.
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
        """Flush. Fail the writing half with ``Timeout`` after ``timeout`` seconds in which no byte left.

        The default is the settings' ``stall_timeout``.
        """
        handle = self._handle
        if timeout is None:
            timeout = self._connection.stall_timeout
        while handle.queue.size:
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

    def _give_up(self, timeout: float) -> None:
        """End the writing half because the peer took nothing for ``timeout`` seconds, which is logged."""
        error = Timeout(
            f"{self._KIND} {self.id} was cut off: {self._connection.peer_name} took nothing for {timeout:g} s, "
            f"{self.queued} bytes were not sent",
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
        """Wait while more than ``limit`` bytes are queued, until at most ``level`` are."""
        handle = self._handle
        while handle.queue.size > limit:
            self._connection.flush()
            if handle.queue.size > limit:
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
        """Let what was just queued leave: at once when it is much and there is credit, else with this turn of the loop."""
        if credit and self._handle.queue.size >= EAGER_BYTES:
            self._connection.flush()
        elif not self._connection.flush_scheduled:
            self._connection.schedule_flush()

    # ---- called by the connection

    def _feed_data(self, data: bytes) -> None:
        """Add received bytes, which are not copied."""
        self._buffer.append(data)
        if self._reader is not None:
            self._wake_reader()

    def _feed_eof(self) -> None:
        """Mark the end of the peer's bytes."""
        # An error before it is final: the data up to here is incomplete.
        self._eof = self._read_error is None
        if self._reader is not None:
            self._wake_reader()

    def _set_exception(self, error: MainstemError) -> None:
        """Break both halves off: reading (unless the end of data was received before) and writing raise the error from now on."""
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
        """End the writing half: writing raises the error from now on, unless an earlier one ended it."""
        if self._write_error is None:
            self._write_error = error
            if error.unsent or (self._any_written() and not self._writing_ended()):
                self._write_failure = error
        self._complete_drainers(failed=True)

    def _wake_writers(self) -> None:
        self._complete_drainers(failed=False)

    def _complete_drainers(self, *, failed: bool) -> None:
        # A result and not an exception: that of a future whose task was cancelled meanwhile would be logged by asyncio.
        drainers, self._drainers = self._drainers, ()
        for future in drainers:
            if not future.done():
                future.set_result(failed)

    def _attach_handler(self, task: asyncio.Task[Any]) -> None:
        self._task = task

    def _cancel_handler(self) -> None:
        """Cancel the handler's task, once, unless it is the caller."""
        task = self._task
        # A second cancellation would interrupt what the handler does to clean up after the first.
        if task is not None and not task.cancelling() and task is not asyncio.current_task(task.get_loop()):
            task.cancel()

    def _ends_handler(self) -> bool:
        """Whether nothing that the handler could still do matters once the stream broke."""
        return True

    def _is_own(self, error: BaseException) -> bool:
        """Whether an error, or each of a group, reports the end of this stream or of its connection: no handler failed by it."""
        if isinstance(error, BaseExceptionGroup):
            return all(map(self._is_own, error.exceptions))
        return any(error is own for own in self._endings())

    def _endings(self) -> tuple[BaseException | None, ...]:
        """What this stream, or its connection, raises because it has ended."""
        return self._read_error, self._write_error, self._write_failure, self._short_read, self._connection.failure

    def _unsent(self) -> int:
        """Bytes that were written and will not be sent."""
        return self.queued

    def _any_written(self) -> bool:
        """Whether anything was written, sent or not."""
        return bool(self._handle.sent or self._unsent())

    def _writing_ended(self) -> bool:
        """Whether everything was sent, and the end of it."""
        raise NotImplementedError

    def _delivery(self) -> Delivery:
        """What a lost connection lets assume about the bytes that were written."""
        if not self._handle.sent and not self._writing_ended():
            return Delivery.NONE
        return Delivery.PARTIAL if self._unsent() else Delivery.UNKNOWN

    def _wake_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)
