"""The `Sender` and `Receiver` that applications use, like the two ends of an asyncio queue.

``sender, receiver = channel()`` makes a channel within the process. Sending one half in a message of another channel, over
a connection, turns the channel into a networked one. Messages that are already queued travel with the half, and the code
that holds the other half sees no difference. A half can be sent only once, and only by the process that made it.

A handle that is garbage-collected ends its channel: a sender is aborted, a receiver closed.

How it works. Both handles of a channel share one `Pipe`. While both are in this process, the pipe's queue is the channel.
Once one of them has been sent away, ``pipe.half`` is the engine's half for the handle that stays here, and messages pass
through it. ``pipe.half`` is never unset. Everything runs in one event loop, except ``__del__``, which can run in any thread:
finalizers only set a flag and schedule the rest in the loop.

Two fast paths bypass most of this for bytes. ``pipe.fast`` passes plain bytes straight to the compiled framing while nothing
is in the way (``put`` returns False as soon as something is). Iterating over a receiver empties runs of messages that were
taken from the engine together. Both fast paths are discarded the moment the channel ends, so that neither can return a
message after its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from mainstem._internal.exit_cleanup import INHERITED
from mainstem._internal.tasks import within
from mainstem._internal.validation import check_int
from mainstem.aqueduct.events import NO_PROGRESS, Attach, Mode, SendProgress
from mainstem.aqueduct.frames import describe
from mainstem.aqueduct.halves import Incoming, ReceiverHalf, SenderHalf
from mainstem.aqueduct.limits import DEFAULT_LIMITS
from mainstem.aqueduct.serializers import Handle, Message, RawSerializer
from mainstem.aqueduct.state import ReceiverState, SenderState
from mainstem.errors import (
    Aborted,
    BackPressured,
    ChannelError,
    ClosedError,
    ConfigurationError,
    ConnectionLost,
    Delivery,
    LocalProtocolError,
    LostInTransit,
    MainstemError,
    NoReceivers,
    RemoteProtocolError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

    from mainstem.aqueduct.halves import Half
    from mainstem.aqueduct.runner import Runner
    from mainstem.aqueduct.serializers import DetachFunction

M = TypeVar("M")

YIELD_EVERY = 256
"""Number of sends that complete immediately before the sender yields to the event loop, so that a tight loop starves no task."""

_NOTHING: Any = object()
"""Returned by polling when there is no message."""


def _detach_nothing(index: int) -> Any:
    raise IndexError(f"there is no attachment {index}")


@dataclass(slots=True, eq=False, repr=False)
class Pipe:
    """The state that the two handles of a channel share. The engine's half reports to it once the channel is networked."""

    mode: Mode
    max_messages: int
    max_bytes: int
    oneshot: bool = False
    queue: deque[Any] = field(default_factory=deque)
    finished: bool = False
    aborted: bool = False
    closed: bool = False
    sent: int = 0
    # What tasks wait on, and the process in which the last one runs.
    _waiters: list[asyncio.Future[None]] = field(default_factory=list)
    _waiters_pid: int = 0
    # If the channel is networked: the half that stays here, how it ended, and the fast path for plain bytes.
    half: Half | None = None
    runner: Runner = field(init=False)
    end: SenderState | ReceiverState | None = None
    fast: SenderHalf | None = None
    # Messages without attachments that were taken from the engine together.
    batch: deque[bytes] = field(default_factory=deque)
    # For a sender that has ended: the part of error messages that describes undelivered messages, and its final progress.
    _lost: str = ""
    _progress: SendProgress = NO_PROGRESS

    def configure(self, mode: Mode, max_messages: int, max_bytes: int) -> None:
        """Set how messages travel and how many can wait. Raises ConfigurationError without changing anything."""
        if not isinstance(mode, Mode):
            raise _not_a_mode(mode)
        check_int({"max_messages": max_messages, "max_bytes": max_bytes}, min_value=1)
        self.mode, self.max_messages, self.max_bytes = mode, max_messages, max_bytes
        if isinstance(self.half, SenderHalf):
            self.fast = None
            self.half.max_messages, self.half.max_bytes = max_messages, max_bytes

    # Tasks that wait for a change. Each task rereads the state when it wakes. A wake-up carries no data, so cancelling a
    # waiting task loses nothing.

    def wait(self) -> asyncio.Future[None]:
        """Return a future that is done when something changes."""
        if self._waiters:
            # The futures of cancelled tasks are done.
            self._waiters = [waiter for waiter in self._waiters if not waiter.done()]
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._waiters_pid = os.getpid()
        return waiter

    def wake(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def wake_from_any_thread(self) -> None:
        """Wake every waiting task; for finalizers, which can run in any thread. In a forked child, the tasks are the parent's."""
        if self._waiters and self._waiters_pid == os.getpid():
            # The loop may have been closed.
            with contextlib.suppress(RuntimeError):
                # The last one, because a child's own tasks may wait behind copies of its parent's.
                self._waiters[-1].get_loop().call_soon_threadsafe(self.wake)

    # A networked channel.

    def connect(self, runner: Runner, half: Half) -> None:
        """Make the channel a networked one; ``half`` is the half that stays here."""
        self.runner, self.half, half.owner = runner, half, self
        if isinstance(half, SenderHalf):
            half.max_messages, half.max_bytes = self.max_messages, self.max_bytes
            if half.state.is_final:
                self.sender_ended(half.state)
        elif half.state.is_final:
            self.receiver_ended(half.state)

    @property
    def name(self) -> str:
        assert self.half is not None
        return f"channel {describe(self.half.channel_id)}"

    def error(self) -> MainstemError | None:
        """Return the sticky error of a networked channel; None while it is open or still has messages to receive."""
        end, half = self.end, self.half
        if half is not None and self.runner.is_left:
            return ClosedError(INHERITED)
        if end is None or self.batch or (isinstance(half, ReceiverHalf) and half.queue):
            return None
        is_sender = isinstance(half, SenderHalf)
        if end in (SenderState.CANCELLED, ReceiverState.CANCELLED):
            return Aborted(f"{self.name} was aborted" + ("" if is_sender else " by its sender"))
        if end is SenderState.NO_RECEIVERS:
            return NoReceivers(f"{self.name}: the receiver closed{self._lost}")
        if end in (SenderState.LOST, ReceiverState.LOST):
            return LostInTransit(
                f"{self.name}: its {'receiver' if is_sender else 'sender'} was lost in transit{self._lost}"
            )
        if end in (SenderState.DISCONNECTED, ReceiverState.DISCONNECTED):
            error = ConnectionLost(f"{self.name}: {self.runner.reason}{self._lost}")
            if is_sender:
                error.delivery = Delivery.NONE if self.runner.is_untouched else self._progress.delivery
            error.__cause__ = self.runner.error
            return error
        return ClosedError(f"{self.name} {'was' if is_sender else 'has'} finished")

    def check(self) -> None:
        error = self.error()
        if error is not None:
            self.reported()
            raise error

    def reported(self) -> None:
        if self.half is not None:
            self.runner.reported(self)

    def send(self, message: Any, tag: object = None) -> bool:
        """Encode and send one message and the handles in it; return False if there is no room."""
        runner, half = self.runner, self.half
        assert isinstance(half, SenderHalf)
        if not half.accepts(self.mode):
            return False
        is_raw = type(runner.serializer) is RawSerializer
        if is_raw and type(message) is bytes:
            runner.engine.sending.send_on(half, message, self.mode, (), tag)
        else:
            handles: list[Sender[Any] | Receiver[Any]] = []
            kinds: list[tuple[Attach, bool]] = []

            def attach(handle: Any) -> int:
                if not isinstance(handle, _Half) and isinstance(handle, Handle):
                    handle = handle._half
                _check_attachable(handle, handles)
                kinds.append((Attach.SENDER if handle.is_sender else Attach.RECEIVER, handle._pipe.oneshot))
                handles.append(handle)
                return len(handles) - 1

            payload = runner.serializer.encode(message, attach)
            for handle, kept in zip(
                handles, runner.engine.sending.send_on(half, payload, self.mode, kinds, tag), strict=True
            ):
                _send_away(runner, handle, kept)
        if self.oneshot:
            # The engine finishes a oneshot when it sends its message.
            self.finished = True
        elif self.fast is None and is_raw and self.end is None:
            # Later messages of plain bytes can bypass this method while nothing is in the way.
            self.fast = half
        return True

    def drain(self) -> None:
        """Send the messages that were queued while both halves were here, then abort or finish if the application asked for it."""
        assert self.half is not None
        queue = self.queue
        try:
            while queue and self.end is None:
                if not self.send(queue[0]):
                    return
                queue.popleft()
        except MainstemError as error:
            # The message cannot be sent, and no caller is waiting to be told, so cancel the channel.
            self.runner.log_error(f"{self.name}: a queued message cannot be sent: {error}")
            queue.clear()
            self.aborted = True
        if self.aborted:
            self.runner.engine.cancel(self.half.channel_id)
        elif self.finished:
            self.runner.engine.finish(self.half.channel_id)
        self.wake()

    @property
    def has_unread(self) -> bool:
        return bool(self.batch)

    def writable(self) -> None:
        """Resume sending: the engine has room again."""
        if self.queue or self.finished:
            self.drain()
        self.wake()

    def sender_ended(
        self, state: SenderState, messages: int = 0, size: int = 0, progress: SendProgress = NO_PROGRESS
    ) -> None:
        queued = len(self.queue)
        self.end = state
        self._progress = progress + SendProgress(queued=queued) if queued else progress
        if messages + queued and state in (SenderState.NO_RECEIVERS, SenderState.LOST, SenderState.DISCONNECTED):
            # If the connection was lost, some of these messages may have been delivered and only their acknowledgment lost.
            what = "acknowledged" if state is SenderState.DISCONNECTED else "delivered"
            self._lost = f"; {messages + queued} messages of {size} bytes were not {what}"
            self.runner.not_delivered(self)
        self.queue.clear()
        self._ended()

    def receiver_ended(self, state: ReceiverState) -> None:
        self.end = state
        if state is not ReceiverState.FINISHED:
            self.batch.clear()
        self._ended()

    def _ended(self) -> None:
        self.fast = None
        # Break the reference cycle, so that a channel that has ended is freed immediately.
        assert self.half is not None
        self.half.owner = None
        self.wake()

    def decode(self, incoming: Incoming) -> Any:
        """Decode a message that may have attachments, and return the object that the application receives."""
        runner, attachments, present = self.runner, incoming.attachments, self.runner.present
        if not attachments:
            return self.decode_plain(incoming.payload)
        if type(runner.serializer) is RawSerializer:
            made = [make_handle(runner, each) for each in attachments]
            return Message(incoming.payload, made if present is None else list(map(present, made)))
        handles: dict[int, Sender[Any] | Receiver[Any]] = {}

        def detach(index: int) -> Any:
            if not 0 <= index < len(attachments):
                return _detach_nothing(index)
            if index in handles:
                raise ValueError(f"attachment {index} was detached twice")
            handle = handles[index] = make_handle(runner, attachments[index])
            return handle if present is None else present(handle)

        try:
            return self.decode_plain(incoming.payload, detach)
        except MainstemError:
            # The error's traceback would keep the handles alive.
            for handle in handles.values():
                handle.abort()
            raise
        finally:
            # Drop the attachments that the serializer did not take.
            for index, attachment in enumerate(attachments):
                if index not in handles:
                    runner.engine.drop(attachment)

    def decode_plain(self, payload: bytes, detach: DetachFunction = _detach_nothing) -> Any:
        try:
            return self.runner.serializer.decode(payload, detach)
        except MainstemError:
            raise
        except Exception as error:
            # The serializer's library can raise any exception, because the peer chose the bytes.
            text = f"{self.name}: a message cannot be decoded: {error}"
            raise RemoteProtocolError(text, rule="serialization") from error


class _Half(Handle):
    """Base class of both handles: one end of a pipe, until it is sent away."""

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
        where = "sent away" if self._moved else "networked" if pipe.half is not None else "local"
        kind = f"{'oneshot ' if pipe.oneshot else ''}{pipe.mode.value}"
        return f"<{type(self).__name__} {kind}, {where}, {'closed' if self.closed else 'open'}>"

    @property
    def closed(self) -> bool:
        """Whether this half can no longer be used, because its channel has ended or it was sent away."""
        return self._end() is not None

    @property
    def error(self) -> Exception | None:
        """The error that every later call raises; None while the channel is open, and after it has ended gracefully."""
        end = self._end()
        return None if isinstance(end, ClosedError) else end

    @property
    def is_networked(self) -> bool:
        """Whether messages travel over a connection."""
        return not self._moved and self._pipe.half is not None

    def _end(self) -> MainstemError | None:
        """Return the error that a call would raise because the channel has ended or this half was sent away; None if neither."""
        raise NotImplementedError


class Sender(_Half, Generic[M]):
    """The sending half of a channel, made by `channel` or `oneshot`, or received in a message.

    Once the channel has ended, its error is sticky: every call raises `Aborted`, `NoReceivers`, `LostInTransit`,
    `ConnectionLost`, or, after `finish`, ClosedError. An ``async with`` block closes the sender at its end, or aborts it if an
    exception leaves the block.

    Example:
        >>> sender, receiver = channel()
        >>> async with sender:
        ...     await sender.send(b"tide")
    """

    __slots__ = ()
    is_sender: ClassVar[bool] = True

    async def send(self, message: M, timeout: float | None = None) -> None:
        """Send one message, waiting while the channel is at its limit of queued and unacknowledged messages.

        In mode UNRELIABLE this never waits: if there is no room, a message is dropped. If the call is cancelled or times out,
        nothing was sent.

        Args:
            message: An object that the connection's serializer can encode; without a serializer, bytes or a `Message`.
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: There was no room in time.
            LocalProtocolError: The message cannot be sent, or this handle was sent away.
            ClosedError: The channel was finished.
            Aborted: The channel was aborted.
            NoReceivers: The receiver was closed.
            LostInTransit: The receiver was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.
        """
        pipe = self._pipe
        fast = pipe.fast
        if fast is not None and fast.put(message):
            return
        pipe.sent += 1
        if pipe.sent % YIELD_EVERY and not (fast is not None and fast.is_spent) and self._send_now(message):
            return
        await within(timeout, self._send_slowly(message), "sending a message", delivery=Delivery.NONE)

    async def _send_slowly(self, message: M) -> None:
        # Every wait comes before the message is sent, so a cancelled call has sent nothing.
        pipe = self._pipe
        await asyncio.sleep(0)
        if pipe.fast is not None and pipe.fast.put(message):
            return
        while not self._send_now(message):
            await pipe.wait()

    def try_send(self, message: M) -> None:
        """Send one message without waiting.

        Args:
            message: An object that the connection's serializer can encode; without a serializer, bytes or a `Message`.

        Raises:
            BackPressured: `send` would wait.
            LocalProtocolError: The message cannot be sent, or this handle was sent away.
            ClosedError: The channel was finished.
            Aborted: The channel was aborted.
            NoReceivers: The receiver was closed.
            LostInTransit: The receiver was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.
        """
        if not self._send_now(message):
            pipe = self._pipe
            raise BackPressured(
                "the channel has no room: of queued and unacknowledged messages "
                f"the limit is {pipe.max_messages}, and {pipe.max_bytes} bytes"
            )

    def _send_now(self, message: M) -> bool:
        """Send one message; return False if there is no room."""
        pipe = self._require_open()
        queue = pipe.queue
        if pipe.half is not None and not queue:
            if not pipe.send(message):
                return False
        else:
            # Queue the message: the channel is local, or messages from when it was local are still queued.
            if len(queue) >= pipe.max_messages:
                if pipe.mode is not Mode.UNRELIABLE:
                    return False
                queue.popleft()
            queue.append(message)
            pipe.wake()
            if pipe.oneshot:
                self.finish()
        return True

    async def send_acknowledged(self, message: M, timeout: float | None = None) -> None:
        """Send one message and wait until a receiver that the peer's application can reach has processed it.

        For a channel within the process, this returns immediately. If the call is cancelled or times out while it waits for the
        acknowledgment, the message has been sent.

        Args:
            message: As for `send`.
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: The message was not acknowledged in time; ``delivery`` is ``none`` if it was never sent.
            LostInTransit: The message will never be delivered.
            ConnectionLost: The connection ended first, and it is unknown whether the message arrived.
            LocalProtocolError: The message cannot be sent, or this handle was sent away.
            ClosedError: The channel was finished.
            Aborted: The channel was aborted.
            NoReceivers: The receiver was closed.
        """
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        outcome = await within(timeout, self._send_tagged(message), "sending a message", delivery=Delivery.NONE)
        if outcome is None:
            return
        left = None if until is None else max(0.0, until - loop.time())
        try:
            await within(left, outcome, "waiting for an acknowledgment")
        except ChannelError:
            self._pipe.reported()
            raise

    async def _send_tagged(self, message: M) -> asyncio.Future[None] | None:
        """Send a message; return a future for its acknowledgment, or None if the channel is within the process."""
        pipe = self._require_open()
        while isinstance(pipe.half, SenderHalf) and (pipe.queue or not pipe.half.accepts(pipe.mode)):
            await pipe.wait()
            self._require_open()
        if pipe.half is None:
            await self.send(message)
            return None
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pipe.send(message, outcome)
        outcomes = pipe.runner.outcomes
        outcomes.add(outcome)
        outcome.add_done_callback(outcomes.discard)
        return outcome

    def _require_open(self) -> Pipe:
        """Return the pipe if another message can be sent; otherwise raise the sticky error."""
        pipe = self._pipe
        if self._moved or pipe.finished or pipe.aborted or pipe.closed or pipe.end is not None:
            end = self._end()
            if end is not None:
                pipe.reported()
                raise end
        return pipe

    def _end(self) -> MainstemError | None:
        pipe = self._pipe
        if self._moved:
            return self._moved_error()
        error = pipe.error()
        if error is not None:
            return error
        if pipe.finished:
            return ClosedError("the channel was finished; nothing more can be sent on it")
        if pipe.aborted:
            return Aborted("the channel was aborted")
        if pipe.closed:
            return NoReceivers("the channel's receiver was closed")
        return None

    def finish(self) -> None:
        """End the channel gracefully: everything sent so far is still delivered. Calling it again has no effect."""
        pipe = self._pipe
        if self._moved or pipe.finished or pipe.aborted:
            return
        if pipe.half is not None and pipe.runner.is_left:
            raise ClosedError(INHERITED)
        pipe.finished = True
        pipe.fast = None
        if pipe.half is not None and not pipe.queue:
            pipe.runner.engine.finish(pipe.half.channel_id)
        pipe.wake()

    async def close(self, timeout: float | None = None) -> None:
        """Finish the channel and wait until the receiver has received everything. Can be called more than once.

        Does nothing after `abort`, or if this handle was sent away.

        Args:
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: The receiver did not receive everything in time.
            NoReceivers: The receiver was closed before it had received everything.
            LostInTransit: The receiver was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.
        """
        pipe = self._pipe
        if not (self._moved or pipe.aborted or (pipe.half is not None and pipe.runner.is_left)):
            self.finish()
            await self.wait_closed(timeout)

    def abort(self) -> None:
        """Abandon the channel as soon as possible and drop everything not yet received. The receiver gets `Aborted`.

        Has no effect once the last frame of `finish` has been sent, or if called again.
        """
        pipe = self._pipe
        if self._moved or pipe.aborted or (pipe.half is not None and pipe.runner.is_left):
            return
        pipe.fast = None
        if pipe.half is not None:
            pipe.aborted = not pipe.finished
            pipe.queue.clear()
            pipe.runner.engine.cancel(pipe.half.channel_id)
        elif not (pipe.finished and pipe.closed):
            pipe.aborted = True
            pipe.queue.clear()
        pipe.wake()

    async def wait_closed(self, timeout: float | None = None) -> None:
        """Wait until the channel has ended.

        Args:
            timeout: Seconds to wait; None waits forever.

        Raises:
            Timeout: The channel is still open.
            Aborted: The channel was aborted.
            NoReceivers: The receiver was closed before the channel had finished.
            LostInTransit: The receiver was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.
            LocalProtocolError: This handle was sent away.
        """
        await within(timeout, self._wait_closed(), "waiting for the channel's end")

    async def _wait_closed(self) -> None:
        pipe = self._require()
        while pipe.half is None:
            if pipe.aborted:
                raise Aborted("the channel was aborted")
            if pipe.finished and (pipe.closed or not pipe.queue):
                return
            if pipe.closed:
                raise NoReceivers("the channel's receiver was closed")
            await pipe.wait()
        while pipe.end is None:
            await pipe.wait()
        if pipe.end is not SenderState.FINISHED:
            pipe.check()

    def configure(
        self, *, mode: Mode | None = None, max_messages: int | None = None, max_bytes: int | None = None
    ) -> None:
        """Choose how messages travel and how many can be queued or unacknowledged.

        Args:
            mode: How messages travel; None leaves it unchanged.
            max_messages: Maximum number of queued and unacknowledged messages; None leaves it unchanged.
            max_bytes: Maximum bytes of queued and unacknowledged messages; None leaves it unchanged.

        Raises:
            LocalProtocolError: This handle was sent away.
            ConfigurationError: The mode is not a `Mode`, or a limit is not an integer >= 1.
        """
        pipe = self._require()
        pipe.configure(
            pipe.mode if mode is None else mode,
            pipe.max_messages if max_messages is None else max_messages,
            pipe.max_bytes if max_bytes is None else max_bytes,
        )

    @property
    def mode(self) -> Mode:
        """How messages travel."""
        return self._pipe.mode

    async def __aenter__(self) -> Sender[M]:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abort()
        else:
            await self.close()

    def __del__(self) -> None:
        # Without `finish`, the receiver would keep waiting for messages that can never come.
        pipe = getattr(self, "_pipe", None)
        if pipe is None or self._moved or pipe.finished or pipe.aborted:
            return
        pipe.aborted = True
        if pipe.half is not None:
            pipe.runner.drop_later(pipe.half)
        else:
            pipe.queue.clear()
            pipe.wake_from_any_thread()


class Receiver(_Half, Generic[M]):
    """The receiving half of a channel: iterate over it with ``async for``, or call `receive`.

    Iteration ends when the sender has finished. Every other end is a sticky error: `Aborted`, `LostInTransit`,
    `ConnectionLost`, or, after `close`, ClosedError. ``async with`` closes the receiver. ``await receiver`` is short for
    ``await receiver.receive()``, which suits the single message of a oneshot.

    Example:
        >>> async for message in receiver:
        ...     print(message)
    """

    __slots__ = ()
    is_sender: ClassVar[bool] = False

    async def receive(self, timeout: float | None = None) -> M:
        """Receive the next message. A call that times out, is cancelled, or is interrupted by an exception takes no message.

        Args:
            timeout: Seconds to wait; None waits forever.

        Returns:
            The oldest unread message, as decoded by the connection's serializer.

        Raises:
            Timeout: No message arrived in time.
            ClosedError: The sender finished and all was received, or this receiver was closed.
            Aborted: The sender aborted the channel.
            LostInTransit: The sender was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.
            RemoteProtocolError: The message cannot be decoded; the next call receives the message after it.
            LocalProtocolError: This handle was sent away.

        Example:
            >>> message = await receiver.receive(timeout=5)
        """
        message = self._poll()
        if message is not _NOTHING:
            return message  # type: ignore[no-any-return]
        if timeout is not None:
            return await within(timeout, self.receive(), "receiving a message")
        while message is _NOTHING:
            await self._pipe.wait()
            message = self._poll()
        return message  # type: ignore[no-any-return]

    def try_receive(self) -> M | None:
        """Receive the next message if one is available.

        Returns:
            The oldest unread message, or None if there is none yet.

        Raises:
            ClosedError: The sender finished and all was received, or this receiver was closed.
            Aborted: The sender aborted the channel.
            LostInTransit: The sender was lost on its way to the peer.
            ConnectionLost: The connection under the channel ended.
            RemoteProtocolError: The message cannot be decoded.
            LocalProtocolError: This handle was sent away.
        """
        message = self._poll()
        return None if message is _NOTHING else message

    def _put_back(self, outcome: M | BaseException) -> None:
        """Undo a call: if it took a message, make that message the next one again."""
        pipe = self._pipe
        if not isinstance(outcome, BaseException) and not pipe.closed:
            pipe.queue.appendleft(outcome)
            pipe.wake()

    def _poll(self) -> Any:
        """Take the next message, or return ``_NOTHING``. Raises the sticky error, or ClosedError at the end of the channel."""
        pipe = self._pipe
        if self._moved:
            raise self._moved_error()
        if pipe.queue:
            message = pipe.queue.popleft()
            pipe.wake()
            return message
        half = pipe.half
        if half is None or pipe.closed:
            end = self._end()
            if end is not None:
                pipe.wake()
                raise end
            return _NOTHING
        runner = pipe.runner
        if runner.is_left:
            raise ClosedError(INHERITED)
        if not pipe.batch:
            assert isinstance(half, ReceiverHalf)
            taken = runner.engine.receive_from(half)
            if pipe.end is not None:
                # The channel may have been read to its end.
                runner.look_again()
                if taken is None:
                    pipe.check()
            if taken is None:
                return _NOTHING
            if isinstance(taken, Incoming):
                return pipe.decode(taken)
            pipe.batch = taken
        payload = pipe.batch.popleft()
        return payload if type(runner.serializer) is RawSerializer else pipe.decode_plain(payload)

    def _end(self) -> MainstemError | None:
        pipe = self._pipe
        if self._moved:
            return self._moved_error()
        if pipe.queue:
            return None
        if pipe.closed:
            return ClosedError("the receiver was closed")
        if pipe.half is not None:
            return pipe.error()
        if pipe.aborted:
            return Aborted("the channel was aborted by its sender")
        if pipe.finished:
            return ClosedError("the channel has finished")
        return None

    async def close(self) -> None:
        """Close the receiver, dropping unread messages. The sender gets `NoReceivers`. Calling it again has no effect."""
        self.abort()

    def abort(self) -> None:
        """Close the receiver like `close`, which waits for nothing either, but without ``await``."""
        pipe = self._pipe
        if not (self._moved or pipe.closed or (pipe.half is not None and pipe.runner.is_left)):
            pipe.closed = True
            pipe.queue.clear()
            if pipe.half is not None:
                _close_networked(pipe)
            pipe.wake()

    def __aiter__(self) -> AsyncIterator[M]:
        """Iterate over messages until the sender finishes the channel. Raises the same errors as `receive`."""
        return self._messages()

    async def _messages(self) -> AsyncIterator[M]:
        pipe = self._pipe
        while True:
            try:
                message = self._poll()
            except ClosedError:
                if pipe.half is not None and pipe.runner.is_left:
                    raise
                return
            if message is _NOTHING:
                await pipe.wait()
                continue
            yield message
            # Drop the reference: a handle in the message must not live until the next message once the application drops it.
            message = None
            if pipe.batch and type(pipe.runner.serializer) is RawSerializer:
                # If the channel ends in a way that drops unread messages, the batch is emptied meanwhile.
                batch = pipe.batch
                while batch:
                    yield batch.popleft()  # type: ignore[misc]

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
        if pipe.half is None:
            pipe.queue.clear()
            pipe.wake_from_any_thread()
        elif pipe.end is None or pipe.half.queue:
            pipe.runner.drop_later(pipe.half)


def _close_networked(pipe: Pipe) -> None:
    assert pipe.half is not None
    pipe.batch.clear()
    pipe.half.owner = None
    pipe.runner.engine.close_receiver(pipe.half.channel_id)


def _check_attachable(handle: Any, others: list[Sender[Any] | Receiver[Any]]) -> None:
    """Check that a handle can be attached to a message beside ``others``. Raises LocalProtocolError."""
    if not isinstance(handle, Sender | Receiver):
        raise LocalProtocolError(f"a {type(handle).__name__} is not a Sender or Receiver", rule="attachment")
    if handle._moved or handle in others:
        raise LocalProtocolError("this handle was sent away already; a half can be sent only once", rule="handle moved")
    if handle._pipe.half is not None:
        raise LocalProtocolError(
            "this handle's channel is networked already; only a half that was made here can be sent, and only one of the two",
            rule="handle networked",
        )
    for other in others:
        if other._pipe is handle._pipe:
            raise LocalProtocolError("both halves of one channel in one message", rule="handle networked")


def make_handle(runner: Runner, half: Half) -> Sender[Any] | Receiver[Any]:
    """Return a handle for a half that came attached to a message, or for the entrypoint's half."""
    limits = runner.engine.context.limits
    mode = Mode.UNORDERED if half.oneshot else Mode.ORDERED
    pipe = Pipe(mode, limits.send_messages, limits.send_bytes, oneshot=half.oneshot)
    pipe.connect(runner, half)
    return Sender(pipe) if half.is_sender else Receiver(pipe)


def _send_away(runner: Runner, handle: Sender[Any] | Receiver[Any], half: Half) -> None:
    """Mark a handle as sent with a message, and connect its pipe to ``half``, the half that stays here."""
    handle._moved = True
    pipe = handle._pipe
    pipe.connect(runner, half)
    if half.is_sender:
        if pipe.queue or pipe.finished or pipe.aborted:
            runner.loop.call_soon(pipe.drain)
    elif pipe.closed:
        _close_networked(pipe)
    if pipe._waiters:
        pipe.wake()


def channel(
    *,
    mode: Mode = Mode.ORDERED,
    max_messages: int = DEFAULT_LIMITS.send_messages,
    max_bytes: int = DEFAULT_LIMITS.send_bytes,
) -> tuple[Sender[Any], Receiver[Any]]:
    """Make a channel; see :func:`mainstem.aqueduct.channel`."""
    pipe = Pipe(mode, max_messages, max_bytes)
    pipe.configure(mode, max_messages, max_bytes)
    return Sender(pipe), Receiver(pipe)


def oneshot(*, mode: Mode = Mode.UNORDERED) -> tuple[Sender[Any], Receiver[Any]]:
    """Make a channel for one message; see :func:`mainstem.aqueduct.oneshot`.

    ``await receiver`` receives it.
    """
    if not isinstance(mode, Mode):
        raise _not_a_mode(mode)
    pipe = Pipe(mode, 1, DEFAULT_LIMITS.send_bytes, oneshot=True)
    return Sender(pipe), Receiver(pipe)


def _not_a_mode(mode: object) -> ConfigurationError:
    return ConfigurationError(f"mode must be a Mode (got {mode!r})")
