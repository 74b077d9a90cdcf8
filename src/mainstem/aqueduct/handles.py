"""Channels as an application sees them: a `Sender` and a `Receiver`, like the two ends of an asyncio queue.

``sender, receiver = channel()`` works within the process. Sending one half inside a message of another channel, over a
connection, makes the channel a networked one: what was queued goes with it, and the code that holds the other half
cannot tell. A half can be sent once, and only where it was made.

A handle that is dropped ends its channel: a sender cancels, a receiver closes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainstem.aqueduct.events import Mode
from mainstem.aqueduct.limits import DEFAULT_SEND_BYTES
from mainstem.errors import BackPressured, Cancelled, ClosedError, LocalProtocolError, NoReceivers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

    from mainstem.aqueduct.connection import PlainSender
    from mainstem.aqueduct.remote_halves import RemoteReceiver, RemoteSender

M = TypeVar("M")

DEFAULT_BOUND = 1024
"""Messages that a sender may have queued and unacknowledged."""

YIELD_EVERY = 256
"""Sends that go through at once before the event loop gets a turn, so that a tight loop does not starve the rest."""


class Pipe:
    """What the two halves of a channel share while both are here, and what leads away once one is not."""

    __slots__ = (
        "bound",
        "cancelled",
        "closed",
        "error",
        "fast",
        "finished",
        "loop_waiters",
        "max_bytes",
        "mode",
        "oneshot",
        "queue",
        "remote_receiver",
        "remote_sender",
        "sent",
    )

    def __init__(self, *, mode: Mode, bound: int, max_bytes: int, oneshot: bool) -> None:
        self.mode = mode
        self.bound = bound
        self.max_bytes = max_bytes
        self.oneshot = oneshot
        self.queue: deque[Any] = deque()
        self.finished = False
        self.cancelled = False
        self.closed = False
        self.sent = 0
        # Where the messages go, once the receiver was sent away; where they come from, once the sender was.
        self.remote_sender: RemoteSender | None = None
        self.remote_receiver: RemoteReceiver | None = None
        # The short way for plain bytes, while the channel is networked and open.
        self.fast: PlainSender | None = None
        self.error: Exception | None = None
        self.loop_waiters: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """Something changed: whoever waits looks again."""
        waiters, self.loop_waiters = self.loop_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until something changes."""
        waiter = asyncio.get_running_loop().create_future()
        self.loop_waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # `wake` may have taken it out in the same turn.
            with contextlib.suppress(ValueError):
                self.loop_waiters.remove(waiter)
            raise


