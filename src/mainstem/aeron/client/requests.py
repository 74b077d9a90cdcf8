"""Requests and responses over response channels (docs/protocols/aeron.md, 20).

Theory of operation. A requester has a publication for requests and a subscription for responses. A responder has one subscription
for requests and one publication per requester, which the driver connects to that requester's subscription. The reserved value of a
frame's header carries the correlation id: the requester numbers its requests, and a response copies the value of its request. The
payload belongs to the application, so any Aeron peer can respond by copying the reserved value.

A responder reads a requester's requests only once its response publication is connected. Until then they wait in the log, and the
requester gets back pressure. So the responder can respond immediately to every request it has read, and holds only one batch.

A signal handler can raise in the polling thread. Messages enter and leave queues as ``polled.py`` describes, so none is lost.

Calls that wait are written as steps (``waiting.py``), which ``requester.py`` and ``aeron/aio/requests.py`` run.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import repeat
from threading import Lock
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import Deadline
from mainstem.aeron.channel import with_values
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.aeron.client.polled import polled
from mainstem.aeron.client.publication import offer_error_of
from mainstem.aeron.client.waiting import Wait
from mainstem.errors import BackPressured, ClosedError, Delivery, MainstemError, Timeout

if TYPE_CHECKING:
    from mainstem._core.log.read import Message
    from mainstem.aeron.client.conductor import ClientConductor
    from mainstem.aeron.client.image import ImageBase
    from mainstem.aeron.client.operation import Operation
    from mainstem.aeron.client.waiting import Steps

MAX_IN_FLIGHT = 1024  # requests of one requester that can wait for their responses; each occupies a slot
MAX_CLIENTS = 256  # requesters of one responder; each has its own log, which takes up the driver's memory
# How many handlers of one asyncio responder run at the same time: enough to hide what each handler waits for, but few enough that
# a burst of requests waits in its logs, where it causes back pressure, and not in this process.
MAX_CONCURRENT = 64
RESPONSES = 1000  # responses that a requester reads at once
BATCH = 16  # requests that a responder reads from one requester before it turns to the next


def response_mode(channel: str) -> str:
    return channel if "control-mode=" in channel else with_values(channel, {"control-mode": "response"})


class Slot:
    __slots__ = ("correlation_id", "response")

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id
        self.response: bytes | None = None


class RequesterState:
    def __init__(self, conductor: ClientConductor, publication: Any, subscription: Any, max_in_flight: int) -> None:
        self.conductor = conductor
        self.publication = publication
        self.subscription = subscription
        self.max_in_flight = max_in_flight
        self.slots: dict[int, Slot] = {}
        self.late_responses = 0
        self._lock = Lock()
        self._arrived: deque[Message] = deque()
        self._next_id = 1

    def requesting(self, payload: Any, timeout: float | None) -> Steps[bytes]:
        """Send a request and return its response."""
        deadline = Deadline(self.conductor.context.clock, timeout)
        slot: Slot | None = None
        try:
            with self._lock:
                slot = self.open_slot()
            while True:
                # The publication is exclusive, so only one thread may offer at a time.
                with self._lock:
                    position = self.publication.offer(payload, reserved_value=slot.correlation_id)
                if position > 0:
                    break
                self.check_open(Delivery.NONE)
                if OfferStatus(position).is_final:
                    raise self.not_sent(position, None)
                if (left := deadline.left) == 0:
                    raise self.not_sent(position, timeout)
                yield Wait(left)
            while slot.response is None:
                # Use only `with`: between `acquire` and a `try`, a signal handler could raise, and nothing would release the lock.
                if not self._lock.locked():
                    with self._lock:
                        self.poll()
                if slot.response is None:
                    self.check_open(Delivery.UNKNOWN)
                    if (left := deadline.left) == 0:
                        raise self.no_response(timeout)
                    yield Wait(left, self.subscription)
            return slot.response
        finally:
            if slot is not None:
                self.free(slot)

    def open_slot(self) -> Slot:
        """Reserve a slot for a new request. Raises BackPressured or ClosedError."""
        self.check_open(Delivery.NONE)
        if len(self.slots) >= self.max_in_flight:
            raise BackPressured(f"{len(self.slots)} requests wait for their responses, as many as max_in_flight allows")
        slot = self.slots[self._next_id] = Slot(self._next_id)
        self._next_id += 1
        return slot

    def check_open(self, delivery: Delivery) -> None:
        """Raise the error that ended the client, or ClosedError with ``delivery``."""
        if self.subscription.closed:
            self.conductor.raise_failure()
            error = ClosedError("the requester is closed")
            error.delivery = delivery
            raise error

    def not_sent(self, status: int, timeout: float | None) -> MainstemError:
        waited = "" if timeout is None else f", for {timeout:g} s"
        return offer_error_of(self.publication, status, "request", waited)

    def no_response(self, timeout: float | None) -> Timeout:
        why = "its responder is connected" if self.publication.is_connected else "its responder has gone"
        return Timeout(f"no response came within {timeout:g} s: the request was sent, and {why}", timeout=timeout)

    def poll(self) -> int:
        """Match responses with slots. Only one thread may call this at a time."""
        arrived = self._arrived
        arrived.extend(polled(self.subscription.poll_with_metadata, RESPONSES))
        count = len(arrived)
        while arrived:
            message = arrived[0]
            payload = message.payload
            slot = self.slots.get(message.reserved_value)
            if slot is None or slot.response is not None:
                self.late_responses += 1
            else:
                slot.response = payload
            del arrived[0]
        return count

    def free(self, slot: Slot) -> None:
        """Free a slot. A response that arrives later is counted and dropped."""
        self.slots.pop(slot.correlation_id, None)

    def close(self) -> None:
        """Close the publication and the subscription. Waiting requests raise ClosedError."""
        self.conductor.close_resource(self.publication)
        self.conductor.close_resource(self.subscription)


class ResponderState:
    """The connected requesters, each with its response publication, and the requests that have been read."""

    def __init__(
        self,
        conductor: ClientConductor,
        kind: type[Any],
        subscription: Any,
        response_channel: str,
        response_stream_id: int,
        max_clients: int,
    ) -> None:
        self.conductor = conductor
        self._kind = kind
        self.subscription = subscription
        self._channel = response_mode(response_channel)
        self._stream_id = response_stream_id
        self._max_clients = max_clients
        self._pending: dict[int, Operation[Any]] = {}
        self._publications: dict[int, Any] = {}
        self._refused: set[int] = set()
        self._first = 0
        self.queue: deque[tuple[Message, Any]] = deque()
        self.refused_clients = 0

    @property
    def clients(self) -> int:
        return len(self._publications)

    def work(self) -> bool:
        """Process new and removed images, and read requests if none is waiting. Return whether a request is waiting."""
        images = self.subscription.images
        self._follow(images)
        if not self.queue and images:
            self._first = (self._first + 1) % len(images)
            for image in images[self._first :] + images[: self._first]:
                publication = self._publications.get(image.correlation_id)
                if publication is not None and publication.is_connected:
                    self.queue.extend(zip(polled(image.poll_with_metadata, BATCH), repeat(publication), strict=False))
        return bool(self.queue)

    def waiting_for_request(self, timeout: float | None) -> Steps[bool]:
        """Wait for a request in ``queue``. Return False once the responder is closed."""
        deadline = Deadline(self.conductor.context.clock, timeout)
        while not self.subscription.closed:
            if self.work():
                return True
            if (left := deadline.left) == 0:
                raise Timeout(f"no request arrived within {timeout:g} s", timeout=timeout)
            yield Wait(left)
        return False

    def _follow(self, images: tuple[ImageBase, ...]) -> None:
        present = {image.correlation_id for image in images}
        for correlation_id, publication in list(self._publications.items()):
            if correlation_id not in present:
                self.conductor.close_resource(publication)
                self._publications.pop(correlation_id, None)
        self._refused &= present
        for image in images:
            correlation_id = image.correlation_id
            if (
                correlation_id in self._publications
                or correlation_id in self._pending
                or correlation_id in self._refused
            ):
                continue
            if len(self._publications) + len(self._pending) >= self._max_clients:
                self._refuse(image, f"the responder has {self._max_clients} clients, as many as max_clients allows")
                continue
            channel = with_values(self._channel, {"response-correlation-id": correlation_id})
            self._pending[correlation_id] = self.conductor.add_publication(self._kind, channel, self._stream_id)
        for correlation_id, operation in list(self._pending.items()):
            if not operation.is_done:
                continue
            try:
                publication = operation.result()
            except MainstemError as error:
                self._pending.pop(correlation_id, None)
                self.conductor.context.on_error(error)
                refused = next((image for image in images if image.correlation_id == correlation_id), None)
                if refused is not None:
                    self._refuse(refused, "no response channel: the request publication needs response-correlation-id")
                continue
            if correlation_id in present:
                self._publications[correlation_id] = publication
            else:
                self.conductor.close_resource(publication)
            self._pending.pop(correlation_id, None)

    def _refuse(self, image: ImageBase, reason: str) -> None:
        # The driver ends the image, and with it the requester's connection, so the requester learns at once that it was refused.
        self.refused_clients += 1
        self._refused.add(image.correlation_id)
        self.conductor.reject_image(image, reason)

    def close(self) -> None:
        """Close the subscription and all response publications. Any thread may call this."""
        self.conductor.close_resource(self.subscription)
        # Remove one at a time, because the thread in `work` removes entries of both dictionaries, too.
        with suppress(KeyError):
            while True:
                self.conductor.close_resource(self._publications.popitem()[1])
        with suppress(KeyError):
            while True:
                self._pending.popitem()[1].cancel()
