"""IPC publications, which are active while referenced, then draining, lingering, done (docs/protocols/aeron.md, 14.6).

In the conductor's thread, the compiled ``IpcPath`` moves limits and positions, and cleans the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.driver.ipc_path import IpcPath
from mainstem.aeron.counters import CounterType
from mainstem.aeron.driver.conductor.life_cycle import StreamState
from mainstem.aeron.driver.conductor.publication import Publication, PublicationRegistry
from mainstem.aeron.driver.event_log.events import Event

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.life_cycle import StreamMemory
    from mainstem.aeron.driver.conductor.publication import PublicationRequest
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.subscription_link import Interest, SubscriberPosition, SubscriptionLink


class IpcPublication(Publication):
    """A log that local clients write and read.

    After a subscriber rejects it, it accepts no subscribers until ``cool_down_until_ns``. ``cooled_down`` is then set until the
    registry links subscribers again.
    """

    is_ipc = True

    def __init__(
        self,
        memory: StreamMemory,
        request: PublicationRequest,
        path: IpcPath,
        limit: CounterCell,
        resources: Resources,
        now_ns: int,
    ) -> None:
        self.path: IpcPath = path
        super().__init__(memory, request, path.subscribers, limit, resources, now_ns)
        self.cool_down_until_ns: int | None = None
        self.cooled_down = False

    @property
    def channel_status_id(self) -> int:
        return -1

    @property
    def accepts_subscribers(self) -> bool:
        return super().accepts_subscribers and self.cool_down_until_ns is None

    @property
    def join_position(self) -> int:
        return self.path.consumer_position

    @property
    def furthest_position(self) -> int:
        return max(self.path.subscribers.maximum(), self.path.consumer_position)

    def interest_of(self, subscription: SubscriptionLink) -> Interest | None:
        return subscription.interest_in_ipc(self.session_id)

    def add_subscriber(self, position: SubscriberPosition) -> None:
        super().add_subscriber(position)
        self.path.connected = True

    def rest_subscriber(self, position: SubscriberPosition) -> None:
        super().rest_subscriber(position)
        if not len(self.path.subscribers):
            self.path.connected = False

    def remove_subscriber(self, position: SubscriberPosition) -> None:
        # Otherwise the next subscriber could get messages that this one has read.
        self.path.take_consumed(position.cell.get_acquire())
        super().remove_subscriber(position)

    def revoke(self, now_ns: int) -> None:
        super().revoke(now_ns)
        self.path.connected = False

    def _is_being_read(self) -> bool:
        return self._is_read_behind(self.path.producer_position())

    def _hold_limit(self) -> None:
        self.path.draining = True
        self.path.clamp_limit(self.path.producer_position())

    def _on_active(self, now_ns: int, links: ImageLinks) -> None:
        super()._on_active(now_ns, links)
        if self.cool_down_until_ns is not None and now_ns >= self.cool_down_until_ns:
            self.cool_down_until_ns = None
            self.cooled_down = True

    def _is_drained(self, now_ns: int) -> bool:
        if self._have_read(self.path.producer_position(), now_ns):
            return True
        self._unblock_producers(now_ns)
        return False

    def _has_lingered(self, now_ns: int) -> bool:
        return now_ns - self.since_ns >= self.params.linger_ns


class IpcPublications(PublicationRegistry[IpcPublication]):
    def find_or_create(self, request: PublicationRequest, now_ns: int) -> tuple[IpcPublication, bool]:
        shared = None if request.is_exclusive else self._find_shared(request, self.streams)
        return (self._create(request, now_ns), True) if shared is None else (shared, False)

    def matching(self, stream: IpcPublication) -> list[SubscriptionLink]:
        """Return the subscriptions to the stream.

        A response matches only the subscription that its request names. Other streams match no subscription for responses.
        """
        subscriptions = super().matching(stream)
        if not stream.params.is_response:
            return [each for each in subscriptions if not each.params.is_response]
        request = self.find(stream.params.response_correlation_id)
        if request is None:
            return []
        return [each for each in subscriptions if each.registration_id == request.params.response_correlation_id]

    def _create(self, request: PublicationRequest, now_ns: int) -> IpcPublication:
        resources, params = self._resources, request.params
        session_id = self._take_session_id(request, self.streams)
        memory = self._create_memory(request, session_id)
        start = memory.log.producer_position
        with self._given_back_on_error(memory):
            position = memory.counters.allocate_publisher_position(is_exclusive=request.is_exclusive, value=start)
            limit = memory.counters.allocate(CounterType.PUBLISHER_LIMIT, value=start)
            allocator = self._allocate(memory, request, start)
        path = IpcPath(
            memory.log.buffer,
            counters=resources.counter_values,
            initial_term_id=memory.log.initial_term_id,
            term_length=params.term_length,
            window_length=params.publication_window_length,
            publisher_limit=limit.counter_id,
            publisher_position=position.counter_id,
        )
        path.allocator = allocator
        publication = IpcPublication(memory, request, path, limit, resources, now_ns)
        self.streams.append(publication)
        resources.ipc_cycle.add(path)
        self._link_matching(publication, now_ns)
        return publication

    def _on_step(self, stream: IpcPublication, before: StreamState, now_ns: int) -> None:  # noqa: ARG002 - as declared
        if stream.cooled_down:
            stream.cooled_down = False
            self.link_subscribers(stream, now_ns)
        if stream.state is StreamState.DONE:
            self.streams.remove(stream)
            self._resources.ipc_cycle.remove(stream.path)
            self._give_back(stream, "publication", Event.REMOVE_PUBLICATION_CLEANUP)
