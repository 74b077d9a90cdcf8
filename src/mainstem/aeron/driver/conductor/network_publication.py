"""Network publications, which are active, draining, lingering, then done (docs/protocols/aeron.md, 14.6).

In the sender's thread, the compiled ``SendPath`` sends data, moves limits, cleans the log and tracks the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.driver.send_path import SendPath
from mainstem.aeron.driver.conductor.life_cycle import StreamState
from mainstem.aeron.driver.conductor.publication import Publication, PublicationRegistry
from mainstem.aeron.driver.conductor.sender_factory import make_sender_publication, runs_at_once
from mainstem.aeron.driver.conductor.stream_counters import SendCounters
from mainstem.aeron.driver.event_log.events import Event

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.conductor.channels import Channels, SendChannel
    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.life_cycle import StreamMemory
    from mainstem.aeron.driver.conductor.publication import PublicationRequest
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.session_ids import SessionIds
    from mainstem.aeron.driver.conductor.subscription_link import Interest, SubscriptionLink
    from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
    from mainstem.aeron.driver.conductor_proxy import PublicationReleased
    from mainstem.aeron.driver.sender.sender_publication import SenderPublication


class NetworkPublication(Publication):
    """A log that local clients write and the sender sends. Its ``subscribers`` are spies.

    Only the sender changes ``sender_publication`` and its path.
    """

    def __init__(
        self,
        memory: StreamMemory,
        request: PublicationRequest,
        sender_publication: SenderPublication,
        send_channel: SendChannel,
        limit: CounterCell,
        resources: Resources,
        now_ns: int,
    ) -> None:
        self.path: SendPath = sender_publication.path
        super().__init__(memory, request, self.path.spies, limit, resources, now_ns)
        self.sender_publication = sender_publication
        self.send_channel = send_channel
        self._is_end_announced = False

    @property
    def channel_status_id(self) -> int:
        return self.send_channel.status.counter_id

    @property
    def join_position(self) -> int:
        return self.path.sender_position

    @property
    def furthest_position(self) -> int:
        return self.path.sender_position

    def interest_of(self, subscription: SubscriptionLink) -> Interest | None:
        return subscription.interest_in_sent(self.send_channel.udp, self.session_id)

    def release(self, now_ns: int) -> None:
        super().release(now_ns)
        if self.state is StreamState.DRAINING and self.path.sender_position >= self.path.producer_position():
            self._announce_end()

    def revoke(self, now_ns: int) -> None:
        super().revoke(now_ns)
        self._resources.sender.revoke_publication(self.sender_publication)

    def _is_being_read(self) -> bool:
        # A spy joins at the sender's position, so a new spy could read only data that hasn't been sent.
        is_spied = any(position.is_counted for position in self.subscribers)
        return is_spied and self.path.sender_position < self.path.producer_position()

    def _hold_limit(self) -> None:
        self._resources.sender.drain_publication(self.sender_publication)

    def _is_drained(self, now_ns: int) -> bool:
        end = self.path.producer_position()
        # A client that timed out may have written more data until the sender froze the limit.
        self.log.end_of_stream_position = end
        if self.path.sender_position < end:
            # An unfinished claim stalls the data after it. With padding in its place, receivers get that data.
            if self._unblock_producers(now_ns) or self.path.has_receivers:
                return False
        else:
            self._announce_end()
        return self._have_read(end, now_ns)

    def _has_lingered(self, now_ns: int) -> bool:
        # Without a receiver there is nothing to send again, and nobody to tell of the end.
        is_over = self.path.received_unicast_eos or not self.path.has_initial_connection
        return is_over or now_ns - self.since_ns >= self.params.linger_ns

    def _announce_end(self) -> None:
        """Announce the end in heartbeats from now on, unless the channel has ``eos=false``."""
        if self.params.signal_eos and not self._is_end_announced:
            self._is_end_announced = True
            self._resources.sender.end_publication(self.sender_publication)


class NetworkPublications(PublicationRegistry[NetworkPublication]):
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
        # Publications that are DONE, but that the sender hasn't released yet.
        self._leaving: dict[int, NetworkPublication] = {}

    def find_or_create(self, request: PublicationRequest, now_ns: int) -> tuple[NetworkPublication, bool]:
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
            # If the creation failed, no publication may be using the socket.
            self._channels.close_if_unused(channel)

    def _on(self, channel: SendChannel) -> list[NetworkPublication]:
        return [publication for publication in self.streams if publication.send_channel is channel]

    def _create(self, request: PublicationRequest, channel: SendChannel, now_ns: int) -> NetworkPublication:
        resources = self._resources
        session_id = self._take_session_id(request, self._on(channel))
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
        """Free the log and the counters of a publication that the sender released, and close its channel if unused."""
        publication = self._leaving.pop(message.registration_id)
        self._give_back(publication, "publication", Event.REMOVE_PUBLICATION_CLEANUP)
        publication.send_channel.users -= 1
        self._channels.close_if_unused(publication.send_channel)
