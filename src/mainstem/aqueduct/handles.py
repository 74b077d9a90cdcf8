"""Channels as an application sees them: a `Sender` and a `Receiver`, like the two ends of an asyncio queue.

``sender, receiver = channel()`` works within the process. Sending one half inside a message of another channel, over a
connection, makes the channel a networked one: what was queued goes with it, and the code that holds the other half
sees no difference. A half can be sent once, and only from where it was made.

A handle that is garbage-collected ends its channel: a sender is aborted, a receiver closed.

How it works. Both handles of a channel share one `Pipe`. While both are in this process, the pipe's queue is the channel.
Once the receiver has been sent away, ``pipe.remote_sender`` takes the messages; once the sender has, ``pipe.remote_receiver``
supplies them. At most one of the two is ever set, and it is never unset. Everything runs in one event loop, except that
``__del__`` may run in any thread: finalisers only set a flag and schedule the rest in the loop.

Two short cuts keep bytes off this path. ``pipe.fast`` takes plain bytes straight to the compiled framing while nothing is in
the way (``put`` returns False as soon as something is), and iterating a receiver empties runs of messages that were taken
from the engine together. Both are dropped the moment the channel ends, so that neither can return a message after its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from mainstem._internal.tasks import within
from mainstem._internal.validation import check_int
from mainstem.aqueduct.events import Mode
from mainstem.aqueduct.limits import DEFAULT_SEND_BYTES
from mainstem.aqueduct.middleware import Handle
from mainstem.errors import (
    Aborted,
    BackPressured,
    ChannelError,
    ClosedError,
    ConfigurationError,
    Delivery,
    LocalProtocolError,
    MainstemError,
    NoReceivers,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

    from mainstem.aqueduct.connection import PlainSender
    from mainstem.aqueduct.remote_halves import RemoteReceiver, RemoteSender

M = TypeVar("M")

DEFAULT_MAX_MESSAGES = 1024
"""Messages that a sender may have queued and unacknowledged."""

YIELD_EVERY = 256
"""Sends that go through at once before the event loop gets a turn, so that a tight loop does not starve the rest."""


class Waiters:
    """Tasks that wait for something to change.

    Each reads the state again when it is woken: a wake-up carries nothing, so cancelling a waiting task loses nothing.
    """

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until something changes."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # `wake` may have removed it in the same turn.
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)
            raise

    def wake(self) -> None:
        """Wake every waiting task."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def wake_from_any_thread(self) -> None:
        """Wake every waiting task, from a finaliser."""
        if self._waiters:
            # The loop may have been closed.
            with contextlib.suppress(RuntimeError):
                self._waiters[0].get_loop().call_soon_threadsafe(self.wake)


class Pipe(Waiters):
    """What the two halves of a channel share while both are here, and where they lead once one is not."""

    __slots__ = (
        "aborted",
        "closed",
        "fast",
        "finished",
        "max_bytes",
        "max_messages",
        "mode",
        "oneshot",
        "queue",
        "remote_receiver",
        "remote_sender",
        "sent",
    )

    def __init__(
        self,
        *,
        mode: Mode,
        max_messages: int,
        max_bytes: int = DEFAULT_SEND_BYTES,
        oneshot: bool = False,
    ) -> None:
        super().__init__()
        self.configure(mode, max_messages, max_bytes)
        self.oneshot = oneshot
        self.queue: deque[Any] = deque()
        self.finished = False
        self.aborted = False
        self.closed = False
        self.sent = 0
        # Where the messages go, once the receiver was sent away; where they come from, once the sender was.
        self.remote_sender: RemoteSender | None = None
        self.remote_receiver: RemoteReceiver | None = None
        # The short way for plain bytes, while the channel is networked and open.
        self.fast: PlainSender | None = None

    def configure(self, mode: Mode, max_messages: int, max_bytes: int) -> None:
        """Set how messages travel and how many may wait. Raises ConfigurationError, and then sets nothing."""
        if not isinstance(mode, Mode):
            raise ConfigurationError(f"mode={mode!r} is no Mode")
        check_int({"max_messages": max_messages, "max_bytes": max_bytes}, min_value=1)
        self.mode, self.max_messages, self.max_bytes = mode, max_messages, max_bytes

    def describe(self) -> str:
        """The pipe in an error or a ``repr``."""
        return f"{'oneshot ' if self.oneshot else ''}{self.mode.value}"


