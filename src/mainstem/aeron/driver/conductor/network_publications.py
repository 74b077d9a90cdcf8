"""Every network publication: found again, created, taken through its life, deleted."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from mainstem._core.driver.send_path import SendPath
from mainstem.aeron.command.responses import ADDRESS_IPV4, ADDRESS_IPV6, OnPublicationError
from mainstem.aeron.driver.conductor.life_cycle import PublicationState
from mainstem.aeron.driver.conductor.network_publication import NetworkPublication
from mainstem.aeron.driver.conductor.publication_logs import create_publication_log, kept_only_if_complete
from mainstem.aeron.driver.conductor.publication_params import PublicationParams, check_same
from mainstem.aeron.driver.conductor.sender_factory import make_sending, runs_at_once
from mainstem.aeron.driver.conductor.stream_counters import SendCounters, StreamCounters
from mainstem.aeron.driver.errors import invalid_channel
from mainstem.aeron.driver.media.addresses import InetAddress

if TYPE_CHECKING:
    from mainstem.aeron.channel import ChannelUri
    from mainstem.aeron.driver.conductor.endpoints import Endpoints, SendEndpoint
    from mainstem.aeron.driver.conductor.image_links import Linker
    from mainstem.aeron.driver.conductor.session_ids import SessionIds
    from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
    from mainstem.aeron.driver.messages import PublicationError, PublicationReleased
    from mainstem.aeron.driver.resources import Resources
    from mainstem.aeron.driver.sender.sender_publication import SenderPublication


class NetworkPublications:
    """The network publications of this driver. ``active`` holds those that still take part, lingering ones too."""

    def __init__(
        self,
        resources: Resources,
        session_ids: SessionIds,
        linker: Linker,
        subscriptions: SubscriptionRegistry,
        endpoints: Endpoints,
    ) -> None:
        self._resources = resources
        self._session_ids = session_ids
        self._linker = linker
        self._subscriptions = subscriptions
        self._endpoints = endpoints
        self.active: list[NetworkPublication] = []
        self._leaving: dict[SenderPublication, NetworkPublication] = {}

    def find_or_create(
        self,
        uri: ChannelUri,
        params: PublicationParams,
        *,
        registration_id: int,
        stream_id: int,
        channel: str,
        is_exclusive: bool,
        now_ns: int,
    ) -> tuple[NetworkPublication, bool]:
        """The publication for a registration, and whether it is new."""
        udp = self._endpoints.channel(uri)
        endpoint = self._endpoints.find_send(udp)
        if endpoint is not None and not is_exclusive:
            shared = self._find_shared(endpoint, stream_id, params, uri)
            if shared is not None:
                return shared, False
        if endpoint is None:
            endpoint = self._endpoints.open_send(udp, registration_id=registration_id, text=channel)
        try:
            created = self._create(
                endpoint,
                registration_id=registration_id,
                stream_id=stream_id,
                channel=channel,
                params=params,
                is_exclusive=is_exclusive,
                now_ns=now_ns,
            )
        finally:
            # When the creation failed, nobody may be left who needs the socket.
            self._endpoints.close_send_if_unused(endpoint)
        return created, True

    def _find_shared(
        self, endpoint: SendEndpoint, stream_id: int, params: PublicationParams, uri: ChannelUri
    ) -> NetworkPublication | None:
        for publication in self.active:
            if (
                publication.endpoint is endpoint
                and publication.stream_id == stream_id
                and not publication.is_exclusive
                and publication.state is PublicationState.ACTIVE
                and publication.params.response_correlation_id == params.response_correlation_id
            ):
                check_same(params, uri, publication)
                return publication
        return None

    def _create(
        self,
        endpoint: SendEndpoint,
        *,
        registration_id: int,
        stream_id: int,
        channel: str,
        params: PublicationParams,
        is_exclusive: bool,
        now_ns: int,
    ) -> NetworkPublication:
        resources = self._resources
        session_id = self._take_session_id(endpoint, stream_id, params)
        log, log_file = create_publication_log(
            resources,
            params,
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            is_exclusive=is_exclusive,
        )
        stream = StreamCounters(
            resources.counters, registration_id, session_id=session_id, stream_id=stream_id, channel=channel
        )
        with kept_only_if_complete(resources, log, log_file, stream):
            counters = SendCounters.allocate(stream, start=log.producer_position, is_exclusive=is_exclusive)
        path = SendPath(
            log.buffer,
            counters=resources.counter_values,
            session_id=session_id,
            stream_id=stream_id,
            initial_term_id=log.initial_term_id,
            term_length=params.term_length,
            mtu=params.mtu,
            window_length=params.window_length,
            publisher_limit=counters.publisher_limit.counter_id,
            publisher_position=counters.publisher_position.counter_id,
            sender_position=counters.sender_position.counter_id,
            sender_limit=counters.sender_limit.counter_id,
            back_pressure=counters.back_pressure.counter_id,
            max_runs=runs_at_once(resources.settings),
            spies_simulate_connection=params.spies_simulate_connection,
            now_ns=now_ns,
        )
        with kept_only_if_complete(resources, log, log_file, stream):
            sending = make_sending(resources, path, endpoint, params, stream=stream, counters=counters)
        publication = NetworkPublication(
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
            params=params,
            is_exclusive=is_exclusive,
            log=log,
            log_file=log_file,
            path=path,
            sending=sending,
            endpoint=endpoint,
            limit=counters.publisher_limit,
            stream_counters=stream,
            system_counters=resources.system_counters,
            unblock_timeout_ns=resources.settings.publication_unblock_timeout_ns,
            now_ns=now_ns,
        )
        endpoint.users += 1
        self.active.append(publication)
        resources.sender.add_publication(sending)
        return publication

    def sessions_in_use(self, endpoint: SendEndpoint, stream_id: int) -> set[int]:
        """The session ids that publications of that stream have on ``endpoint``."""
        return {p.session_id for p in self.active if p.endpoint is endpoint and p.stream_id == stream_id}

    def _take_session_id(self, endpoint: SendEndpoint, stream_id: int, params: PublicationParams) -> int:
        in_use = self.sessions_in_use(endpoint, stream_id)
        if params.session_id is None:
            return self._session_ids.take(in_use)
        if params.session_id in in_use:
            raise invalid_channel(
                f"existing publication has clashing session id {params.session_id} for stream id {stream_id} "
                f"on {endpoint.canonical_form}"
            )
        return params.session_id

    def link_subscribers(self, publication: NetworkPublication, now_ns: int) -> None:
        """Links every spy that matches and is not linked yet, and announces the images."""
        for subscription in self._subscriptions.matching_spies(publication):
            position = self._linker.link(subscription, publication, now_ns)
            self._linker.announce(publication, position)

    def link_all(self, now_ns: int) -> None:
        """Links whoever is not linked yet, after a spy was added."""
        for publication in self.active:
            if publication.accepts_subscribers:
                self.link_subscribers(publication, now_ns)

    def on_timer(self, now_ns: int) -> None:
        """One step in the life of each; what is done leaves the sender first."""
        for publication in list(self.active):
            publication.on_time_event(now_ns, self._linker)
            if publication.state is PublicationState.DONE:
                self.active.remove(publication)
                self._linker.unlink_all(publication)
                self._leaving[publication.sending] = publication
                self._resources.sender.remove_publication(publication.sending)

    def of_sending(self, sending: SenderPublication) -> NetworkPublication | None:
        """The publication whose part in the sender is ``sending``."""
        return next((publication for publication in self.active if publication.sending is sending), None)

    def on_error(self, message: PublicationError, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """A receiver refused a publication: its clients are told, and the error log."""
        publication = self.of_sending(message.publication)
        if publication is None:
            return
        source = InetAddress.unpack(message.source)
        self._resources.responses.send(
            OnPublicationError(
                registration_id=publication.registration_id,
                destination_registration_id=-1,
                session_id=publication.session_id,
                stream_id=publication.stream_id,
                receiver_id=message.receiver_id,
                group_tag=-1 if message.group_tag is None else message.group_tag,
                address_type=ADDRESS_IPV6 if source.is_v6 else ADDRESS_IPV4,
                source_port=source.port,
                source_address=ip_address(source.ip).packed.ljust(16, b"\0"),
                error_code=message.code,
                message=message.text,
            )
        )
        self._resources.errors.record(
            f"receiver {message.receiver_id} at {source} refused session {publication.session_id} of stream "
            f"{publication.stream_id} on {publication.channel}: {message.text}",
            code=message.code,
        )

    def on_released(self, message: PublicationReleased, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """The sender has let go of a publication: its log and counters can go, and the endpoint with its last one."""
        publication = self._leaving.pop(message.publication)
        self._resources.changed(f"publication {publication.registration_id}", publication.state.name, "REMOVED")
        self._resources.note(
            "REMOVE_PUBLICATION_CLEANUP",
            f"sessionId={publication.session_id} streamId={publication.stream_id} channel={publication.channel}",
        )
        publication.stream_counters.close()
        self._resources.logs.delete(publication.log, publication.log_file)
        publication.endpoint.users -= 1
        self._endpoints.close_send_if_unused(publication.endpoint)
