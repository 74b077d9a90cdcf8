"""Every IPC publication: shared, created, taken through its life, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.driver.ipc_path import IpcPath
from mainstem.aeron.counters import CounterType
from mainstem.aeron.driver.conductor.ipc_publication import IpcPublication
from mainstem.aeron.driver.conductor.life_cycle import StreamState
from mainstem.aeron.driver.conductor.publication import PublicationRegistry

if TYPE_CHECKING:
    from mainstem.aeron.driver.conductor.publication import PublicationRequest
    from mainstem.aeron.driver.conductor.subscription_link import SubscriptionLink


class IpcPublications(PublicationRegistry[IpcPublication]):
    """The IPC publications of this driver."""

    def find_or_create(self, request: PublicationRequest, now_ns: int) -> tuple[IpcPublication, bool]:
        """Returns the publication for a registration, and whether it is new."""
        shared = None if request.is_exclusive else self._find_shared(request, self.streams)
        return (self._create(request, now_ns), True) if shared is None else (shared, False)

    def matching(self, stream: IpcPublication) -> list[SubscriptionLink]:
        """Returns the subscriptions to the stream; responses and the subscriptions that wait for them are kept apart."""
        subscriptions = super().matching(stream)
        if not stream.params.is_response:
            return [each for each in subscriptions if not each.params.is_response]
        request = self.find(stream.params.response_correlation_id)
        if request is None:
            return []
        return [each for each in subscriptions if each.registration_id == request.params.response_correlation_id]

    def _create(self, request: PublicationRequest, now_ns: int) -> IpcPublication:
        resources, params = self._resources, request.params
        session_id = self._take_session_id(request, self.streams, "aeron:ipc")
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
            self._give_back(stream, "publication", "REMOVE_PUBLICATION_CLEANUP")