class _Half(Handle):
    """What both handles are: one end of a pipe, until it is sent away."""

    __slots__ = ("__weakref__", "_moved", "_pipe")

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._moved = False

    def _moved_error(self) -> MainstemError:
        kind = "sender" if self.is_sender else "receiver"
        return LocalProtocolError(f"this {kind} was sent away; whoever received it holds it now", rule="handle moved")

    def _require(self) -> Pipe:
        if self._moved:
            raise self._moved_error()
        return self._pipe

    def __repr__(self) -> str:
        pipe = self._pipe
        remote = pipe.remote_sender if self.is_sender else pipe.remote_receiver
        place = "sent away" if self._moved else ("networked" if remote is not None else "local")
        return f"<{type(self).__name__} {pipe.describe()}, {place}, {'closed' if self.closed else 'open'}>"

    @property
    def closed(self) -> bool:
        """Whether the half is of no more use: its channel has ended, or it was sent away."""
        return self._end() is not None

    @property
    def error(self) -> Exception | None:
        """The error that every later call raises; None while the channel is open, and after it ended in order."""
        end = self._end()
        return None if isinstance(end, ClosedError) else end

    def _end(self) -> MainstemError | None:
        """What a call would raise because the channel is over, or this half was sent away."""
        raise NotImplementedError