class Sender(Generic[M]):
    """The sending half of a channel.

    Once the channel has ended its error is sticky: `Cancelled`, `NoReceivers`, `LostInTransit`, `ConnectionLost`, or
    ClosedError after `finish`.
    """

    __slots__ = ("__weakref__", "_moved", "_pipe")

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._moved = False

    def __repr__(self) -> str:
        return f"<Sender {_describe(self._pipe, self._pipe.remote_sender, moved=self._moved)}>"

    async def send(self, message: M) -> None:
        """Send one message; waits while the bound on queued and unacknowledged messages is reached.

        In mode UNRELIABLE it never waits: what finds no room is dropped. Raises the channel's sticky error, and
        LocalProtocolError for a message that cannot be sent.
        """
        fast = self._pipe.fast
        if fast is None or not fast.put(message):
            await self._send_slowly(message)

    async def _send_slowly(self, message: M) -> None:
        pipe = self._pipe
        while True:
            try:
                self.send_nowait(message)
            except BackPressured:
                remote = pipe.remote_sender
                await (pipe.wait() if remote is None else remote.wait())
                continue
            pipe.sent += 1
            if pipe.sent % YIELD_EVERY == 0 or (pipe.fast is not None and pipe.fast.is_spent):
                await asyncio.sleep(0)
            return

    def send_nowait(self, message: M) -> None:
        """Send one message now. Raises BackPressured where `send` would wait."""
        pipe = self._require()
        remote = pipe.remote_sender
        if remote is not None:
            remote.check()
        if pipe.finished:
            raise ClosedError("the channel was finished; nothing more can be sent on it")
        if pipe.cancelled:
            raise Cancelled("the channel was cancelled")
        if pipe.closed:
            raise NoReceivers("the channel's receiver was closed")
        if remote is not None and not pipe.queue:
            remote.send(message)
        else:
            # Behind what was queued while both halves were here.
            if len(pipe.queue) >= pipe.bound:
                if pipe.mode is not Mode.UNRELIABLE:
                    raise BackPressured(f"{len(pipe.queue)} messages are queued; the bound is {pipe.bound}")
                pipe.queue.popleft()
            pipe.queue.append(message)
            pipe.wake()
        if pipe.oneshot:
            self.finish()

    async def send_acknowledged(self, message: M) -> None:
        """Send one message and wait until a receiver that the peer's application can reach has taken it over the
        network.

        Returns at once for a channel within the process. Raises LostInTransit where it never will be.
        """
        pipe = self._require()
        while pipe.remote_sender is not None and (pipe.queue or not pipe.remote_sender.has_room):
            pipe.remote_sender.check()
            await pipe.remote_sender.wait()
        if pipe.remote_sender is None:
            await self.send(message)
            return
        await pipe.remote_sender.send_tagged(message)
        if pipe.oneshot:
            self.finish()

    def finish(self) -> None:
        """End the channel gracefully: all that was sent is still delivered. May be called again."""
        pipe = self._pipe
        if self._moved or pipe.finished or pipe.cancelled:
            return
        pipe.finished = True
        pipe.fast = None
        if pipe.remote_sender is not None and not pipe.queue:
            pipe.remote_sender.finish()
        pipe.wake()

    def cancel(self) -> None:
        """Abandon the channel as soon as may be, with all that was not received. Without effect after `finish` went
        out."""
        pipe = self._pipe
        if self._moved or pipe.cancelled:
            return
        pipe.fast = None
        if pipe.remote_sender is not None:
            pipe.cancelled = pipe.cancelled or not pipe.finished
            pipe.queue.clear()
            pipe.remote_sender.cancel()
        elif not (pipe.finished and pipe.closed):
            pipe.cancelled = True
            pipe.queue.clear()
        pipe.wake()

    async def wait_closed(self) -> None:
        """Wait until the channel is over. Returns after a graceful end, raises the sticky error after any other."""
        pipe = self._require()
        while pipe.remote_sender is None:
            if pipe.cancelled:
                raise Cancelled("the channel was cancelled")
            if pipe.finished and (pipe.closed or not pipe.queue):
                return
            if pipe.closed:
                raise NoReceivers("the channel's receiver was closed")
            await pipe.wait()
        await pipe.remote_sender.wait_ended()

    def configure(self, *, mode: Mode | None = None, bound: int | None = None, max_bytes: int | None = None) -> None:
        """Choose how messages travel, and how many messages and bytes may be queued and unacknowledged."""
        pipe = self._require()
        pipe.mode = mode or pipe.mode
        pipe.bound = bound or pipe.bound
        pipe.max_bytes = max_bytes or pipe.max_bytes
        if pipe.remote_sender is not None:
            pipe.remote_sender.configure()

    @property
    def mode(self) -> Mode:
        return self._pipe.mode

    @property
    def is_networked(self) -> bool:
        """Messages go over a connection."""
        return self._pipe.remote_sender is not None

    def _require(self) -> Pipe:
        if self._moved:
            raise LocalProtocolError("this sender was sent away; whoever received it holds it now", rule="handle moved")
        return self._pipe

    def __enter__(self) -> Sender[M]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.cancel()

    def __del__(self) -> None:
        # A handle that was never finished made a promise that nobody can keep any more.
        pipe = getattr(self, "_pipe", None)
        if pipe is None or self._moved or pipe.finished or pipe.cancelled:
            return
        if pipe.remote_sender is not None:
            pipe.cancelled = True
            pipe.remote_sender.drop()
        else:
            pipe.cancelled = True
            pipe.queue.clear()
            _wake_from_anywhere(pipe)


