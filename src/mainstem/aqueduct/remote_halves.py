"""The networked side of handles: what a `Sender` or a `Receiver` calls once its other half is at the peer.

A `RemoteSender` or a `RemoteReceiver` stands for one half of the engine. The session calls `writable`, `ended` and `wake`; the
handle calls the rest. ``state`` is None while the half is live and then its last state, from which the sticky error follows.

Encoding and decoding happen here, when a message is sent or received: each handle in a message is moved away and bound to the
channel that the engine made for it (``_bind``); each attachment of a received message becomes a handle, or is dropped where
the serialiser did not take it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from mainstem.aqueduct.channel_id import ONESHOT, describe
from mainstem.aqueduct.events import NO_MESSAGES, Attach, Incoming, Mode, Tally
from mainstem.aqueduct.handles import (
    DEFAULT_MAX_MESSAGES,
    Pipe,
    Receiver,
    Sender,
    Waiters,
    check_attachable,
    move_away,
    pipe_of,
)
from mainstem.aqueduct.middleware import Handle, RawSerializer
from mainstem.aqueduct.state import ReceiverState, SenderState
from mainstem.errors import (
    Aborted,
    BackPressured,
    ChannelError,
    ClosedError,
    ConnectionLost,
    Delivery,
    LostInTransit,
    MainstemError,
    NoReceivers,
    RemoteProtocolError,
)

if TYPE_CHECKING:
    from mainstem.aqueduct.events import Attachment
    from mainstem.aqueduct.session import Session


class RemoteSender(Waiters):
    """A sender whose receiver is at the peer."""

    __slots__ = ("_channel_id", "_lost", "_pipe", "_session", "_tally", "state")

    def __init__(self, session: Session, channel_id: int, pipe: Pipe) -> None:
        super().__init__()
        self._session = session
        self._channel_id = channel_id
        self._pipe = pipe
        self._tally = NO_MESSAGES
        self.state: SenderState | None = None
        # What the errors say of the messages that were sent and not delivered.
        self._lost = ""
        session.senders[channel_id] = self
        self.configure()

    def configure(self) -> None:
        """Pass the bounds on to the engine."""
        self._pipe.fast = None
        if self.state is None and not self._session.conn.is_ended:
            self._session.set_bounds(self._channel_id, self._pipe.max_messages, self._pipe.max_bytes)

    @property
    def has_room(self) -> bool:
        """Whether another message may be sent."""
        return self._pipe.mode is Mode.UNRELIABLE or self._session.conn.has_room(self._channel_id)

    @property
    def error(self) -> MainstemError | None:
        """The sticky error; None while the channel goes on."""
        state = self.state
        if state is None:
            return None
        name = describe(self._channel_id)
        if state is SenderState.CANCELLED:
            return Aborted(f"channel {name} was aborted")
        if state is SenderState.NO_RECEIVERS:
            return NoReceivers(f"channel {name}: the receiver closed{self._lost}")
        if state is SenderState.LOST:
            return LostInTransit(f"channel {name}: its receiver was lost on its way{self._lost}")
        if state is SenderState.DISCONNECTED:
            delivery = Delivery.NONE if self._session.is_untouched else self._tally.delivery
            error = ConnectionLost(f"channel {name}: {self._session.reason}{self._lost}", delivery=delivery)
            error.__cause__ = self._session.error
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
        self._session.reported(self)

    def send(self, message: Any, *, tag: object = None) -> None:
        """Encode and send one message, with the handles in it. Raises BackPressured where there is no room."""
        self.check()
        session = self._session
        if not self.has_room:
            raise BackPressured(
                f"channel {describe(self._channel_id)}: its limit of queued and unacknowledged messages is reached"
            )
        handles: list[Sender[Any] | Receiver[Any]] = []

        def attach(handle: Any) -> int:
            handle = handle._half if isinstance(handle, Handle) else handle
            check_attachable(handle, handles)
            handles.append(handle)
            return len(handles) - 1

        payload = session.serializer.encode(message, attach)
        kinds = [
            (Attach.RECEIVER if isinstance(handle, Receiver) else Attach.SENDER, pipe_of(handle).oneshot)
            for handle in handles
        ]
        ids = session.send(self._channel_id, payload, self._pipe.mode, kinds, tag)
        for handle, channel_id in zip(handles, ids, strict=True):
            _bind(session, handle, channel_id)
        pipe = self._pipe
        if pipe.fast is None and self.state is None and type(session.serializer) is RawSerializer and not pipe.oneshot:
            # From here on, plain bytes bypass this method while nothing is in the way.
            pipe.fast = session.conn.plain_sender(self._channel_id, pipe.mode)

    def send_tagged(self, message: Any) -> asyncio.Future[None]:
        """Send a message; the future is done when it is acknowledged, or fails with LostInTransit or ConnectionLost."""
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.send(message, tag=outcome)
        outcomes = self._session.outcomes
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
            self._session.log_error(f"channel {describe(self._channel_id)}: a queued message cannot be sent: {error}")
            pipe.queue.clear()
            pipe.aborted = True
        if pipe.aborted:
            self.cancel()
        elif pipe.finished:
            self.finish()
        self.wake()

    def finish(self) -> None:
        self._session.finish(self._channel_id)

    def cancel(self) -> None:
        self._session.cancel(self._channel_id)

    def drop(self) -> None:
        """The handle was dropped, in whatever thread."""
        self._session.drop_later(self._channel_id, is_sender=True)

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
        """The sender ceased to exist; so many messages, of ``size`` bytes, were not delivered."""
        self.state = state
        self._tally = tally + Tally(waiting=len(self._pipe.queue))
        messages += len(self._pipe.queue)
        if messages and state in (SenderState.NO_RECEIVERS, SenderState.LOST, SenderState.DISCONNECTED):
            self._lost = f"; {messages} messages of {size} bytes were not delivered"
            self._session.not_delivered(self)
        self._pipe.fast = None
        self._session.senders.pop(self._channel_id, None)
        self._pipe.queue.clear()
        self.wake()


class RemoteReceiver(Waiters):
    """A receiver whose sender is at the peer."""

    __slots__ = ("_batch", "_channel_id", "_pipe", "_session", "state")

    def __init__(self, session: Session, channel_id: int, pipe: Pipe) -> None:
        super().__init__()
        self._session = session
        self._channel_id = channel_id
        self._pipe = pipe
        # Messages without attachments, taken from the engine together.
        self._batch: deque[bytes] = deque()
        self.state: ReceiverState | None = None
        session.receivers[channel_id] = self

    @property
    def run(self) -> deque[bytes] | None:
        """Messages that are here already and need no decoding."""
        return self._batch if type(self._session.serializer) is RawSerializer else None

    def poll(self) -> tuple[bool, Any]:
        """The next message, if there is one. Raises the sticky error, or ClosedError at the end of the channel."""
        batch = self._batch
        if not batch:
            messages = self._session.receive(self._channel_id)
            if isinstance(messages, Incoming):
                return True, self._decode(messages)
            if messages is not None:
                batch = self._batch = messages
        if batch:
            payload = batch.popleft()
            if type(self._session.serializer) is RawSerializer:
                return True, payload
            return True, self._decoded(payload, _detach_nothing)
        error = self.error
        if error is None:
            return False, None
        self._session.receivers.pop(self._channel_id, None)
        raise error

    @property
    def error(self) -> MainstemError | None:
        """The sticky error; None while there is, or may come, something to receive."""
        state = self.state
        if state is None or self._batch or self._session.conn.has_unread(self._channel_id):
            return None
        name = describe(self._channel_id)
        if state is ReceiverState.CANCELLED:
            return Aborted(f"channel {name} was aborted by its sender")
        if state is ReceiverState.LOST:
            return LostInTransit(f"channel {name}: its sender was lost on its way")
        if state is ReceiverState.DISCONNECTED:
            error = ConnectionLost(f"channel {name}: {self._session.reason}")
            error.__cause__ = self._session.error
            return error
        return ClosedError(f"channel {name} has finished")

    def _decode(self, incoming: Incoming) -> Any:
        session = self._session
        attachments = incoming.attachments
        if not attachments:
            return self._decoded(incoming.payload, _detach_nothing)
        handles: dict[int, Sender[Any] | Receiver[Any]] = {}

        def detach(index: int) -> Any:
            if not 0 <= index < len(attachments):
                raise IndexError(f"there is no attachment {index}")
            if index in handles:
                raise ValueError(f"attachment {index} was detached twice")
            handles[index] = make_handle(session, attachments[index])
            return session.present(handles[index])

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
                    session.drop_attachment(attachment)

    def _decoded(self, payload: bytes, detach: Any) -> Any:
        try:
            return self._session.serializer.decode(payload, detach)
        except MainstemError:
            raise
        except Exception as error:
            # Any exception of a serialiser's library: the peer chose the bytes.
            raise RemoteProtocolError(
                f"channel {describe(self._channel_id)}: a message cannot be decoded: {error}", rule="serialisation"
            ) from error

    def close(self) -> None:
        self._batch.clear()
        if self.state is not None:
            # It has ended already, and nobody reads how: `ended` and `poll` are not called any more.
            self._session.receivers.pop(self._channel_id, None)
        self._session.close_receiver(self._channel_id)

    def drop(self) -> None:
        """The handle was dropped, in whatever thread."""
        self._session.drop_later(self._channel_id, is_sender=False)

    def ended(self, state: ReceiverState) -> None:
        """The receiver ceased to exist on the wire; what is queued can still be read after a graceful end."""
        self.state = state
        if state is not ReceiverState.FINISHED:
            self._batch.clear()
        if self._pipe.closed:
            self._session.receivers.pop(self._channel_id, None)
        self.wake()


def _detach_nothing(index: int) -> Any:
    raise IndexError(f"there is no attachment {index}")


def make_handle(session: Session, attachment: Attachment) -> Sender[Any] | Receiver[Any]:
    """A handle for a half that came attached to a message."""
    pipe = Pipe(
        mode=Mode.UNORDERED if attachment.channel_id & ONESHOT else Mode.ORDERED,
        max_messages=DEFAULT_MAX_MESSAGES,
        oneshot=bool(attachment.channel_id & ONESHOT),
    )
    if attachment.is_sender:
        pipe.remote_sender = remote_sender = RemoteSender(session, attachment.channel_id, pipe)
        if isinstance(attachment.state, SenderState) and attachment.state.is_final:
            remote_sender.ended(attachment.state)
        return Sender(pipe)
    pipe.remote_receiver = remote_receiver = RemoteReceiver(session, attachment.channel_id, pipe)
    if isinstance(attachment.state, ReceiverState) and attachment.state.is_final:
        remote_receiver.ended(attachment.state)
    return Receiver(pipe)


def _bind(session: Session, handle: Sender[Any] | Receiver[Any], channel_id: int) -> None:
    """The handle left with a message: what it shared with its other half now leads over the connection."""
    pipe = move_away(handle)
    if isinstance(handle, Receiver):
        pipe.remote_sender = RemoteSender(session, channel_id, pipe)
        if pipe.queue or pipe.finished or pipe.aborted:
            session.call_soon(pipe.remote_sender.drain)
    else:
        pipe.remote_receiver = RemoteReceiver(session, channel_id, pipe)
        if pipe.closed:
            pipe.remote_receiver.close()
    pipe.wake()
