"""The `Sender` and `Receiver` that applications use, like the two ends of an asyncio queue.

``sender, receiver = channel()`` makes a channel within the process. Sending one half in a message of another channel, over
a connection, turns the channel into a networked one. Messages that are already queued travel with the half, and the code
that holds the other half sees no difference. A half can be sent only once, and only by the process that made it.

A handle that is garbage-collected ends its channel: a sender is aborted, a receiver closed.

How it works. Both handles of a channel share one `Pipe`, which is the channel's queue as long as both are in this process, and
passes messages through the engine once one of them has been sent away. Everything runs in one event loop, except ``__del__``,
which can run in any thread: finalizers only set a flag and schedule the rest in the loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from mainstem._internal.exit_cleanup import INHERITED
from mainstem._internal.tasks import within
from mainstem.aqueduct.events import Mode
from mainstem.aqueduct.halves import Incoming, ReceiverHalf, SenderHalf
from mainstem.aqueduct.limits import DEFAULT_LIMITS
from mainstem.aqueduct.pipe import Pipe, not_a_mode
from mainstem.aqueduct.serializers import Handle, RawSerializer
from mainstem.aqueduct.state import SenderState
from mainstem.errors import (
    Aborted,
    BackPressured,
    ChannelError,
    ClosedError,
    Delivery,
    LocalProtocolError,
    MainstemError,
    NoReceivers,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

    from mainstem.aqueduct.halves import Half
    from mainstem.aqueduct.protocol import AqueductProtocol

M = TypeVar("M")

YIELD_EVERY = 256
"""Number of sends that complete immediately before the sender yields to the event loop, so that a tight loop starves no task."""

_NOTHING: Any = object()
"""Returned by polling when there is no message."""


class _Half(Handle):
    """Base class of both handles: one end of a pipe, until it is sent away."""

    __slots__ = ("__weakref__", "_pipe")
    _pipe: Pipe

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    @property
    def _moved(self) -> bool:
        return self._pipe.is_away(is_sender=self.is_sender)

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
        outcomes = pipe.protocol.outcomes
        outcomes.add(outcome)
        outcome.add_done_callback(outcomes.discard)
        return outcome

    def _require_open(self) -> Pipe:
        """Return the pipe if another message can be sent; otherwise raise the sticky error."""
        pipe, half = self._pipe, self._pipe.half
        is_moved = half is not None and not half.is_sender
        if is_moved or pipe.finished or pipe.aborted or pipe.closed or pipe.end is not None:
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
        if pipe.finished or pipe.aborted or self._moved:
            return
        if pipe.half is not None and pipe.protocol.is_left:
            raise ClosedError(INHERITED)
        pipe.finished = True
        pipe.fast = None
        if pipe.half is not None and not pipe.queue:
            pipe.protocol.engine.finish(pipe.half.channel_id)
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
        if not (self._moved or pipe.aborted or (pipe.half is not None and pipe.protocol.is_left)):
            self.finish()
            await self.wait_closed(timeout)

    def abort(self) -> None:
        """Abandon the channel as soon as possible and drop everything not yet received. The receiver gets `Aborted`.

        Has no effect once the last frame of `finish` has been sent, or if called again.
        """
        pipe = self._pipe
        if self._moved or pipe.aborted or (pipe.half is not None and pipe.protocol.is_left):
            return
        pipe.fast = None
        if pipe.half is not None:
            pipe.aborted = not pipe.finished
            pipe.queue.clear()
            pipe.protocol.engine.cancel(pipe.half.channel_id)
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
        if pipe is None or pipe.finished or pipe.aborted:
            return
        half = pipe.half
        if half is None:
            pipe.aborted = True
            pipe.queue.clear()
            pipe.wake_from_any_thread()
        elif half.is_sender:
            # Not the receiver's, which stays here after this handle was sent away.
            pipe.aborted = True
            pipe.protocol.drop_later(half)


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
        half = pipe.half
        if half is not None and half.is_sender:
            raise self._moved_error()
        if pipe.queue:
            message = pipe.queue.popleft()
            pipe.wake()
            return message
        if half is None or pipe.closed:
            end = self._end()
            if end is not None:
                pipe.wake()
                raise end
            return _NOTHING
        protocol = pipe.protocol
        if protocol.is_left:
            raise ClosedError(INHERITED)
        if not pipe.batch:
            assert isinstance(half, ReceiverHalf)
            taken = protocol.engine.receive_from(half)
            if pipe.end is not None:
                # The channel may have been read to its end.
                protocol.look_again()
                if taken is None:
                    pipe.check()
            if taken is None:
                return _NOTHING
            if isinstance(taken, Incoming):
                return pipe.decode(taken)
            pipe.batch = taken
        payload = pipe.batch.popleft()
        return payload if type(protocol.serializer) is RawSerializer else pipe.decode_plain(payload)

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
        if not (self._moved or pipe.closed or (pipe.half is not None and pipe.protocol.is_left)):
            pipe.closed = True
            pipe.queue.clear()
            if pipe.half is not None:
                pipe.close_half()
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
                if pipe.half is not None and pipe.protocol.is_left:
                    raise
                return
            if message is _NOTHING:
                await pipe.wait()
                continue
            yield message
            # Drop the reference: a handle in the message must not live until the next message once the application drops it.
            message = None
            if pipe.batch and type(pipe.protocol.serializer) is RawSerializer:
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
        if pipe is None or pipe.closed:
            return
        half = pipe.half
        if half is None:
            pipe.closed = True
            pipe.queue.clear()
            pipe.wake_from_any_thread()
        elif not half.is_sender:
            # Not the sender's, which stays here after this handle was sent away.
            pipe.closed = True
            if pipe.end is None or half.queue:
                pipe.protocol.drop_later(half)


def make_handle(protocol: AqueductProtocol, half: Half) -> Sender[Any] | Receiver[Any]:
    """Return a handle for a half that came attached to a message, or for the entrypoint's half."""
    limits = protocol.engine.context.limits
    mode = Mode.UNORDERED if half.oneshot else Mode.ORDERED
    pipe = Pipe(mode, limits.send_messages, limits.send_bytes, oneshot=half.oneshot)
    pipe.connect(protocol, half)
    return Sender(pipe) if half.is_sender else Receiver(pipe)


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
        raise not_a_mode(mode)
    pipe = Pipe(mode, 1, DEFAULT_LIMITS.send_bytes, oneshot=True)
    return Sender(pipe), Receiver(pipe)
