"""The registrations of publications, and the commands that add and remove them (docs/protocols/aeron.md, 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from mainstem._internal.frozen import frozen
from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.channel_values import NO_TAG
from mainstem.aeron.command.commands import AddExclusivePublication
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.command.responses import (
    OnExclusivePublicationReady,
    OnNextAvailableSessionId,
    OnOperationSuccess,
    OnPublicationReady,
)
from mainstem.aeron.driver.conductor.life_cycle import StreamState
from mainstem.aeron.driver.conductor.params import PublicationParams, TaggedSession
from mainstem.aeron.driver.conductor.publication import PublicationRequest
from mainstem.aeron.driver.errors import check_unused
from mainstem.aeron.driver.event_log.events import Event
from mainstem.errors import ChannelUriError, RegistrationError

if TYPE_CHECKING:
    from mainstem.aeron.command.commands import AddPublication, GetNextAvailableSessionId, RemovePublication
    from mainstem.aeron.driver.conductor.channels import Channels
    from mainstem.aeron.driver.conductor.clients import Clients
    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.ipc_publication import IpcPublication, IpcPublications
    from mainstem.aeron.driver.conductor.network_publication import NetworkPublication, NetworkPublications
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.response_channels import ResponseChannels
    from mainstem.aeron.driver.conductor.session_ids import SessionIds

    Publication: TypeAlias = IpcPublication | NetworkPublication


@frozen
class PublicationLink:
    """A client's registration of a publication."""

    client_id: int
    publication: Publication


class PublicationCommands:
    def __init__(
        self,
        resources: Resources,
        clients: Clients,
        links: ImageLinks,
        ipc: IpcPublications,
        network: NetworkPublications,
        session_ids: SessionIds,
        response_channels: ResponseChannels,
        channels: Channels,
    ) -> None:
        self._resources = resources
        self._clients = clients
        self._links = links
        self._ipc = ipc
        self._network = network
        self._session_ids = session_ids
        self._response_channels = response_channels
        self._channels = channels
        self._registrations: dict[int, PublicationLink] = {}

    def of_client(self, client_id: int, registration_id: int) -> Publication:
        """Return a client's publication, given the id of the client's registration or of the one that created the publication.

        Raises RegistrationError (UNKNOWN_PUBLICATION).
        """
        link = self._registrations.get(registration_id)
        if link is not None and link.client_id == client_id:
            return link.publication
        for link in self._registrations.values():
            if link.client_id == client_id and link.publication.registration_id == registration_id:
                return link.publication
        raise _unknown_publication(client_id, registration_id)

    def add(self, command: AddPublication | AddExclusivePublication, now_ns: int) -> None:
        check_unused(command.correlation_id, self._registrations)
        self._clients.get_or_add(command.client_id)
        uri = ChannelUri.parse(command.channel)
        if uri.spy:
            raise ChannelUriError(uri.text, "Aeron spies are invalid as publications: a spy can only subscribe")
        udp = None if uri.is_ipc else self._channels.resolve(uri)
        params = PublicationParams.of(uri, self._resources.settings, self._tagged(uri))
        if udp is not None:
            udp.check_publication()
        params = self._response_channels.check(uri, params)
        is_exclusive = isinstance(command, AddExclusivePublication)
        request = PublicationRequest(
            registration_id=command.correlation_id,
            client_id=command.client_id,
            stream_id=command.stream_id,
            channel=command.channel,
            uri=uri,
            udp=udp,
            params=params,
            is_exclusive=is_exclusive,
        )
        registry: IpcPublications | NetworkPublications = self._ipc if uri.is_ipc else self._network
        publication, is_new = registry.find_or_create(request, now_ns)
        if not is_new:
            publication.references += 1
        self._registrations[command.correlation_id] = PublicationLink(
            client_id=command.client_id, publication=publication
        )
        ready = OnExclusivePublicationReady if is_exclusive else OnPublicationReady
        self._resources.clients.send(
            ready(
                correlation_id=command.correlation_id,
                original_registration_id=publication.registration_id,
                session_id=publication.session_id,
                stream_id=publication.stream_id,
                position_limit_id=publication.limit.counter_id,
                channel_status_id=publication.channel_status_id,
                log_file=publication.log_file,
            )
        )
        if is_new:
            for position in publication.subscribers:
                self._links.announce(publication, position)
            self._response_channels.on_added(publication)

    def _tagged(self, uri: ChannelUri) -> TaggedSession | None:
        """Return the values for ``session-id=tag:N``, or None if the channel doesn't have it (docs/protocols/aeron.md, 19.7).

        They come from the network publication with entity tag N. Raises ChannelUriError if there is none.
        """
        tag = uri.session_id_tag
        if tag is None:
            return None
        for publication in self._network.streams:
            if publication.params.entity_tag == tag != NO_TAG:
                log = publication.log
                return TaggedSession(publication.session_id, log.mtu, log.term_length)
        raise uri.fault(f"no network publication has the tag {tag}", "session-id")

    def _all(self) -> list[Publication]:
        return [*self._ipc.streams, *self._network.streams]

    def remove(self, command: RemovePublication, now_ns: int) -> None:
        link = self._registrations.get(command.registration_id)
        if link is None or link.client_id != command.client_id:
            raise _unknown_publication(command.client_id, command.registration_id)
        del self._registrations[command.registration_id]
        publication = link.publication
        is_revoked = command.revoke and publication.state in (StreamState.ACTIVE, StreamState.DRAINING)
        if is_revoked:
            self._revoke(publication, now_ns)
        else:
            publication.release(now_ns)
        self._resources.clients.send(OnOperationSuccess(correlation_id=command.correlation_id))
        if is_revoked:
            self._links.on_lingering(publication)
            self._links.unlink_all(publication)

    def next_session_id(self, command: GetNextAvailableSessionId, now_ns: int) -> None:  # noqa: ARG002
        """Handle GET_NEXT_AVAILABLE_SESSION_ID: respond with an id that no publication of the stream uses on any channel."""
        in_use = {p.session_id for p in self._all() if p.stream_id == command.stream_id}
        self._resources.clients.send(
            OnNextAvailableSessionId(correlation_id=command.correlation_id, session_id=self._session_ids.take(in_use))
        )

    def release_client(self, client_id: int, now_ns: int) -> None:
        for registration_id, link in list(self._registrations.items()):
            if link.client_id == client_id:
                del self._registrations[registration_id]
                link.publication.release(now_ns)

    def _revoke(self, publication: Publication, now_ns: int) -> None:
        self._resources.changed(f"publication {publication.registration_id}", publication.state.name, "REVOKED")
        self._resources.note(
            Event.PUBLICATION_REVOKE,
            position=publication.producer_position(),
            session_id=publication.session_id,
            stream_id=publication.stream_id,
            channel=publication.channel,
        )
        publication.revoke(now_ns)


def _unknown_publication(client_id: int, registration_id: int) -> RegistrationError:
    return RegistrationError(
        f"unknown publication: client {client_id} has none with registration id {registration_id}",
        code=ErrorCode.UNKNOWN_PUBLICATION,
    )
