"""The client's commands, the resources that they create, and the resources' memory.

Theory of operation. A client and its driver share only memory: the to-driver ring buffer (all clients append commands), the
to-clients broadcast buffer (all clients read all responses), the counters, and the logs. For the driver, a client exists from its
first command until its heartbeat counter is older than the client liveness timeout.

Threads. The conductor's ``do_work`` runs in its own thread or, with ``use_invoker``, in the caller's. ``add_...``, ``close`` and
``close_resource`` run in the callers' threads. ``lock`` guards all state of this class. It is reentrant, because handlers run while
it is held and may call ``close`` or an ``async_add_...``. Offers and polls never take it: they use a log's memory directly, and a
subscription's tuple of images is replaced as a whole.

A command is a ``PendingCommand`` and is in ``pending`` from before it is written until exactly one of these completes it: its
response, its deadline, its cancellation, or the end of the client. ``do_work`` creates its result under the lock, so a publication
is in ``resources`` before the caller sees it. A waiting caller never holds the lock. A handler must not wait, because the response
can only arrive in the duty cycle that the handler is blocking.

A resource lives until it or the client is closed, even if the application drops it. The exception is one that was let go: when it
is collected, it queues itself in ``_left_open``, and the duty cycle closes it.

The caller holds an ``Operation``, which ``pending`` does not keep alive. When nobody waits for a command anymore, it moves to
``abandoned``, and when its response arrives, the client removes what the driver created.

Invariants:

- Once ``closed`` is set, ``resources`` and ``pending`` are empty and stay empty. ``failure`` is set before ``closed``.
- A publication's log is unmapped when the publication closes. An image's log stays mapped for
  ``client_resource_linger_duration_ns``, because another thread may be polling it. The CnC file is unmapped last, in the
  conductor's ``on_close``.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._internal.clock import Deadline
from mainstem.aeron.client.operation import Operation, PendingCommand
from mainstem.aeron.client.resource import Resource, ResourceTable, check_arguments, check_channel
from mainstem.aeron.client.waiting import Wait, Waiting, run
from mainstem.aeron.command import commands
from mainstem.aeron.command.responses import OnNextAvailableSessionId, OnSubscriptionReady
from mainstem.errors import (
    ClosedError,
    ConfigurationError,
    CorruptLogError,
    DriverTimeout,
    LocalProtocolError,
    MainstemError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem.aeron.client.context import ClientContext
    from mainstem.aeron.client.counter import CounterBase
    from mainstem.aeron.client.image import ImageBase
    from mainstem.aeron.client.publication import PublicationBase
    from mainstem.aeron.client.subscription import SubscriptionBase
    from mainstem.aeron.client.waiting import Steps
    from mainstem.aeron.cnc import CncFile
    from mainstem.aeron.command.commands import Command
    from mainstem.aeron.command.responses import OnPublicationReady, Response

T = TypeVar("T")
P = TypeVar("P", bound="PublicationBase")
S = TypeVar("S", bound="SubscriptionBase[Any]")
C = TypeVar("C", bound="CounterBase")

COMMAND_ATTEMPTS = 3  # writes to a full command buffer before that is an error

# There is no removal for a static counter, because it outlives the clients that add it.
REMOVALS: dict[type[Command], type[Command]] = {
    commands.AddPublication: commands.RemovePublication,
    commands.AddExclusivePublication: commands.RemovePublication,
    commands.AddSubscription: commands.RemoveSubscription,
    commands.AddCounter: commands.RemoveCounter,
}


class ClientRegistry:
    def __init__(self, context: ClientContext, cnc: CncFile, now_ns: int) -> None:
        self.context = context
        self._settings = context.settings
        self.cnc = cnc
        self.counters = cnc.counters()
        self.client_id = cnc.to_driver.next_correlation_id()
        self.lock = threading.RLock()
        self.closed = False
        self.failure: MainstemError | None = None
        self.resources = ResourceTable()
        self.pending: dict[int, PendingCommand[Any]] = {}
        self.abandoned: dict[int, PendingCommand[Any]] = {}
        self.dropped: deque[PendingCommand[Any]] = deque()
        self._left_open: deque[Resource] = deque()
        self._queued: deque[Command] = deque()
        self.invokers: tuple[Callable[[], int], ...] = ()
        self._written = threading.Event()
        self._in_handler = False
        self._lingering: list[tuple[int, AtomicBuffer]] = []
        self._now_ns = now_ns
        self.cycles = 0

    # -- ending the client -----------------------------------------------------------------------------------------

    def terminate(self, error: MainstemError) -> None:
        """Close everything because of ``error``, and call the error handler."""
        self.failure = error
        self._close_all()
        with suppress(Exception):
            self.context.on_error(error)

    def close(self) -> None:
        with self.lock:
            if not self.closed:
                self._announce_end()
                self._close_all()

    def _announce_end(self) -> None:
        client_id, correlation_id = self.client_id, self.cnc.to_driver.next_correlation_id()
        with suppress(MainstemError):
            self._write(commands.ClientClose(client_id=client_id, correlation_id=correlation_id))

    def _close_all(self) -> None:
        if self.closed:
            return
        self.closed = True
        resources, self.resources = self.resources.values(), ResourceTable()
        for resource in resources:
            resource._release()
        while self._left_open:
            self._left_open.popleft()._release()
        self._queued.clear()
        self._fail_pending()

    def _fail_pending(self) -> None:
        operations, self.pending = list(self.pending.values()), {}
        self.abandoned.clear()
        for operation in operations:
            operation.fail(
                self.failure or ClosedError(f"the client was closed before the driver answered {operation.what}")
            )

    def leave_to_parent(self) -> None:
        """Close the client in a forked child, without notifying the driver.

        The child has neither the conductor's thread nor any thread that held the lock or was polling. So this method replaces the
        lock and releases the images without waiting for readers.
        """
        self.lock = threading.RLock()
        if self.closed:
            return
        self.failure = ClosedError("the client belongs to the parent of this process: connect a client after the fork")
        self.closed = True
        self.invokers = ()
        resources, self.resources = self.resources.values(), ResourceTable()
        for resource in [*resources, *self._left_open]:
            resource._leave_to_parent()
        self._left_open.clear()
        self._fail_pending()

    def raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def _check_open(self) -> None:
        self.raise_failure()
        if self.closed:
            raise ClosedError("the client is closed")

    # -- commands --------------------------------------------------------------------------------------------------

    def _write(self, command: Command) -> None:
        payload = command.encode()
        for _ in range(COMMAND_ATTEMPTS):
            if self.cnc.to_driver.write(command.TYPE, payload):
                return
        raise DriverTimeout("the driver's command buffer is full: the driver has stopped reading it")

    def send(self, kind: type[Command], what: str, complete: Callable[[Response], T], **fields: Any) -> Operation[T]:
        """Send a command. ``complete`` creates the result from the driver's response."""
        with self.lock:
            self._check_open()
            correlation_id = self.cnc.to_driver.next_correlation_id()
            deadline_ns = self.context.clock.monotonic_ns() + self._settings.driver_timeout_ns
            command = kind(client_id=self.client_id, correlation_id=correlation_id, **fields)
            pending = PendingCommand(command, what=what, deadline_ns=deadline_ns, complete=complete)
            self.pending[correlation_id] = pending
            try:
                self._write(command)
            except BaseException:
                del self.pending[correlation_id]
                raise
            operation = Operation(self, pending)
        self._written.set()
        return operation

    def complete(self, correlation_id: int, response: Response) -> None:
        """Complete a command that the driver executed. If nobody waits for it or its result cannot be created, undo it."""
        pending = self.pending.pop(correlation_id, None)
        if pending is not None:
            pending.succeed(response)
            if pending.error is not None:
                self._undo(pending)
        elif (abandoned := self.abandoned.pop(correlation_id, None)) is not None:
            self._undo(abandoned)

    def cancel_operation(self, pending: PendingCommand[Any]) -> None:
        """Cancel a command and undo it in the driver, unless a caller has its result."""
        with self.lock:
            if pending.is_taken or pending.error is not None:
                return
            error = ClosedError(f"{pending.what} was cancelled")
            if pending.is_done:
                pending.fail(error)
                self._undo(pending)
            else:
                self._abandon(pending, error)
        self._written.set()

    def _abandon(self, pending: PendingCommand[Any], error: MainstemError) -> None:
        correlation_id = pending.command.correlation_id
        del self.pending[correlation_id]
        pending.fail(error)
        if isinstance(pending.command, commands.AddReceiveDestination):
            # Undo it at once, before the caller's next command: that may add the same destination, whose port would still be bound.
            self._undo(pending)
        else:
            self.abandoned[correlation_id] = pending

    def _cancel_dropped(self) -> None:
        while self.dropped:
            pending = self.dropped.popleft()
            # An application does not need a handle for a destination, so a destination that exists stays.
            if not pending.is_done or isinstance(pending.result, Resource):
                self.cancel_operation(pending)
        while self._left_open:
            resource = self._left_open.popleft()
            self.resources.pop(resource.registration_id)
            self._close_resource(resource)

    def _undo(self, pending: PendingCommand[Any]) -> None:
        if isinstance(pending.result, Resource):
            self.close_resource(pending.result)
            return
        command = pending.command
        if isinstance(command, (commands.AddDestination, commands.AddReceiveDestination)):
            self._undo_destination(command)
        elif type(command) in REMOVALS:
            self._queue_command(REMOVALS[type(command)], registration_id=command.correlation_id)

    def _undo_destination(self, command: commands.AddDestination | commands.AddReceiveDestination) -> None:
        """Remove a destination, unless closing its resource has removed it."""
        owner = command.registration_id
        if owner not in {resource._destinations_id() for resource in self.resources.values()}:
            return
        if isinstance(command, commands.AddReceiveDestination):
            self._queue_command(commands.RemoveReceiveDestination, registration_id=owner, channel=command.channel)
        else:
            self._queue_command(
                commands.RemoveDestinationById,
                resource_registration_id=owner,
                destination_registration_id=command.correlation_id,
            )

    def _queue_command(self, kind: type[Command], **fields: Any) -> None:
        """Send a command as soon as the buffer has room. Do not wait for its response."""
        correlation_id = self.cnc.to_driver.next_correlation_id()
        self._queued.append(kind(client_id=self.client_id, correlation_id=correlation_id, **fields))
        self._write_queued()

    def _write_queued(self) -> None:
        while self._queued and self.cnc.to_driver.write(self._queued[0].TYPE, self._queued[0].encode()):
            self._queued.popleft()

    def request_cycle(self) -> int:
        """Wake the conductor. When ``cycles`` reaches the returned value, the conductor has handled all current responses."""
        with self.lock:
            self._written.set()
            return self.cycles + 1

    def add_publication(self, kind: type[P], channel: str, stream_id: int) -> Operation[P]:
        check_arguments(channel, stream_id)
        exclusive = kind._is_exclusive
        command: type[Command] = commands.AddExclusivePublication if exclusive else commands.AddPublication
        what = f"the {'exclusive ' if exclusive else ''}publication {channel} stream {stream_id}"
        return self.send(command, what, self._publication_maker(kind, channel), stream_id=stream_id, channel=channel)

    def _publication_maker(self, kind: type[P], channel: str) -> Callable[[Response], P]:
        def complete(ready: OnPublicationReady) -> P:
            log = self.map_log(ready.log_file)
            with self.naming_log(log, ready.log_file):
                publication: P = kind(log, self.cnc.counters_values, ready.position_limit_id)  # type: ignore[call-arg]
            publication._become(self, ready, channel, log)
            self.resources[ready.correlation_id] = publication
            return publication

        return complete  # type: ignore[return-value]

    def add_subscription(
        self,
        kind: type[S],
        channel: str,
        stream_id: int,
        on_available_image: Callable[[Any], object] | None = None,
        on_unavailable_image: Callable[[Any], object] | None = None,
    ) -> Operation[S]:
        """Add a subscription of class ``kind``. Its handlers default to those of the context."""
        check_arguments(channel, stream_id)

        def complete(response: Response) -> S:
            assert isinstance(response, OnSubscriptionReady)
            subscription = kind(
                self,
                response.correlation_id,
                channel,
                stream_id,
                response.channel_status_id,
                on_available_image or self.context.on_available_image,
                on_unavailable_image or self.context.on_unavailable_image,
            )
            self.resources[response.correlation_id] = subscription
            return subscription

        what = f"the subscription {channel} stream {stream_id}"
        return self.send(commands.AddSubscription, what, complete, stream_id=stream_id, channel=channel)

    def add_counter(
        self, kind: type[C], type_id: int, key: bytes, label: str, registration_id: int | None = None
    ) -> Operation[C]:
        """Add a counter. It is static if ``registration_id`` is given."""
        static = registration_id is not None

        def complete(response: Any) -> C:
            counter = kind(self, response.correlation_id, response.counter_id, static=static)
            self.resources[response.correlation_id] = counter
            return counter

        fields: dict[str, Any] = {"type_id": type_id, "key": bytes(key), "label": label}
        what = f"the counter {label!r}"
        if static:
            return self.send(commands.AddStaticCounter, what, complete, registration_id=registration_id, **fields)
        return self.send(commands.AddCounter, what, complete, **fields)

    def next_session_id(self, stream_id: int) -> Operation[int]:
        def complete(response: Response) -> int:
            assert isinstance(response, OnNextAvailableSessionId)
            return response.session_id

        kind = commands.GetNextAvailableSessionId
        return self.send(kind, f"the next session id of stream {stream_id}", complete, stream_id=stream_id)

    def add_destination(self, resource: Resource, channel: str) -> Operation[int]:
        check_channel(channel)
        kind = commands.AddReceiveDestination if resource._receives else commands.AddDestination
        registration_id = self._registration_of(resource)

        def complete(response: Any) -> int:
            resource._destinations[response.correlation_id] = channel
            destination_id: int = response.correlation_id
            return destination_id

        what = f"the destination {channel}"
        return self.send(kind, what, complete, registration_id=registration_id, channel=channel)

    def remove_destination(self, resource: Resource, destination: str | int) -> Operation[None]:
        registration_id = self._registration_of(resource)
        what = f"removing the destination {destination}"
        fields: dict[str, Any]
        kind: type[Command]
        if resource._receives and isinstance(destination, int):
            # Drivers identify a publication's destinations by id, but a subscription's only by channel.
            if destination not in resource._destinations:
                raise ConfigurationError(f"{resource!r} has no destination with id {destination}")
            destination = resource._destinations[destination]
        if isinstance(destination, int):
            kind = commands.RemoveDestinationById
            fields = {"resource_registration_id": registration_id, "destination_registration_id": destination}
        else:
            kind = commands.RemoveReceiveDestination if resource._receives else commands.RemoveDestination
            fields = {"registration_id": registration_id, "channel": destination}
        return self.send(kind, what, lambda _: None, **fields)

    def reject_image(self, image: ImageBase, reason: str) -> Operation[None]:
        what = f"rejecting the image of session {image.session_id}"
        fields = {"image_correlation_id": image.correlation_id, "position": image.position, "reason": reason}
        return self.send(commands.RejectImage, what, lambda _: None, **fields)

    def _registration_of(self, resource: Resource) -> int:
        if resource.closed:
            self.raise_failure()
            raise ClosedError(f"{resource!r} is closed")
        return resource._destinations_id()

    def close_resource(self, resource: Resource, *, revoke: bool = False) -> None:
        with self.lock:
            if self.resources.pop(resource.registration_id) is not None:
                self._close_resource(resource, revoke=revoke)

    def _close_resource(self, resource: Resource, *, revoke: bool = False) -> None:
        resource._release()
        if not resource._is_static:
            flags = {"flags": commands.REVOKE} if revoke else {}
            self._queue_command(resource._removal, registration_id=resource.registration_id, **flags)

    def let_go(self, resource: Resource) -> None:
        """Do not keep a resource open that the application has dropped."""
        with self.lock:
            self.resources.let_go(resource.registration_id)

    def close_dropped(self, resource: Resource) -> None:
        """Close a resource that is being collected.

        This runs in whatever thread collects it, with any locks that thread holds. So only queue it for the conductor.
        """
        if self.closed:
            # Shared memory may already be unmapped.
            resource._leave_to_parent()
        else:
            self._left_open.append(resource)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def await_operation(self, pending: PendingCommand[Any], timeout: float | None) -> None:
        with self.lock:
            # While this thread holds the lock, a running handler must be its own, and would wait for itself.
            if self._in_handler:
                raise LocalProtocolError("a handler must not wait for the driver: use the async form of the call")
        run(self.awaiting(pending, timeout), Waiting(self.invokers))

    def awaiting(self, pending: PendingCommand[Any], timeout: float | None) -> Steps[None]:
        """Wait until a command is done. Abandon it after ``timeout`` seconds."""
        deadline = Deadline(self.context.clock, timeout)
        while not pending.is_done:
            if (left := deadline.left) != 0:
                yield Wait(left)
                continue
            error = DriverTimeout(f"the driver did not answer {pending.what} within {timeout:g} s", timeout=timeout)
            with self.lock:
                if not pending.is_done:
                    self._abandon(pending, error)

    def guard(self, handler: Callable[..., object], *arguments: object) -> None:
        """Call an application's handler. If it raises, the error goes to the error handler."""
        before, self._in_handler = self._in_handler, True
        try:
            handler(*arguments)
        except Exception as error:
            with suppress(Exception):
                self.context.on_error(error)
        finally:
            self._in_handler = before

    # -- memory ----------------------------------------------------------------------------------------------------

    def map_log(self, path: str) -> AtomicBuffer:
        """Map a log. If ``client_pre_touch_mapped_memory`` is set, touch every page."""
        log = self.context.files.map(path)
        if self._settings.client_pre_touch_mapped_memory:
            for offset in range(0, log.capacity, self.context.files.page_size):
                log.get_u8(offset)
        return log

    @contextmanager
    def naming_log(self, log: AtomicBuffer, path: str) -> Iterator[None]:
        """Guard a block that reads a log: if the log turns out to be corrupt, unmap it and raise CorruptLogError with its path."""
        try:
            yield
        except (ValueError, IndexError) as error:
            self.unmap(log)
            raise CorruptLogError(f"{path}: {error}", log_file=path, position=-1) from None

    def unmap(self, buffer: AtomicBuffer | None) -> None:
        """Unmap a log. Existing views keep its memory alive."""
        if buffer is not None:
            with suppress(BufferError):
                self.context.files.unmap(buffer)

    def release_image(self, image: ImageBase) -> None:
        """Close an image. Its memory stays mapped for a while, because another thread may be polling it."""
        if image.closed:
            return
        log = image.log
        image._detach()
        self._lingering.append((self._now_ns + self._settings.client_resource_linger_duration_ns, log))

    def _unmap_lingering(self) -> None:
        if self._lingering and self._lingering[0][0] <= self._now_ns:
            for _, buffer in [entry for entry in self._lingering if entry[0] <= self._now_ns]:
                self.unmap(buffer)
            self._lingering = [entry for entry in self._lingering if entry[0] > self._now_ns]
