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
from mainstem.aqueduct.channel_id import describe
from mainstem.aqueduct.events import NO_MESSAGES, Attach, Mode, Tally
from mainstem.aqueduct.halves import Half, Incoming, ReceiverHalf, SenderHalf
from mainstem.aqueduct.limits import DEFAULT_SEND_BYTES
from mainstem.aqueduct.serializers import Handle, RawSerializer
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

    from mainstem.aqueduct.engine import PlainSender
    from mainstem.aqueduct.runner import Runner

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
            raise ConfigurationError(f"mode={mode!r} is not a Mode")
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
        pipe = self._pipe
        fast = pipe.fast
        if fast is not None and fast.put(message):
            return
        pipe.sent += 1
        if pipe.sent % YIELD_EVERY and not (fast is not None and fast.is_spent):
            with contextlib.suppress(BackPressured):
                self.try_send(message)
                return
        await within(timeout, self._send_slowly(message), "sending a message", delivery=Delivery.NONE)

    async def _send_slowly(self, message: M) -> None:
        # Every wait is before the message is sent: a call that is cancelled has sent nothing.
        pipe = self._pipe
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
        """Receive the next message, as :meth:`mainstem.aqueduct.Receiver.receive` does.

        A call that is cancelled, or times out, has taken nothing.
        """
        is_there, message = self._poll()
        if is_there:
            return message  # type: ignore[no-any-return]
        return await within(timeout, self._receive(), "receiving a message")

    async def _receive(self) -> M:
        while True:
            await self._wait()
            is_there, message = self._poll()
            if is_there:
                return message  # type: ignore[no-any-return]

    def try_receive(self) -> M | None:
        """Receive the next message if one is there, as :meth:`mainstem.aqueduct.Receiver.try_receive` does."""
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
        """Iterate over messages until the sender closes the channel. Raises what `receive` raises."""
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
            # A handle in it that the program has dropped must not live until the next message.
            message = None
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
        raise LocalProtocolError(f"a {type(handle).__name__} is not a handle", rule="attachment")
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


