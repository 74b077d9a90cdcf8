"""Every IPC publication: found again, created, taken through its life, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.driver.ipc_path import IpcPath
from mainstem.aeron.counters import CounterType
from mainstem.aeron.driver.conductor.ipc_publication import IpcPublication
from mainstem.aeron.driver.conductor.life_cycle import PublicationState
from mainstem.aeron.driver.conductor.publication_logs import create_publication_log, kept_only_if_complete
from mainstem.aeron.driver.conductor.publication_params import PublicationParams, check_same
from mainstem.aeron.driver.conductor.stream_counters import StreamCounters
from mainstem.aeron.driver.errors import invalid_channel

if TYPE_CHECKING:
    from mainstem.aeron.channel import ChannelUri
    from mainstem.aeron.driver.conductor.image_links import Linker
    from mainstem.aeron.driver.conductor.session_ids import SessionIds
    from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
    from mainstem.aeron.driver.resources import Resources


class IpcPublications:
    """The IPC publications of this driver. ``active`` holds those that still take part, lingering ones too."""

    def __init__(
        self, resources: Resources, session_ids: SessionIds, linker: Linker, subscriptions: SubscriptionRegistry
    ) -> None:
        self._resources = resources
        self._session_ids = session_ids
        self._linker = linker
        self._subscriptions = subscriptions
        self.active: list[IpcPublication] = []

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
    ) -> tuple[IpcPublication, bool]:
        """The publication for a registration, and whether it is new."""
        shared = None if is_exclusive else self._find_shared(stream_id, params, uri)
        if shared is not None:
            return shared, False
        created = self._create(
            registration_id=registration_id,
            stream_id=stream_id,
            channel=channel,
            params=params,
            is_exclusive=is_exclusive,
            now_ns=now_ns,
        )
        return created, True

    def _find_shared(self, stream_id: int, params: PublicationParams, uri: ChannelUri) -> IpcPublication | None:
        for publication in self.active:
            if (
                publication.stream_id == stream_id
                and not publication.is_exclusive
                and publication.state is PublicationState.ACTIVE
                and publication.params.response_correlation_id == params.response_correlation_id
            ):
                check_same(params, uri, publication)
                return publication
        return None

    def _create(
        self,
        *,
        registration_id: int,
        stream_id: int,
        channel: str,
        params: PublicationParams,
        is_exclusive: bool,
        now_ns: int,
    ) -> IpcPublication:
        resources = self._resources
        session_id = self._take_session_id(stream_id, params)
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
        start = log.producer_position
        with kept_only_if_complete(resources, log, log_file, stream):
            position = stream.allocate_publisher_position(is_exclusive=is_exclusive, value=start)
            limit = stream.allocate(CounterType.PUBLISHER_LIMIT, value=start)
        path = IpcPath(
            log.buffer,
            counters=resources.counter_values,
            initial_term_id=log.initial_term_id,
            term_length=params.term_length,
            window_length=params.window_length,
            publisher_limit=limit.counter_id,
            publisher_position=position.counter_id,
        )
        publication = IpcPublication(
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
            params=params,
            is_exclusive=is_exclusive,
            log=log,
            log_file=log_file,
            path=path,
            stream_counters=stream,
            limit=limit,
            system_counters=resources.system_counters,
            unblock_timeout_ns=resources.settings.publication_unblock_timeout_ns,
            now_ns=now_ns,
        )
        self.active.append(publication)
        resources.ipc_cycle.add(path)
        return publication

    def sessions_in_use(self, stream_id: int) -> set[int]:
        """The session ids that IPC publications of that stream have."""
        return {publication.session_id for publication in self.active if publication.stream_id == stream_id}

    def _take_session_id(self, stream_id: int, params: PublicationParams) -> int:
        in_use = self.sessions_in_use(stream_id)
        if params.session_id is None:
            return self._session_ids.take(in_use)
        if params.session_id in in_use:
            raise invalid_channel(
                f"existing publication has clashing session id {params.session_id} for stream id {stream_id} on aeron:ipc"
            )
        return params.session_id

    def link_subscribers(self, publication: IpcPublication, now_ns: int) -> None:
        """Links every IPC subscription that matches and is not linked yet, and announces the images."""
        request = self.find(publication.params.response_correlation_id) if publication.params.is_response else None
        for subscription in self._subscriptions.matching_ipc(publication, request):
            position = self._linker.link(subscription, publication, now_ns)
            self._linker.announce(publication, position)

    def find(self, registration_id: int) -> IpcPublication | None:
        """The publication of that registration id, while it is active."""
        for publication in self.active:
            if publication.registration_id == registration_id and publication.state is PublicationState.ACTIVE:
                return publication
        return None

    def link_all(self, now_ns: int) -> None:
        """Links whoever is not linked yet, after a subscription was added."""
        for publication in self.active:
            if publication.accepts_subscribers:
                self.link_subscribers(publication, now_ns)

    def on_timer(self, now_ns: int) -> None:
        """One step in the life of each; what is done is deleted."""
        for publication in list(self.active):
            publication.on_time_event(now_ns, self._linker)
            if publication.cooled_down:
                publication.cooled_down = False
                self.link_subscribers(publication, now_ns)
            if publication.state is PublicationState.DONE:
                self._delete(publication)

    def _delete(self, publication: IpcPublication) -> None:
        self._resources.changed(f"publication {publication.registration_id}", publication.state.name, "REMOVED")
        self._resources.note(
            "REMOVE_PUBLICATION_CLEANUP",
            f"sessionId={publication.session_id} streamId={publication.stream_id} channel={publication.channel}",
        )
        self.active.remove(publication)
        self._resources.ipc_cycle.remove(publication.path)
        self._linker.unlink_all(publication)
        publication.stream_counters.close()
        self._resources.logs.delete(publication.log, publication.log_file)