class Sender(_Half, Generic[M]):
    """The sending half of a channel, made by `channel` or `oneshot`, or received in a message.

    Once the channel has ended its error is sticky: `Aborted`, `NoReceivers`, `LostInTransit`, `ConnectionLost`, or
    ClosedError after `finish`. As an asynchronous context manager it is closed at the end of the block, and aborted if an
    exception leaves the block.

    Example:
        >>> sender, receiver = channel()
        >>> async with sender:
        ...     await sender.send(b"tide")
    """

    __slots__ = ()
    is_sender: ClassVar[bool] = True

    async def send(self, message: M, timeout: float | None = None) -> None:
        """Send one message; waits while the limit on queued and unacknowledged messages is reached.

        In mode UNRELIABLE it never waits: what finds no room is dropped. A call that is cancelled, or times out, has sent
        nothing.

        Args:
            message: What the connection's serialiser encodes; bytes or `Message` without one.
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: There was no room in time.
            LocalProtocolError: The message cannot be sent, or this handle was sent away.
            ClosedError: The channel was finished.
            Aborted: The channel was aborted.
            NoReceivers: The receiver was closed.
            LostInTransit: The receiver was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.

        Example:
            >>> await sender.send(b"tide")
        """
        fast = self._pipe.fast
        if fast is None or not fast.put(message):
            await within(timeout, self._send_slowly(message), "sending a message", delivery=Delivery.NONE)

    async def _send_slowly(self, message: M) -> None:
        # Every wait is before the message is sent: a call that is cancelled has sent nothing.
        pipe = self._pipe
        pipe.sent += 1
        if pipe.sent % YIELD_EVERY == 0 or (pipe.fast is not None and pipe.fast.is_spent):
            await asyncio.sleep(0)
            if pipe.fast is not None and pipe.fast.put(message):
                return
        while True:
            try:
                self.try_send(message)
            except BackPressured:
                remote = pipe.remote_sender
                await (pipe.wait() if remote is None else remote.wait())
            else:
                return

    def try_send(self, message: M) -> None:
        """Send one message now.

        Args:
            message: What the connection's serialiser encodes; bytes or `Message` without one.

        Raises:
            BackPressured: `send` would wait.
            LocalProtocolError: The message cannot be sent, or this handle was sent away.
            ClosedError: The channel was finished.
            Aborted: The channel was aborted.
            NoReceivers: The receiver was closed.
            LostInTransit: The receiver was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.

        Example:
            >>> sender.try_send(b"tide")
        """
        pipe = self._require_open()
        remote = pipe.remote_sender
        if remote is not None and not pipe.queue:
            remote.send(message)
        else:
            # Behind what was queued while both halves were here.
            if len(pipe.queue) >= pipe.max_messages:
                if pipe.mode is not Mode.UNRELIABLE:
                    raise BackPressured(f"{len(pipe.queue)} messages are queued; the limit is {pipe.max_messages}")
                pipe.queue.popleft()
            pipe.queue.append(message)
            pipe.wake()
        if pipe.oneshot:
            self.finish()

    async def send_acknowledged(self, message: M, timeout: float | None = None) -> None:
        """Send one message and wait until a receiver that the peer's application can reach has processed it.

        Returns at once for a channel within the process. A call that is cancelled, or times out, while it waits for the
        acknowledgement has sent the message.

        Args:
            message: As for `send`.
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: It was not acknowledged in time; ``delivery`` is ``none`` if it was not even sent.
            LostInTransit: The message will never be delivered.
            ConnectionLost: The connection ended first; whether the message arrived is not known.
            LocalProtocolError: The message cannot be sent, or this handle was sent away.
            ClosedError: The channel was finished.
            Aborted: The channel was aborted.
            NoReceivers: The receiver was closed.

        Example:
            >>> await sender.send_acknowledged(b"tide")
        """
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        outcome = await within(timeout, self._send_tagged(message), "sending a message", delivery=Delivery.NONE)
        if outcome is None:
            return
        left = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
        try:
            await within(left, outcome, "waiting for an acknowledgement")
        except ChannelError:
            if self._pipe.remote_sender is not None:
                self._pipe.remote_sender.reported()
            raise

    async def _send_tagged(self, message: M) -> asyncio.Future[None] | None:
        """Sends a message; returns the future of its acknowledgement, or None within the process."""
        pipe = self._require_open()
        while pipe.remote_sender is not None and (pipe.queue or not pipe.remote_sender.has_room):
            await pipe.remote_sender.wait()
            self._require_open()
        if pipe.remote_sender is None:
            await self.send(message)
            return None
        outcome = pipe.remote_sender.send_tagged(message)
        if pipe.oneshot:
            # Before the wait, which may be cancelled: the message is on its way.
            self.finish()
        return outcome

    def _require_open(self) -> Pipe:
        """The pipe, where another message may be sent. Raises the sticky error elsewhere."""
        end = self._end()
        if end is not None:
            if self._pipe.remote_sender is not None:
                self._pipe.remote_sender.reported()
            raise end
        return self._pipe

    def _end(self) -> MainstemError | None:
        pipe = self._pipe
        if self._moved:
            return self._moved_error()
        if pipe.remote_sender is not None and pipe.remote_sender.error is not None:
            return pipe.remote_sender.error
        if pipe.finished:
            return ClosedError("the channel was finished; nothing more can be sent on it")
        if pipe.aborted:
            return Aborted("the channel was aborted")
        if pipe.closed:
            return NoReceivers("the channel's receiver was closed")
        return None

    def finish(self) -> None:
        """End the channel gracefully: all that was sent is still delivered. May be called again.

        Example:
            >>> sender.finish()
        """
        pipe = self._pipe
        if self._moved or pipe.finished or pipe.aborted:
            return
        pipe.finished = True
        pipe.fast = None
        if pipe.remote_sender is not None and not pipe.queue:
            pipe.remote_sender.finish()
        pipe.wake()

    async def close(self, timeout: float | None = None) -> None:
        """Finish the channel, and wait until all was received. May be called again.

        Does nothing after `abort`, or if it was sent away.

        Args:
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: The receiver did not have everything in time.
            NoReceivers: The receiver was closed before it had everything.
            LostInTransit: The receiver was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.

        Example:
            >>> await sender.close()
        """
        if not self._moved and not self._pipe.aborted:
            self.finish()
            await self.wait_closed(timeout)

    def abort(self) -> None:
        """Abandon the channel as soon as possible, with all that was not received. The receiver gets `Aborted`.

        Without effect once the last frame of `finish` has gone out. May be called again.

        Example:
            >>> sender.abort()
        """
        pipe = self._pipe
        if self._moved or pipe.aborted:
            return
        pipe.fast = None
        if pipe.remote_sender is not None:
            pipe.aborted = pipe.aborted or not pipe.finished
            pipe.queue.clear()
            pipe.remote_sender.cancel()
        elif not (pipe.finished and pipe.closed):
            pipe.aborted = True
            pipe.queue.clear()
        pipe.wake()

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Wait until the channel is over.

        Args:
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: The channel goes on.
            Aborted: The channel was aborted.
            NoReceivers: The receiver was closed before the channel had finished.
            LostInTransit: The receiver was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.
            LocalProtocolError: This handle was sent away.

        Example:
            >>> sender.finish()
            >>> await sender.wait_closed()
        """
        await within(timeout, self._wait_closed(), "waiting for the channel's end")

    async def _wait_closed(self) -> None:
        pipe = self._require()
        while pipe.remote_sender is None:
            if pipe.aborted:
                raise Aborted("the channel was aborted")
            if pipe.finished and (pipe.closed or not pipe.queue):
                return
            if pipe.closed:
                raise NoReceivers("the channel's receiver was closed")
            await pipe.wait()
        await pipe.remote_sender.wait_ended()

    def configure(
        self, *, mode: Mode | None = None, max_messages: int | None = None, max_bytes: int | None = None
    ) -> None:
        """Choose how messages travel, and how many may be queued and unacknowledged.

        Args:
            mode: How messages travel; None leaves it.
            max_messages: Messages that may be queued and unacknowledged; None leaves it.
            max_bytes: Bytes that may be queued and unacknowledged; None leaves it.

        Raises:
            LocalProtocolError: This handle was sent away.
            ConfigurationError: The mode is not a `Mode`, or a limit is not a whole number >= 1.

        Example:
            >>> sender.configure(mode=Mode.UNRELIABLE)
        """
        pipe = self._require()
        pipe.configure(
            pipe.mode if mode is None else mode,
            pipe.max_messages if max_messages is None else max_messages,
            pipe.max_bytes if max_bytes is None else max_bytes,
        )
        if pipe.remote_sender is not None:
            pipe.remote_sender.configure()

    @property
    def mode(self) -> Mode:
        """How messages travel."""
        return self._pipe.mode

    @property
    def is_networked(self) -> bool:
        """Whether messages go over a connection."""
        return self._pipe.remote_sender is not None

    async def __aenter__(self) -> Sender[M]:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abort()
        else:
            await self.close()

    def __del__(self) -> None:
        # Without `finish` the receiver still expects messages, and none can come any more.
        pipe = getattr(self, "_pipe", None)
        if pipe is None or self._moved or pipe.finished or pipe.aborted:
            return
        pipe.aborted = True
        if pipe.remote_sender is not None:
            pipe.remote_sender.drop()
        else:
            pipe.queue.clear()
            pipe.wake_from_any_thread()


class Receiver(_Half, Generic[M]):
    """The receiving half of a channel: ``async for`` over it, or `receive`.

    Iteration ends where the sender finished. Every other end is a sticky error: `Aborted`, `LostInTransit`,
    `ConnectionLost`, and ClosedError after `close`. ``async with`` closes it. ``await receiver`` is
    ``await receiver.receive()``: the one message of a oneshot.

    Example:
        >>> async for message in receiver:
        ...     print(message)
    """

    __slots__ = ()
    is_sender: ClassVar[bool] = False

    async def receive(self, timeout: float | None = None) -> M:
        """Receive the next message. A call that is cancelled, or times out, has taken nothing.

        Args:
            timeout: Seconds to wait; None waits forever.

        Returns:
            The oldest message that was not received, as the connection's serialiser decodes it.

        Raises:
            Timeout: No message came in time.
            ClosedError: The sender finished and all was received, or this receiver was closed.
            Aborted: The sender aborted the channel.
            LostInTransit: The sender was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.
            RemoteProtocolError: The message cannot be decoded; the next call receives the one after it.
            LocalProtocolError: This handle was sent away.

        Example:
            >>> message = await receiver.receive()
        """
        is_there, message = self._poll()
        if is_there:
            return message  # type: ignore[no-any-return]
        return await within(timeout, self._receive(), "receiving a message")

    async def _receive(self) -> M:
        while True:
            is_there, message = self._poll()
            if is_there:
                return message  # type: ignore[no-any-return]
            await self._wait()

    def try_receive(self) -> M | None:
        """Receive the next message if one is there.

        Returns:
            The oldest message that was not received; None where there is none now.

        Raises:
            ClosedError: The sender finished and all was received, or this receiver was closed.
            Aborted: The sender aborted the channel.
            LostInTransit: The sender was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.
            RemoteProtocolError: The message cannot be decoded.
            LocalProtocolError: This handle was sent away.

        Example:
            >>> while (message := receiver.try_receive()) is not None:
            ...     print(message)
        """
        return self._poll()[1]  # type: ignore[no-any-return]

    def _put_back(self, outcome: M | BaseException) -> None:
        """Undo a call that took a message, if it did: the message is the next one again."""
        pipe = self._pipe
        if isinstance(outcome, BaseException) or pipe.closed:
            return
        pipe.queue.appendleft(outcome)
        pipe.wake()
        if pipe.remote_receiver is not None:
            pipe.remote_receiver.wake()

    def _poll(self) -> tuple[bool, Any]:
        pipe = self._require()
        if pipe.queue:
            message = pipe.queue.popleft()
            pipe.wake()
            return True, message
        if pipe.remote_receiver is not None and not pipe.closed:
            return pipe.remote_receiver.poll()
        end = self._end()
        if end is not None:
            pipe.wake()
            raise end
        return False, None

    def _end(self) -> MainstemError | None:
        pipe = self._pipe
        if self._moved:
            return self._moved_error()
        if pipe.queue:
            return None
        if pipe.closed:
            return ClosedError("the receiver was closed")
        if pipe.remote_receiver is not None:
            return pipe.remote_receiver.error
        if pipe.aborted:
            return Aborted("the channel was aborted by its sender")
        if pipe.finished:
            return ClosedError("the channel has finished")
        return None

    async def close(self) -> None:
        """Close the receiver: what was not received is dropped, and the sender gets `NoReceivers`. May be called again.

        Example:
            >>> await receiver.close()
        """
        self.abort()

    def abort(self) -> None:
        """The same as `close`, which has nothing to wait for, as a plain call.

        Example:
            >>> receiver.abort()
        """
        pipe = self._pipe
        if not self._moved and not pipe.closed:
            pipe.closed = True
            pipe.queue.clear()
            if pipe.remote_receiver is not None:
                pipe.remote_receiver.close()
            pipe.wake()

    @property
    def is_networked(self) -> bool:
        """Whether messages come over a connection."""
        return self._pipe.remote_receiver is not None

    def __aiter__(self) -> AsyncIterator[M]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[M]:
        while True:
            try:
                is_there, message = self._poll()
            except ClosedError:
                return
            if not is_there:
                await self._wait()
                continue
            yield message
            remote = self._pipe.remote_receiver
            run = None if remote is None else remote.run
            # An end that drops what is unread empties the run.
            while run:
                yield run.popleft()  # type: ignore[misc]

    async def _wait(self) -> None:
        """Wait until there may be something to receive."""
        pipe = self._pipe
        await (pipe.wait() if pipe.remote_receiver is None else pipe.remote_receiver.wait())

    def __await__(self) -> Generator[Any, None, M]:
        return self.receive().__await__()

    async def __aenter__(self) -> Receiver[M]:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()

    def __del__(self) -> None:
        pipe = getattr(self, "_pipe", None)
        if pipe is None or self._moved or pipe.closed:
            return
        pipe.closed = True
        if pipe.remote_receiver is not None:
            pipe.remote_receiver.drop()
        else:
            pipe.queue.clear()
            pipe.wake_from_any_thread()


def check_attachable(handle: Any, others: list[Sender[Any] | Receiver[Any]]) -> None:
    """Check that a handle can go with a message that carries the ``others``. Raises LocalProtocolError."""
    if not isinstance(handle, Sender | Receiver):
        raise LocalProtocolError(f"a {type(handle).__name__} is no handle", rule="attachment")
    pipe = handle._pipe
    if handle._moved or any(handle is other for other in others):
        raise LocalProtocolError("this handle was sent away already; a half can be sent once", rule="handle moved")
    if pipe.remote_sender is not None or pipe.remote_receiver is not None:
        raise LocalProtocolError(
            "this handle's channel is networked already; only a half that was made here can be sent, and only one of the two",
            rule="handle networked",
        )
    if any(pipe is other._pipe for other in others):
        raise LocalProtocolError("both halves of one channel in one message", rule="handle networked")


def pipe_of(handle: Sender[Any] | Receiver[Any]) -> Pipe:
    """The pipe that a handle is an end of."""
    return handle._pipe


def move_away(handle: Sender[Any] | Receiver[Any]) -> Pipe:
    """Mark a handle as sent away: from here on it raises. Returns its pipe, which the half that stays goes on with."""
    assert not handle._moved, "a half can be sent once"
    handle._moved = True
    return handle._pipe


def channel(
    *, mode: Mode = Mode.ORDERED, max_messages: int = DEFAULT_MAX_MESSAGES, max_bytes: int = DEFAULT_SEND_BYTES
) -> tuple[Sender[Any], Receiver[Any]]:
    """Make a channel. Mode and bounds count once it is networked; within the process messages keep their order.

    Args:
        mode: How messages travel.
        max_messages: Messages that may be queued and unacknowledged before `Sender.send` waits.
        max_bytes: Bytes that may be queued and unacknowledged before `Sender.send` waits.

    Returns:
        The channel's sender and its receiver.

    Raises:
        ConfigurationError: The mode is not a `Mode`, or a limit is not a whole number >= 1.

    Example:
        >>> sender, receiver = channel()
        >>> await connection.sender.send({"subscribe": "tide", "updates": sender})
        >>> async for update in receiver:
        ...     print(update)
    """
    pipe = Pipe(mode=mode, max_messages=max_messages, max_bytes=max_bytes)
    return Sender(pipe), Receiver(pipe)


def oneshot(*, mode: Mode = Mode.UNORDERED) -> tuple[Sender[Any], Receiver[Any]]:
    """Make a channel for one message: sending it finishes the channel.

    Args:
        mode: How the message travels.

    Returns:
        The channel's sender and its receiver.

    Example:
        >>> sender, receiver = oneshot()
        >>> await connection.sender.send({"text": "tide", "response": sender})
        >>> print(await receiver)
    """
    pipe = Pipe(mode=mode, max_messages=1, oneshot=True)
    return Sender(pipe), Receiver(pipe)
