"""The client's conductor: an agent that owns the client's commands, resources and memory, and handles the driver's responses.

Theory of operation. A client and its driver share only memory: the to-driver ring buffer (all clients append commands), the
to-clients broadcast buffer (all clients read all responses), the counters, and the logs. For the driver, a client exists from its
first command until its heartbeat counter is older than the client liveness timeout. If the broadcast buffer overruns, responses are
lost. The client cannot know which, so it ends.

Threads. ``do_work`` runs in the conductor's own thread or, with ``use_invoker``, in the caller's. ``add_...``, ``close`` and
``close_resource`` run in the callers' threads. ``lock`` guards all state of this class. It is reentrant, because handlers run while
it is held and may call ``close`` or an ``async_add_...``. Offers and polls never take it: they use a log's memory directly, and a
subscription's tuple of images is replaced as a whole.

A command is a ``PendingCommand`` and is in ``pending`` from before it is written until exactly one of these completes it: its
response, its deadline, its cancellation, or the end of the client. ``do_work`` creates its result under the lock, so a publication
is in ``resources`` before the caller sees it. A waiting caller never holds the lock. A handler must not wait, because the response
can only arrive in the duty cycle that the handler is blocking.

A resource lives until it or the client is closed, even if the application drops it. The exception is one that was let go: when it
is collected, it queues itself in ``resources``, and the duty cycle closes it.

The caller holds an ``Operation``, which ``pending`` does not keep alive. When nobody waits for a command anymore, it moves to
``abandoned``, and when its response arrives, the client removes what the driver created.

Invariants:

- Once ``closed`` is set, ``resources`` and ``pending`` are empty and stay empty. ``failure`` is set before ``closed``.
- A publication's log is unmapped when the publication closes. An image's log stays mapped for
  ``client_resource_linger_duration_ns``, because another thread may be polling it. The CnC file is unmapped last, in ``on_close``.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._core.log.append import ExclusiveAppender
from mainstem._internal.clock import NS_PER_SECOND, Deadline
from mainstem.aeron.agent import AgentTerminated
from mainstem.aeron.client.counter import CounterBase
from mainstem.aeron.client.driver_proxy import DriverProxy
from mainstem.aeron.client.liveness import Liveness
from mainstem.aeron.client.logs import Logs
from mainstem.aeron.client.operation import Operation, PendingCommand
from mainstem.aeron.client.publication import PublicationBase
from mainstem.aeron.client.resource import Resource, ResourceTable, check_arguments, check_channel
from mainstem.aeron.client.subscription import SubscriptionBase, add_image, remove_image
from mainstem.aeron.client.waiting import Wait, Waiting, run
from mainstem.aeron.command import commands, responses
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.errors import (
    ClientTimeout,
    ClosedError,
    ConfigurationError,
    DriverTimeout,
    LocalProtocolError,
    MainstemError,
    RegistrationError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client.context import ClientContext
    from mainstem.aeron.client.image import ImageBase
    from mainstem.aeron.client.waiting import Steps
    from mainstem.aeron.cnc import CncFile
    from mainstem.aeron.command.commands import Command
    from mainstem.aeron.command.responses import Response

T = TypeVar("T")
P = TypeVar("P", bound=PublicationBase)
S = TypeVar("S", bound=SubscriptionBase[Any])
C = TypeVar("C", bound=CounterBase)

BUSY_SLEEP_S = 0.001  # how long the conductor sleeps while a command is pending
RESPONSES_PER_CYCLE = 10  # so that a burst of responses to other clients does not delay the heartbeat

# There is no removal for a static counter, because it outlives the clients that add it.
REMOVALS: dict[type[Command], type[Command]] = {
    commands.AddPublication: commands.RemovePublication,
    commands.AddExclusivePublication: commands.RemovePublication,
    commands.AddSubscription: commands.RemoveSubscription,
    commands.AddCounter: commands.RemoveCounter,
}


class ClientConductor:
    """The agent behind an ``Aeron``, and its idle strategy. ``do_work`` runs one duty cycle."""

    name = "conductor"
    role_name = "mainstem-client-conductor"

    def __init__(self, context: ClientContext, cnc: CncFile, now_ns: int) -> None:
        self.context = context
        self._settings = context.settings
        self.cnc = cnc
        self.counters = cnc.counters()
        self.lock = threading.RLock()
        self.closed = False
        self.failure: MainstemError | None = None
        self.logs = Logs(context)
        self.resources = ResourceTable()
        self.pending: dict[int, PendingCommand[Any]] = {}
        self.abandoned: dict[int, PendingCommand[Any]] = {}
        self.dropped: deque[PendingCommand[Any]] = deque()
        self.invokers: tuple[Callable[[], int], ...] = ()
        self.cycles = 0
        self._driver = DriverProxy(cnc.to_driver)
        self._receiver = cnc.receiver()
        self._liveness = Liveness(context, cnc, self.client_id, now_ns)
        self._written = threading.Event()
        self._in_handler = False

    @property
    def client_id(self) -> int:
        return self._driver.client_id

    # -- the duty cycle --------------------------------------------------------------------------------------------

    def do_work(self, now_ns: int) -> int:
        """Run one duty cycle. Raises AgentTerminated once the client has ended."""
        with self.lock:
            if self.closed:
                raise AgentTerminated
            self._end_by(self._liveness.check_interval(now_ns))
            self._liveness.note_cycle(now_ns)
            self._cancel_dropped()
            work = self._receiver.receive(self._on_record, RESPONSES_PER_CYCLE)
            if work < 0:
                self._on_overrun()
            if work < RESPONSES_PER_CYCLE:
                self.cycles += 1
            if self._liveness.is_due(now_ns):
                if not self.closed:
                    self._end_by(self._liveness.beat(now_ns))
                work += 1
            self._expire_operations(now_ns)
            self._driver.write_queued()
            self.logs.unmap_lingering(now_ns)
            if self.closed:
                raise AgentTerminated
            return work

    def idle(self, work_count: int) -> None:
        """Sleep, unless there was work, until a command is written or ``client_idle_sleep_duration_ns`` has passed."""
        if work_count <= 0:
            seconds = self._settings.client_idle_sleep_duration_ns / NS_PER_SECOND
            self._written.wait(min(BUSY_SLEEP_S, seconds) if self.pending else seconds)
            self._written.clear()

    def reset(self) -> None: ...

    def on_close(self) -> None:
        """Unmap everything. Runs in the conductor's thread."""
        with self.lock:
            self._close_all()
            self.logs.unmap_all()
            self.cnc.close()
            if self.context.on_close is not None:
                self.guard(self.context.on_close)

    def request_cycle(self) -> int:
        """Wake the conductor. When ``cycles`` reaches the returned value, the conductor has handled all current responses."""
        with self.lock:
            self._written.set()
            return self.cycles + 1

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

    # -- ending the client -----------------------------------------------------------------------------------------

    def terminate(self, error: MainstemError) -> None:
        """Close everything because of ``error``, and call the error handler."""
        self.failure = error
        self._close_all()
        with suppress(Exception):
            self.context.on_error(error)

    def _end_by(self, error: MainstemError | None) -> None:
        if error is not None:
            self.terminate(error)

    def close(self) -> None:
        with self.lock:
            if not self.closed:
                self._announce_end()
                self._close_all()

    def _announce_end(self) -> None:
        with suppress(MainstemError):
            self._driver.write(self._driver.command(commands.ClientClose))

    def _close_all(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.resources.close_all()
        self._driver.drop_queued()
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
        self.resources.leave_to_parent()
        self._fail_pending()

    def raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def _check_open(self) -> None:
        self.raise_failure()
        if self.closed:
            raise ClosedError("the client is closed")

    # -- commands --------------------------------------------------------------------------------------------------

    def send(self, kind: type[Command], what: str, complete: Callable[[Any], T], **fields: Any) -> Operation[T]:
        """Send a command. ``complete`` creates the result from the driver's response."""
        with self.lock:
            self._check_open()
            command = self._driver.command(kind, **fields)
            deadline_ns = self.context.clock.monotonic_ns() + self._settings.driver_timeout_ns
            pending = PendingCommand(command, what=what, deadline_ns=deadline_ns, complete=complete)
            self.pending[command.correlation_id] = pending
            try:
                self._driver.write(command)
            except BaseException:
                del self.pending[command.correlation_id]
                raise
            operation = Operation(self, pending)
        self._written.set()
        return operation

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

    def _complete(self, correlation_id: int, response: Response) -> None:
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

    def _expire_operations(self, now_ns: int) -> None:
        for pending in [each for each in self.pending.values() if now_ns >= each.deadline_ns]:
            timeout = self._settings.driver_timeout_ns / NS_PER_SECOND
            error = DriverTimeout(f"the driver did not answer {pending.what} within {timeout:g} s", timeout=timeout)
            self._abandon(pending, error)

    def _cancel_dropped(self) -> None:
        while self.dropped:
            pending = self.dropped.popleft()
            # An application does not need a handle for a destination, so a destination that exists stays.
            if not pending.is_done or isinstance(pending.result, Resource):
                self.cancel_operation(pending)
        for resource in self.resources.close_left_open():
            self._remove(resource)

    def _undo(self, pending: PendingCommand[Any]) -> None:
        if isinstance(pending.result, Resource):
            self.close_resource(pending.result)
            return
        command = pending.command
        if isinstance(command, (commands.AddDestination, commands.AddReceiveDestination)):
            self._undo_destination(command)
        elif type(command) in REMOVALS:
            self._queue(REMOVALS[type(command)], registration_id=command.correlation_id)

    def _undo_destination(self, command: commands.AddDestination | commands.AddReceiveDestination) -> None:
        """Remove a destination, unless closing its resource has removed it."""
        owner = command.registration_id
        if owner not in {_destinations_id(resource) for resource in self.resources.values()}:
            return
        if isinstance(command, commands.AddReceiveDestination):
            self._queue(commands.RemoveReceiveDestination, registration_id=owner, channel=command.channel)
        else:
            self._queue(
                commands.RemoveDestinationById,
                resource_registration_id=owner,
                destination_registration_id=command.correlation_id,
            )

    def _queue(self, kind: type[Command], **fields: Any) -> None:
        """Send a command as soon as the buffer has room. Do not wait for its response."""
        # A thread of a process that was suspended may get here before the conductor notices. The driver has removed the resource.
        self._end_by(self._liveness.check_interval(self.context.clock.monotonic_ns()))
        if not self.closed:
            self._driver.queue(self._driver.command(kind, **fields))

    # -- resources -------------------------------------------------------------------------------------------------

    def add_publication(self, kind: type[P], channel: str, stream_id: int) -> Operation[P]:
        check_arguments(channel, stream_id)
        exclusive = issubclass(kind, ExclusiveAppender)

        def complete(ready: responses.OnPublicationReady) -> P:
            log = self.logs.map(ready.log_file)
            with self.logs.naming(log, ready.log_file):
                publication = kind(self, ready, channel, log)
            self.resources.add(publication)
            return publication

        command: type[Command] = commands.AddExclusivePublication if exclusive else commands.AddPublication
        what = f"the {'exclusive ' if exclusive else ''}publication {channel} stream {stream_id}"
        return self.send(command, what, complete, stream_id=stream_id, channel=channel)

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

        def complete(ready: responses.OnSubscriptionReady) -> S:
            subscription = kind(
                self,
                ready.correlation_id,
                channel,
                stream_id,
                ready.channel_status_id,
                on_available_image or self.context.on_available_image,
                on_unavailable_image or self.context.on_unavailable_image,
            )
            self.resources.add(subscription)
            return subscription

        what = f"the subscription {channel} stream {stream_id}"
        return self.send(commands.AddSubscription, what, complete, stream_id=stream_id, channel=channel)

    def add_counter(
        self, kind: type[C], type_id: int, key: bytes, label: str, registration_id: int | None = None
    ) -> Operation[C]:
        """Add a counter. It is static if ``registration_id`` is given."""
        static = registration_id is not None

        def complete(ready: Any) -> C:
            counter = kind(self, ready.correlation_id, ready.counter_id, static=static)
            self.resources.add(counter)
            return counter

        fields: dict[str, Any] = {"type_id": type_id, "key": bytes(key), "label": label}
        what = f"the counter {label!r}"
        if static:
            return self.send(commands.AddStaticCounter, what, complete, registration_id=registration_id, **fields)
        return self.send(commands.AddCounter, what, complete, **fields)

    def next_session_id(self, stream_id: int) -> Operation[int]:
        def complete(response: responses.OnNextAvailableSessionId) -> int:
            return response.session_id

        kind = commands.GetNextAvailableSessionId
        return self.send(kind, f"the next session id of stream {stream_id}", complete, stream_id=stream_id)

    def add_destination(self, resource: Resource, channel: str) -> Operation[int]:
        check_channel(channel)
        receives = isinstance(resource, SubscriptionBase)
        kind: type[Command] = commands.AddReceiveDestination if receives else commands.AddDestination
        registration_id = self._registration_of(resource)

        def complete(response: Any) -> int:
            destination_id: int = response.correlation_id
            self.resources.note_destination(resource, destination_id, channel)
            return destination_id

        what = f"the destination {channel}"
        return self.send(kind, what, complete, registration_id=registration_id, channel=channel)

    def remove_destination(self, resource: Resource, destination: str | int) -> Operation[None]:
        registration_id = self._registration_of(resource)
        receives = isinstance(resource, SubscriptionBase)
        what = f"removing the destination {destination}"
        fields: dict[str, Any]
        kind: type[Command]
        if receives and isinstance(destination, int):
            # Drivers identify a publication's destinations by id, but a subscription's only by channel.
            channel = self.resources.destination(resource, destination)
            if channel is None:
                raise ConfigurationError(f"{resource!r} has no destination with id {destination}")
            destination = channel
        if isinstance(destination, int):
            kind = commands.RemoveDestinationById
            fields = {"resource_registration_id": registration_id, "destination_registration_id": destination}
        else:
            kind = commands.RemoveReceiveDestination if receives else commands.RemoveDestination
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
        return _destinations_id(resource)

    def close_resource(self, resource: Resource, *, revoke: bool = False) -> None:
        with self.lock:
            if self.resources.close(resource):
                self._remove(resource, revoke=revoke)

    def _remove(self, resource: Resource, *, revoke: bool = False) -> None:
        """Tell the driver that a resource is closed. A static counter outlives the client."""
        removed = {"registration_id": resource.registration_id}
        if isinstance(resource, PublicationBase):
            self._queue(commands.RemovePublication, **removed, **({"flags": commands.REVOKE} if revoke else {}))
        elif isinstance(resource, SubscriptionBase):
            self._queue(commands.RemoveSubscription, **removed)
        elif isinstance(resource, CounterBase) and not resource.is_static:
            self._queue(commands.RemoveCounter, **removed)

    def let_go(self, resource: Resource) -> None:
        """Do not keep a resource open that the application has dropped."""
        with self.lock:
            self.resources.let_go(resource)

    def leave_open(self, resource: Resource) -> None:
        """Close a resource that is being collected, in the next duty cycle. Any thread may call this, holding any lock."""
        self.resources.leave_open(resource)

    # -- responses (docs/protocols/aeron.md, 6) ---------------------------------------------------------------------

    def _on_record(self, type_id: int, payload: bytes) -> None:
        """Handle one response. Every client reads all responses and skips those with the ids of other clients."""
        if self.closed:
            return
        response = responses.decode_response(type_id, payload)
        match response:
            case None:
                pass
            case responses.OnError():
                self._on_error(response)
            case responses.OnAvailableImage():
                if (subscription := self._subscription(response.subscription_registration_id)) is not None:
                    add_image(subscription, response, self)
            case responses.OnUnavailableImage():
                if (subscription := self._subscription(response.subscription_registration_id)) is not None:
                    remove_image(subscription, response, self)
            case responses.OnCounterReady():
                self._complete(response.correlation_id, response)
                self._tell(self.context.on_available_counter, response.correlation_id, response.counter_id)
            case responses.OnUnavailableCounter():
                self._tell(self.context.on_unavailable_counter, response.registration_id, response.counter_id)
            case responses.OnClientTimeout():
                if response.client_id == self.client_id:
                    error = "the driver timed this client out: it received no heartbeat in time"
                    self.terminate(ClientTimeout(error))
            case responses.OnPublicationError():
                self._on_publication_error(response)
            case _:
                if (correlation_id := getattr(response, "correlation_id", None)) is not None:
                    self._complete(correlation_id, response)

    def _subscription(self, registration_id: int) -> SubscriptionBase[Any] | None:
        resource = self.resources.get(registration_id)
        return resource if isinstance(resource, SubscriptionBase) else None

    def _tell(self, handler: Callable[..., object] | None, registration_id: int, counter_id: int) -> None:
        if handler is not None:
            self.guard(handler, self.counters, registration_id, counter_id)

    def _on_error(self, response: responses.OnError) -> None:
        offending_id = response.offending_correlation_id
        if response.code is ErrorCode.CHANNEL_ENDPOINT_ERROR:
            # For this error code, the id is that of the endpoint's status counter.
            resources = [each for each in self.resources.values() if each.channel_status_id == offending_id]
            if resources:
                message = f"{resources[0]!r}: {response.message}"
                error = RegistrationError(message, code=response.error_code, correlation_id=offending_id)
                self.guard(self.context.on_error, error)
            return
        self.abandoned.pop(offending_id, None)
        pending = self.pending.pop(offending_id, None)
        if pending is not None:
            message = f"the driver refused {pending.what}: {response.message} ({response.code.name})"
            pending.fail(RegistrationError(message, code=response.error_code, correlation_id=offending_id))

    def _on_publication_error(self, response: responses.OnPublicationError) -> None:
        ours = any(
            isinstance(resource, PublicationBase) and resource.original_registration_id == response.registration_id
            for resource in self.resources.values()
        )
        handler = self.context.on_publication_error
        if ours and handler is not None:
            self.guard(handler, response)

    def _on_overrun(self) -> None:
        # The driver considers this client alive, so its images would block publishers until the client liveness timeout.
        self._announce_end()
        self.terminate(
            ClientTimeout(
                "responses of the driver were lost: it wrote more than the to-clients buffer holds"
                f" ({self._receiver.capacity} bytes) before this client's conductor ran again"
            )
        )


def _destinations_id(resource: Resource) -> int:
    """Return the id that a resource's destinations belong to. Registrations that share a publication share its destinations."""
    return resource.original_registration_id if isinstance(resource, PublicationBase) else resource.registration_id
