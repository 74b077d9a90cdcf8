"""Registrations of publications: who asked for which, and the commands that add and remove them (aeron-behaviour §7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.command.commands import AddExclusivePublication
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.command.responses import (
    OnExclusivePublicationReady,
    OnNextAvailableSessionId,
    OnOperationSuccess,
    OnPublicationReady,
)
from mainstem.aeron.driver.life_cycle import PublicationState
from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from mainstem.aeron.command.commands import AddPublication, GetNextAvailableSessionId, RemovePublication
    from mainstem.aeron.driver.clients import Clients
    from mainstem.aeron.driver.ipc_publication import IpcPublication
    from mainstem.aeron.driver.ipc_publications import IpcPublications
    from mainstem.aeron.driver.linking import Linker
    from mainstem.aeron.driver.resources import Resources
    from mainstem.aeron.driver.session_ids import SessionIds

    Publication: TypeAlias = IpcPublication


@dataclass(frozen=True, slots=True)
class PublicationLink:
    """One registration: a client's share of a publication."""

    client_id: int
    publication: Publication


class Publications:
    """Every registration of a publication, by its id."""

    def __init__(
        self,
        resources: Resources,
        clients: Clients,
        linker: Linker,
        ipc: IpcPublications,
        session_ids: SessionIds,
    ) -> None:
        self._resources = resources
        self._clients = clients
        self._linker = linker
        self._ipc = ipc
        self._session_ids = session_ids
        self._links: dict[int, PublicationLink] = {}

    def find(self, registration_id: int) -> Publication | None:
        """The publication that a registration id stands for."""
        link = self._links.get(registration_id)
        return None if link is None else link.publication

    def get(self, registration_id: int) -> Publication:
        """The same. Raises RegistrationError (UNKNOWN_PUBLICATION)."""
        publication = self.find(registration_id)
        if publication is None:
            raise RegistrationError(
                f"unknown publication: registration id {registration_id}", code=ErrorCode.UNKNOWN_PUBLICATION
            )
        return publication

    def add(self, command: AddPublication | AddExclusivePublication, now_ns: int) -> None:
        """ADD_PUBLICATION and ADD_EXCLUSIVE_PUBLICATION."""
        self._clients.get_or_add(command.client_id)
        uri = ChannelUri.parse(command.channel)
        if not uri.is_ipc:
            raise RegistrationError(f"channel {uri}: only aeron:ipc is supported", code=ErrorCode.NOT_SUPPORTED)
        family = self._ipc
        is_exclusive = isinstance(command, AddExclusivePublication)
        publication, is_new = family.find_or_create(
            uri,
            registration_id=command.correlation_id,
            stream_id=command.stream_id,
            channel=command.channel,
            is_exclusive=is_exclusive,
            now_ns=now_ns,
        )
        if not is_new:
            publication.references += 1
        self._links[command.correlation_id] = PublicationLink(command.client_id, publication)
        ready = OnExclusivePublicationReady if is_exclusive else OnPublicationReady
        self._resources.responses.send(
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
            family.link_subscribers(publication, now_ns)

    def remove(self, command: RemovePublication, now_ns: int) -> None:
        """REMOVE_PUBLICATION, with or without revocation."""
        publication = self.get(command.registration_id)
        del self._links[command.registration_id]
        if command.revoke and publication.state in (PublicationState.ACTIVE, PublicationState.DRAINING):
            self._revoke(publication, now_ns)
        else:
            publication.release(now_ns)
        self._resources.responses.send(OnOperationSuccess(correlation_id=command.correlation_id))

    def next_session_id(self, command: GetNextAvailableSessionId, now_ns: int) -> None:  # noqa: ARG002
        """GET_NEXT_AVAILABLE_SESSION_ID: an id that no publication of that stream has, on any channel."""
        in_use = {p.session_id for p in self._ipc.active if p.stream_id == command.stream_id}
        self._resources.responses.send(
            OnNextAvailableSessionId(correlation_id=command.correlation_id, session_id=self._session_ids.take(in_use))
        )

    def release_client(self, client_id: int, now_ns: int) -> None:
        """Gives up everything that a client registered."""
        for registration_id, link in list(self._links.items()):
            if link.client_id == client_id:
                del self._links[registration_id]
                link.publication.release(now_ns)

    def _revoke(self, publication: Publication, now_ns: int) -> None:
        publication.revoke(now_ns)
        self._linker.on_lingering(publication)
        self._linker.unlink_all(publication)