class Receiver(Generic[M]):
    """The receiving half of a channel: ``async for`` over it, or `receive`.

    Iteration ends where the sender finished. Every other end is a sticky error: `Cancelled`, `LostInTransit`,
    `ConnectionLost`, and ClosedError after `close`.
    """

    __slots__ = ("__weakref__", "_moved", "_pipe")

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._moved = False

    def __repr__(self) -> str:
        return f"<Receiver {_describe(self._pipe, self._pipe.remote_receiver, moved=self._moved)}>"

    async def receive(self) -> M:
        """The next message. Raises ClosedError where the sender finished and all was received, or the sticky error."""
        while True:
            found, message = self._poll()
            if found:
                return message  # type: ignore[no-any-return]
            await self._wait()

    def receive_nowait(self) -> M | None:
        """The next message if one is there, else None. Raises like `receive`."""
        return self._poll()[1]  # type: ignore[no-any-return]

    def _poll(self) -> tuple[bool, Any]:
        pipe = self._require()
        if pipe.queue:
            message = pipe.queue.popleft()
            if pipe.loop_waiters:
                pipe.wake()
            return True, message
        if pipe.closed:
            raise ClosedError("the receiver was closed")
        if pipe.remote_receiver is not None:
            return pipe.remote_receiver.poll()
        if pipe.cancelled:
            raise Cancelled("the channel was cancelled by its sender")
        if pipe.finished:
            pipe.wake()
            raise ClosedError("the channel has finished")
        return False, None

    def close(self) -> None:
        """Close the receiver: what was not received is dropped, and the sender is told. May be called again."""
        pipe = self._pipe
        if self._moved or pipe.closed:
            return
        pipe.closed = True
        pipe.queue.clear()
        if pipe.remote_receiver is not None:
            pipe.remote_receiver.close()
        pipe.wake()

    @property
    def is_networked(self) -> bool:
        """Messages come over a connection."""
        return self._pipe.remote_receiver is not None

    def _require(self) -> Pipe:
        if self._moved:
            raise LocalProtocolError(
                "this receiver was sent away; whoever received it holds it now", rule="handle moved"
            )
        return self._pipe

    def __aiter__(self) -> AsyncIterator[M]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[M]:
        while True:
            try:
                found, message = self._poll()
            except ClosedError:
                return
            if not found:
                await self._wait()
                continue
            yield message
            remote = self._pipe.remote_receiver
            run = None if remote is None else remote.run
            # Whatever ends the channel meanwhile, with all that is unread, empties it.
            while run:
                yield run.popleft()  # type: ignore[misc]

    async def _wait(self) -> None:
        """Wait until there may be something to receive."""
        pipe = self._pipe
        await (pipe.wait() if pipe.remote_receiver is None else pipe.remote_receiver.wait())

    def __await__(self) -> Generator[Any, None, M]:
        """``await receiver``: the one message of a oneshot, or the next of a channel."""
        return self.receive().__await__()

    def __enter__(self) -> Receiver[M]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        pipe = getattr(self, "_pipe", None)
        if pipe is None or self._moved or pipe.closed:
            return
        pipe.closed = True
        if pipe.remote_receiver is not None:
            pipe.remote_receiver.drop()
        else:
            pipe.queue.clear()
            _wake_from_anywhere(pipe)


def _wake_from_anywhere(pipe: Pipe) -> None:
    """Wake waiters from a finaliser, which may run in any thread."""
    for waiter in pipe.loop_waiters:
        with contextlib.suppress(RuntimeError):
            waiter.get_loop().call_soon_threadsafe(pipe.wake)
            return


def _describe(pipe: Pipe, remote: object, *, moved: bool) -> str:
    place = "sent away" if moved else ("networked" if remote is not None else "local")
    return f"{'oneshot ' if pipe.oneshot else ''}{pipe.mode.value}, {place}"


def channel(
    *, mode: Mode = Mode.ORDERED, bound: int = DEFAULT_BOUND, max_bytes: int = DEFAULT_SEND_BYTES
) -> tuple[Sender[Any], Receiver[Any]]:
    """A new channel: its sender and its receiver.

    ``bound`` is how many messages, and ``max_bytes`` how many bytes, may be queued and unacknowledged before
    `Sender.send` waits. ``mode`` and the bounds count once the channel is networked; within the process messages keep
    their order.
    """
    pipe = Pipe(mode=mode, bound=bound, max_bytes=max_bytes, oneshot=False)
    return Sender(pipe), Receiver(pipe)


def oneshot(*, mode: Mode = Mode.UNORDERED) -> tuple[Sender[Any], Receiver[Any]]:
    """A channel for one message: ``await sender.send(x)`` finishes it, ``await receiver`` takes it."""
    pipe = Pipe(mode=mode, bound=1, max_bytes=DEFAULT_SEND_BYTES, oneshot=True)
    return Sender(pipe), Receiver(pipe)