class RemoteSender(Waiters):
    """A sender whose receiver is at the peer."""

    __slots__ = ("_half", "_lost", "_pipe", "_runner", "_tally", "state")

    def __init__(self, runner: Runner, half: SenderHalf, pipe: Pipe) -> None:
        super().__init__()
        self._runner = runner
        self._half = half
        self._pipe = pipe
        self._tally = NO_MESSAGES
        self.state: SenderState | None = None
        # What the errors say of the messages that were sent and not delivered.
        self._lost = ""
        half.owner = self
        self.configure()
        if half.state.is_final:
            self.ended(half.state)

    def configure(self) -> None:
        """Pass the limits on to the engine."""
        pipe, ledger = self._pipe, self._half.ledger
        pipe.fast = None
        ledger.max_messages, ledger.max_bytes = pipe.max_messages, pipe.max_bytes

    @property
    def has_room(self) -> bool:
        """Whether another message may be sent."""
        half = self._half
        if half.has_room or self._pipe.mode is Mode.UNRELIABLE:
            return True
        half.wants_room = True
        return False

    @property
    def error(self) -> MainstemError | None:
        """The sticky error; None while the channel goes on."""
        state = self.state
        if state is None:
            return None
        name = describe(self._half.channel_id)
        if state is SenderState.CANCELLED:
            return Aborted(f"channel {name} was aborted")
        if state is SenderState.NO_RECEIVERS:
            return NoReceivers(f"channel {name}: the receiver closed{self._lost}")
        if state is SenderState.LOST:
            return LostInTransit(f"channel {name}: its receiver was lost on its way{self._lost}")
        if state is SenderState.DISCONNECTED:
            delivery = Delivery.NONE if self._runner.is_untouched else self._tally.delivery
            error = ConnectionLost(f"channel {name}: {self._runner.reason}{self._lost}", delivery=delivery)
            error.__cause__ = self._runner.error
            return error
        return ClosedError(f"channel {name} was finished")

    def check(self) -> None:
        """Raise the sticky error, if the channel is over."""
        error = self.error
        if error is not None:
            self.reported()
            raise error

    def reported(self) -> None:
        """A call raises what became of the channel."""
        self._runner.reported(self)

    def send(self, message: Any, *, tag: object = None) -> None:
        """Encode and send one message and the handles in it. Raises BackPressured if there is no room."""
        self.check()
        runner, half, pipe = self._runner, self._half, self._pipe
        if not self.has_room:
            raise BackPressured(
                f"channel {describe(half.channel_id)}: its limit of queued and unacknowledged messages is reached"
            )
        handles: list[Sender[Any] | Receiver[Any]] = []

        def attach(handle: Any) -> int:
            handle = handle._half if isinstance(handle, Handle) else handle
            check_attachable(handle, handles)
            handles.append(handle)
            return len(handles) - 1

        payload = runner.serializer.encode(message, attach)
        kinds = [(Attach.SENDER if handle.is_sender else Attach.RECEIVER, handle._pipe.oneshot) for handle in handles]
        halves = runner.engine.send_on(half, payload, pipe.mode, kinds, tag)
        for handle, kept in zip(handles, halves, strict=True):
            _bind(runner, handle, kept)
        if pipe.fast is None and self.state is None and type(runner.serializer) is RawSerializer and not pipe.oneshot:
            # From here on, plain bytes bypass this method while nothing is in the way.
            pipe.fast = runner.engine.plain_sender(half.channel_id, pipe.mode)

    def send_tagged(self, message: Any) -> asyncio.Future[None]:
        """Send a message; the future is done when it is acknowledged, or fails with LostInTransit or ConnectionLost."""
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.send(message, tag=outcome)
        outcomes = self._runner.outcomes
        outcomes.add(outcome)
        outcome.add_done_callback(outcomes.discard)
        return outcome

    def drain(self) -> None:
        """Send what was queued while both halves were here, and carry out the end that was asked for meanwhile."""
        pipe = self._pipe
        try:
            while pipe.queue and self.state is None:
                self.send(pipe.queue[0])
                pipe.queue.popleft()
        except BackPressured:
            return
        except ChannelError:
            # The channel has ended, and its error is raised wherever the handle is used.
            return
        except MainstemError as error:
            # It cannot be sent, and no caller waits: the channel is cancelled.
            self._runner.log_error(
                f"channel {describe(self._half.channel_id)}: a queued message cannot be sent: {error}"
            )
            pipe.queue.clear()
            pipe.aborted = True
        if pipe.aborted:
            self.cancel()
        elif pipe.finished:
            self.finish()
        self.wake()

    def finish(self) -> None:
        self._runner.engine.finish(self._half.channel_id)

    def cancel(self) -> None:
        self._runner.engine.cancel(self._half.channel_id)

    def drop(self) -> None:
        """The handle was dropped, in whatever thread."""
        self._runner.drop_later(self._half)

    async def wait_ended(self) -> None:
        """Wait for the channel's end. Raises the sticky error after any but a graceful one."""
        while self.state is None:
            await self.wait()
        if self.state is not SenderState.FINISHED:
            self.check()

    def writable(self) -> None:
        """There is room again."""
        if self._pipe.queue or self._pipe.finished:
            self.drain()
        self.wake()

    def ended(self, state: SenderState, messages: int = 0, size: int = 0, tally: Tally = NO_MESSAGES) -> None:
        """The sender ceased to exist with this many messages, of ``size`` bytes, undelivered."""
        self.state = state
        self._tally = tally + Tally(waiting=len(self._pipe.queue))
        messages += len(self._pipe.queue)
        if messages and state in (SenderState.NO_RECEIVERS, SenderState.LOST, SenderState.DISCONNECTED):
            self._lost = f"; {messages} messages of {size} bytes were not delivered"
            self._runner.not_delivered(self)
        self._pipe.fast = None
        self._pipe.queue.clear()
        # Without the references back, what has ended is freed at once.
        self._pipe, self._half.owner = _ENDED, None
        self.wake()


_ENDED = Pipe(mode=Mode.ORDERED, max_messages=1)
"""Stands for the pipe of a sender that has ended."""


