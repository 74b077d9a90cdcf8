"""What the two handles of a channel share: a queue while both are in this process, the engine's half once one was sent away.

While both handles are here, the pipe's queue is the channel. Once one of them has been sent in a message, ``half`` is the engine's
half for the handle that stays here, and messages pass through it. ``half`` is never unset, so a handle was sent away if ``half``
is that of the other one. Everything runs in one event loop, except `Pipe.wake_from_any_thread`.

``fast`` passes plain bytes straight to the compiled framing while nothing is in the way (``put`` returns False as soon as
something is), and ``batch`` holds messages that were taken from the engine together. Both are discarded the moment the channel
ends, so that neither can return a message after its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem._internal.exit_cleanup import INHERITED
from mainstem._internal.validation import check_int
from mainstem.aqueduct.events import NO_PROGRESS, Attach, Mode, SendProgress
from mainstem.aqueduct.frames import describe
from mainstem.aqueduct.halves import ReceiverHalf, SenderHalf
from mainstem.aqueduct.serializers import Handle, Message, RawSerializer
from mainstem.aqueduct.state import ReceiverState, SenderState
from mainstem.errors import (
    Aborted,
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
    from mainstem.aqueduct.halves import Half, Incoming
    from mainstem.aqueduct.protocol import AqueductProtocol
    from mainstem.aqueduct.serializers import DetachFunction


def not_a_mode(mode: object) -> ConfigurationError:
    return ConfigurationError(f"mode must be a Mode (got {mode!r})")


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
    protocol: AqueductProtocol = field(init=False)
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
            raise not_a_mode(mode)
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

    def connect(self, protocol: AqueductProtocol, half: Half) -> None:
        """Make the channel a networked one; ``half`` is the half that stays here."""
        self.protocol, self.half, half.owner = protocol, half, self
        if isinstance(half, SenderHalf):
            half.max_messages, half.max_bytes = self.max_messages, self.max_bytes
            if half.state.is_final:
                self.sender_ended(half.state)
        elif half.state.is_final:
            self.receiver_ended(half.state)

    def send_away(self, protocol: AqueductProtocol, half: Half) -> None:
        """Make the channel a networked one, because one handle was sent in a message; ``half`` is the half that stays here."""
        self.connect(protocol, half)
        if half.is_sender:
            if self.queue or self.finished or self.aborted:
                protocol.loop.call_soon(self.drain)
        elif self.closed:
            self.close_half()
        if self._waiters:
            self.wake()

    def is_away(self, *, is_sender: bool) -> bool:
        """Return whether the sender, or else the receiver, was sent away."""
        return self.half is not None and self.half.is_sender is not is_sender

    def close_half(self) -> None:
        """Close the receiver of a networked channel."""
        assert self.half is not None
        self.batch.clear()
        self.half.owner = None
        self.protocol.engine.close_receiver(self.half.channel_id)

    @property
    def name(self) -> str:
        assert self.half is not None
        return f"channel {describe(self.half.channel_id)}"

    def error(self) -> MainstemError | None:
        """Return the sticky error of a networked channel; None while it is open or still has messages to receive."""
        end, half = self.end, self.half
        if half is not None and self.protocol.is_left:
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
            error = ConnectionLost(f"{self.name}: {self.protocol.reason}{self._lost}")
            if is_sender:
                error.delivery = Delivery.NONE if self.protocol.is_untouched else self._progress.delivery
            error.__cause__ = self.protocol.error
            return error
        return ClosedError(f"{self.name} {'was' if is_sender else 'has'} finished")

    def check(self) -> None:
        error = self.error()
        if error is not None:
            self.reported()
            raise error

    def reported(self) -> None:
        if self.half is not None:
            self.protocol.reported(self)

    def send(self, message: Any, tag: object = None) -> bool:
        """Encode and send one message and the handles in it; return False if there is no room."""
        protocol, half = self.protocol, self.half
        assert isinstance(half, SenderHalf)
        if not half.accepts(self.mode):
            return False
        is_raw = type(protocol.serializer) is RawSerializer
        if is_raw and type(message) is bytes:
            protocol.engine.sending.send_on(half, message, self.mode, (), tag)
        else:
            # The handles are kept until they are marked as sent, because a handle that is dropped ends its channel.
            attached: list[tuple[Handle, Pipe]] = []
            kinds: list[tuple[Attach, bool]] = []

            def attach(handle: Any) -> int:
                pipe = _attachable(handle, attached)
                kinds.append((Attach.SENDER if handle.is_sender else Attach.RECEIVER, pipe.oneshot))
                attached.append((handle, pipe))
                return len(attached) - 1

            payload = protocol.serializer.encode(message, attach)
            kept = protocol.engine.sending.send_on(half, payload, self.mode, kinds, tag)
            for (_, pipe), kept_half in zip(attached, kept, strict=True):
                pipe.send_away(protocol, kept_half)
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
            self.protocol.log_error(f"{self.name}: a queued message cannot be sent: {error}")
            queue.clear()
            self.aborted = True
        if self.aborted:
            self.protocol.engine.cancel(self.half.channel_id)
        elif self.finished:
            self.protocol.engine.finish(self.half.channel_id)
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
            self.protocol.not_delivered(self)
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
        protocol, attachments, present = self.protocol, incoming.attachments, self.protocol.present
        if not attachments:
            return self.decode_plain(incoming.payload)
        if type(protocol.serializer) is RawSerializer:
            made = [protocol.make_handle(protocol, each) for each in attachments]
            return Message(incoming.payload, made if present is None else list(map(present, made)))
        handles: dict[int, Any] = {}

        def detach(index: int) -> Any:
            if not 0 <= index < len(attachments):
                return _detach_nothing(index)
            if index in handles:
                raise ValueError(f"attachment {index} was detached twice")
            handle = handles[index] = protocol.make_handle(protocol, attachments[index])
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
                    protocol.engine.drop(attachment)

    def decode_plain(self, payload: bytes, detach: DetachFunction = _detach_nothing) -> Any:
        try:
            return self.protocol.serializer.decode(payload, detach)
        except MainstemError:
            raise
        except Exception as error:
            # The serializer's library can raise any exception, because the peer chose the bytes.
            text = f"{self.name}: a message cannot be decoded: {error}"
            raise RemoteProtocolError(text, rule="serialization") from error


def _attachable(handle: Any, others: list[tuple[Handle, Pipe]]) -> Pipe:
    """Return the pipe of a handle that can be attached to a message beside ``others``. Raises LocalProtocolError."""
    pipe = handle._pipe if isinstance(handle, Handle) else None
    if not isinstance(pipe, Pipe):
        raise LocalProtocolError(f"a {type(handle).__name__} is not a Sender or Receiver", rule="attachment")
    for other, shared in others:
        if shared is pipe and other.is_sender is handle.is_sender:
            raise _already_moved()
    if pipe.half is not None:
        if pipe.half.is_sender is not handle.is_sender:
            raise _already_moved()
        raise LocalProtocolError(
            "this handle's channel is networked already; only a half that was made here can be sent, and only one of the two",
            rule="handle networked",
        )
    for _, shared in others:
        if shared is pipe:
            raise LocalProtocolError("both halves of one channel in one message", rule="handle networked")
    return pipe


def _already_moved() -> LocalProtocolError:
    return LocalProtocolError("this handle was sent away already; a half can be sent only once", rule="handle moved")
