"""Every network publication: shared, created, taken through its life, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.driver.send_path import SendPath
from mainstem.aeron.driver.conductor.life_cycle import StreamState
from mainstem.aeron.driver.conductor.network_publication import NetworkPublication
from mainstem.aeron.driver.conductor.publication import PublicationRegistry
from mainstem.aeron.driver.conductor.sender_factory import make_sender_publication, runs_at_once
from mainstem.aeron.driver.conductor.stream_counters import SendCounters

if TYPE_CHECKING:
    from mainstem.aeron.driver.conductor.channels import Channels, SendChannel
    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.life_cycle import StreamMemory
    from mainstem.aeron.driver.conductor.publication import PublicationRequest
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.session_ids import SessionIds
    from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
    from mainstem.aeron.driver.messages import PublicationReleased


class NetworkPublications(PublicationRegistry[NetworkPublication]):
    """The network publications of this driver."""

    def __init__(
        self,
        resources: Resources,
        links: ImageLinks,
        subscriptions: SubscriptionRegistry,
        session_ids: SessionIds,
        channels: Channels,
    ) -> None:
        super().__init__(resources, links, subscriptions, session_ids)
        self._channels = channels
        # DONE, and with the sender until it reports that it released them.
        self._leaving: dict[int, NetworkPublication] = {}

    def find_or_create(self, request: PublicationRequest, now_ns: int) -> tuple[NetworkPublication, bool]:
        """Returns the publication for a registration, and whether it is new."""
        udp = request.udp
        assert udp is not None
        channel = self._channels.find_send(udp, request.params)
        if channel is not None and not request.is_exclusive:
            shared = self._find_shared(request, self._on(channel))
            if shared is not None:
                return shared, False
        if channel is None:
            channel = self._channels.open_send(
                udp, request.params, registration_id=request.registration_id, text=request.channel
            )
        try:
            return self._create(request, channel, now_ns), True
        finally:
            # When the creation failed, no publication may be left that needs the socket.
            self._channels.close_send_if_unused(channel)

    def _on(self, channel: SendChannel) -> list[NetworkPublication]:
        return [publication for publication in self.streams if publication.send_channel is channel]

    def _create(self, request: PublicationRequest, channel: SendChannel, now_ns: int) -> NetworkPublication:
        resources = self._resources
        session_id = self._take_session_id(request, self._on(channel), channel.canonical_form)
        memory = self._create_memory(request, session_id)
        with self._given_back_on_error(memory):
            counters = SendCounters.allocate(
                memory.counters, start=memory.log.producer_position, is_exclusive=request.is_exclusive
            )
            sender_publication = make_sender_publication(
                resources,
                self._path(request, memory, counters, now_ns),
                channel,
                request.params,
                stream=memory.counters,
                counters=counters,
            )
        publication = NetworkPublication(
            memory, request, sender_publication, channel, counters.publisher_limit, resources, now_ns
        )
        channel.users += 1
        self.streams.append(publication)
        resources.sender.add_publication(sender_publication)
        self._link_matching(publication, now_ns)
        return publication

    def _path(self, request: PublicationRequest, memory: StreamMemory, counters: SendCounters, now_ns: int) -> SendPath:
        params = request.params
        path = SendPath(
            memory.log.buffer,
            counters=self._resources.counter_values,
            session_id=memory.counters.session_id,
            stream_id=request.stream_id,
            initial_term_id=memory.log.initial_term_id,
            term_length=params.term_length,
            mtu=params.mtu,
            window_length=params.publication_window_length,
            publisher_limit=counters.publisher_limit.counter_id,
            publisher_position=counters.publisher_position.counter_id,
            sender_position=counters.sender_position.counter_id,
            sender_limit=counters.sender_limit.counter_id,
            back_pressure=counters.back_pressure.counter_id,
            max_runs=runs_at_once(self._resources.settings),
            spies_simulate_connection=params.spies_simulate_connection,
            now_ns=now_ns,
        )
        path.allocator = self._allocate(memory, request, path.sender_position)
        return path

    def _on_step(self, stream: NetworkPublication, before: StreamState, now_ns: int) -> None:  # noqa: ARG002 - as declared
        if stream.state is StreamState.DONE:
            self.streams.remove(stream)
            self._links.unlink_all(stream)
            self._leaving[stream.registration_id] = stream
            self._resources.sender.remove_publication(stream.sender_publication)

    def on_released(self, message: PublicationReleased, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """The sender released a publication: its log and counters can go, and its channel with the last one."""
        publication = self._leaving.pop(message.registration_id)
        self._give_back(publication, "publication", "REMOVE_PUBLICATION_CLEANUP")
        publication.send_channel.users -= 1
        self._channels.close_send_if_unused(publication.send_channel)