class RemoteReceiver(Waiters):
    """A receiver whose sender is at the peer."""

    __slots__ = ("_batch", "_half", "_runner", "state")

    def __init__(self, runner: Runner, half: ReceiverHalf) -> None:
        super().__init__()
        self._runner = runner
        self._half = half
        # Messages without attachments, taken from the engine together.
        self._batch: deque[bytes] = deque()
        self.state: ReceiverState | None = None
        half.owner = self
        if half.state.is_final:
            self.ended(half.state)

    @property
    def run(self) -> deque[bytes] | None:
        """Messages that are here already and need no decoding."""
        return self._batch if type(self._runner.serializer) is RawSerializer else None

    def poll(self) -> tuple[bool, Any]:
        """The next message, if there is one. Raises the sticky error, or ClosedError at the end of the channel."""
        batch = self._batch
        if not batch:
            messages = self._runner.engine.receive_next(self._half.channel_id)
            if self.state is not None:
                # It may have been read to its end.
                self._runner.look_again()
            if isinstance(messages, Incoming):
                return True, self._decode(messages)
            if messages is not None:
                batch = self._batch = messages
        if batch:
            payload = batch.popleft()
            if type(self._runner.serializer) is RawSerializer:
                return True, payload
            return True, self._decoded(payload, _detach_nothing)
        error = self.error
        if error is None:
            return False, None
        raise error

    @property
    def error(self) -> MainstemError | None:
        """The sticky error; None while there is, or may come, something to receive."""
        state = self.state
        if state is None or self._batch or self._half.queue:
            return None
        name = describe(self._half.channel_id)
        if state is ReceiverState.CANCELLED:
            return Aborted(f"channel {name} was aborted by its sender")
        if state is ReceiverState.LOST:
            return LostInTransit(f"channel {name}: its sender was lost on its way")
        if state is ReceiverState.DISCONNECTED:
            error = ConnectionLost(f"channel {name}: {self._runner.reason}")
            error.__cause__ = self._runner.error
            return error
        return ClosedError(f"channel {name} has finished")

    def _decode(self, incoming: Incoming) -> Any:
        runner = self._runner
        attachments = incoming.attachments
        if not attachments:
            return self._decoded(incoming.payload, _detach_nothing)
        handles: dict[int, Sender[Any] | Receiver[Any]] = {}

        def detach(index: int) -> Any:
            if not 0 <= index < len(attachments):
                raise IndexError(f"there is no attachment {index}")
            if index in handles:
                raise ValueError(f"attachment {index} was detached twice")
            handles[index] = make_handle(runner, attachments[index])
            return runner.present(handles[index])

        try:
            return self._decoded(incoming.payload, detach)
        except MainstemError:
            # The error's traceback would keep them.
            for handle in handles.values():
                handle.abort()
            raise
        finally:
            # What the message carried and the serialiser did not take.
            for index, attachment in enumerate(attachments):
                if index not in handles:
                    runner.engine.drop(attachment)

    def _decoded(self, payload: bytes, detach: Any) -> Any:
        try:
            return self._runner.serializer.decode(payload, detach)
        except MainstemError:
            raise
        except Exception as error:
            # Any exception of a serialiser's library: the peer chose the bytes.
            raise RemoteProtocolError(
                f"channel {describe(self._half.channel_id)}: a message cannot be decoded: {error}", rule="serialisation"
            ) from error

    def close(self) -> None:
        self._batch.clear()
        self._half.owner = None
        self._runner.engine.close_receiver(self._half.channel_id)

    def drop(self) -> None:
        """The handle was dropped, in whatever thread."""
        self._runner.drop_later(self._half)

    def ended(self, state: ReceiverState) -> None:
        """The receiver ceased to exist on the wire; what is queued can still be read after a graceful end."""
        self.state = state
        if state is not ReceiverState.FINISHED:
            self._batch.clear()
        self._half.owner = None
        self.wake()


def _detach_nothing(index: int) -> Any:
    raise IndexError(f"there is no attachment {index}")


def make_handle(runner: Runner, half: Half) -> Sender[Any] | Receiver[Any]:
    """A handle for a half that came attached to a message."""
    pipe = Pipe(
        mode=Mode.UNORDERED if half.oneshot else Mode.ORDERED, max_messages=DEFAULT_MAX_MESSAGES, oneshot=half.oneshot
    )
    if isinstance(half, SenderHalf):
        pipe.remote_sender = RemoteSender(runner, half, pipe)
        return Sender(pipe)
    pipe.remote_receiver = RemoteReceiver(runner, half)
    return Receiver(pipe)


def _bind(runner: Runner, handle: Sender[Any] | Receiver[Any], half: Half) -> None:
    """The handle left with a message: the half that stays here now leads over the connection."""
    handle._moved = True
    pipe = handle._pipe
    if isinstance(half, SenderHalf):
        pipe.remote_sender = RemoteSender(runner, half, pipe)
        if pipe.queue or pipe.finished or pipe.aborted:
            runner.loop.call_soon(pipe.remote_sender.drain)
    else:
        pipe.remote_receiver = RemoteReceiver(runner, half)
        if pipe.closed:
            pipe.remote_receiver.close()
    pipe.wake()


def channel(
    *, mode: Mode = Mode.ORDERED, max_messages: int = DEFAULT_MAX_MESSAGES, max_bytes: int = DEFAULT_SEND_BYTES
) -> tuple[Sender[Any], Receiver[Any]]:
    """Make a channel, as :func:`mainstem.aqueduct.channel` does."""
    pipe = Pipe(mode=mode, max_messages=max_messages, max_bytes=max_bytes)
    return Sender(pipe), Receiver(pipe)


def oneshot(*, mode: Mode = Mode.UNORDERED) -> tuple[Sender[Any], Receiver[Any]]:
    """Make a channel for one message, as :func:`mainstem.aqueduct.oneshot` does.

    ``await receiver`` receives it.
    """
    pipe = Pipe(mode=mode, max_messages=1, oneshot=True)
    return Sender(pipe), Receiver(pipe)
