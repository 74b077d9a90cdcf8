"""The sender agent: a compiled cycle for all publications, and Python code for the events that it reports.

See docs/protocols/aeron.md, 14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core import layout
from mainstem._core.driver.send_cycle import SenderCycle
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.driver.conductor_proxy import (
    EndpointClosed,
    NetworkFault,
    PeerFault,
    PublicationError,
    PublicationReleased,
    ResolveAgain,
    ResponseConnected,
    ResponseSetupReceived,
)
from mainstem.aeron.driver.network_agent import CHECK_INTERVAL_NS, NetworkAgent
from mainstem.aeron.protocol import frames
from mainstem.aeron.protocol.frames import StatusMessage
from mainstem.aeron.protocol.layouts import FrameType, Header

if TYPE_CHECKING:
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem.aeron.driver.conductor_proxy import ConductorQueue
    from mainstem.aeron.driver.media.addresses import InetAddress
    from mainstem.aeron.driver.media.endpoints import SendChannelEndpoint
    from mainstem.aeron.driver.sender.sender_publication import SenderPublication

# After this much silence, the name of a peer is resolved again (docs/protocols/aeron.md, 19.8).
SILENCE_NS = 5_000_000_000


class Sender(NetworkAgent[SenderCycle, "SendChannelEndpoint"]):
    def __init__(
        self,
        *,
        counters: AtomicBuffer,
        to_conductor: ConductorQueue,
        status_poll_ratio: int = 6,
        status_poll_interval_ns: int = 100_000_000,
        resolve_interval_ns: int = CHECK_INTERVAL_NS,
        now_ns: int = 0,
    ) -> None:
        super().__init__(
            SenderCycle(counters, status_poll_ratio, status_poll_interval_ns),
            counters=counters,
            to_conductor=to_conductor,
            resolve_interval_ns=resolve_interval_ns,
            now_ns=now_ns,
        )
        self._publications: dict[int, SenderPublication] = {}
        self._registered_ns: dict[int, int] = {}

    def _on_events(self, events: list[tuple[Any, ...]], now_ns: int) -> None:
        for kind, endpoint_key, path_key, _, value, _, source, frame in events:
            if kind == layout.EVENT_DESTINATION:
                self._on_destination(endpoint_key, source, frame, now_ns)
                continue
            publication = self._publications.get(path_key)
            if publication is not None:
                self._on_event(publication, kind, value, source, frame, now_ns)
        for publication in self._publications.values():
            if now_ns >= publication.path.next_python_ns:
                publication.on_time(now_ns)

    def _on_event(
        self, publication: SenderPublication, kind: int, value: int, source: bytes, frame: bytes, now_ns: int
    ) -> None:
        if kind == layout.EVENT_SETUP_DUE:
            publication.on_setup_due(now_ns)
        elif kind == layout.EVENT_RECEIVER_EXPIRED:
            publication.on_receiver_gone(value, now_ns, left=False)
        elif kind == layout.EVENT_NEW_RECEIVER:
            options = StatusMessage.options_length(frame)
            if options not in (0, layout.SM_LENGTH_WITH_GROUP_TAG - layout.SM_LENGTH):
                text = f"status message with {options} bytes of options"
                self._report(PeerFault(kind="options of a status message", source=source, text=text))
            if publication.on_receiver(StatusMessage.read(frame), now_ns) and publication.is_response:
                self._send(ResponseConnected(registration_id=publication.registration_id))
        elif kind == layout.EVENT_SETUP_ELICITED:
            publication.on_elicited(StatusMessage.read(frame), source, now_ns)
        elif kind == layout.EVENT_RECEIVER_LEFT:
            publication.on_receiver_gone(StatusMessage.read(frame).receiver_id, now_ns, left=True)
        elif kind == layout.EVENT_MALFORMED_FRAME:
            position = publication.path.sender_position
            text = (
                f"log {publication.registration_id}, position {position}: a frame of {value} bytes is impossible there"
            )
            self._send(NetworkFault(text=f"{text}, so nothing after it is sent"))
        elif kind == layout.EVENT_FRAME:
            self._on_frame(publication, source, frame, now_ns)

    def _on_frame(self, publication: SenderPublication, source: bytes, frame: bytes, now_ns: int) -> None:
        kind = Header.read(frame).type
        if kind == FrameType.RTTM:
            publication.on_measurement(frames.Rttm.read(frame), source, now_ns)
        elif kind == FrameType.ERROR:
            self._count(SystemCounter.ERROR_FRAMES_RECEIVED)
            self._on_error(publication, frames.ErrorFrame.read(frame), source, now_ns)
        elif kind == FrameType.RESPONSE_SETUP:
            session_id = frames.ResponseSetup.read(frame).response_session_id
            self._report(
                ResponseSetupReceived(
                    registration_id=publication.registration_id, response_session_id=session_id, source=source
                )
            )

    def _on_error(self, publication: SenderPublication, error: frames.ErrorFrame, source: bytes, now_ns: int) -> None:
        if publication.on_error(error, now_ns):
            self._report(
                PublicationError(
                    registration_id=publication.registration_id,
                    destination_registration_id=publication.endpoint.destinations.registration_of(
                        source, error.receiver_id
                    ),
                    receiver_id=error.receiver_id,
                    group_tag=error.group_tag,
                    source=source,
                    code=error.error_code,
                    text=error.text,
                )
            )

    def _on_destination(self, endpoint_key: int, source: bytes, frame: bytes, now_ns: int) -> None:
        endpoint = self._endpoints.get(endpoint_key)
        if endpoint is None:
            return
        try:
            endpoint.destinations.on_status(source, StatusMessage.read(frame).receiver_id, now_ns)
        except OverflowError as error:
            text = f"{endpoint.channel.canonical_form}: {error}"
            self._report(PeerFault(kind="too many destinations", source=source, text=text))

    def _check(self, now_ns: int, *, resolves: bool) -> None:
        """Remove silent destinations, have names of silent peers resolved again, and report failing sockets; runs once a second."""
        for endpoint in self._endpoints.values():
            for entry in endpoint.destinations.on_time(now_ns):
                self._send(
                    ResolveAgain(
                        endpoint=endpoint, name=entry.name, address=entry.packed, destination=entry.registration_id
                    )
                )
            channel = endpoint.channel
            heard_ns = max(endpoint.core.last_status_ns, self._registered_ns[endpoint.key])
            silent = now_ns - heard_ns > SILENCE_NS
            if (
                resolves
                and silent
                and channel.has_explicit_endpoint
                and channel.uri.endpoint is not None
                and not channel.is_multicast
            ):
                self._send(
                    ResolveAgain(
                        endpoint=endpoint,
                        name=channel.uri.endpoint,
                        address=endpoint.remote_address.packed,
                        destination=-1,
                    )
                )
            self._report_socket_errors((endpoint.key, 0), endpoint.core.transport, channel)

    def on_register_endpoint(self, endpoint: SendChannelEndpoint) -> None:
        self._endpoints[endpoint.key] = endpoint
        self._registered_ns[endpoint.key] = self._now_ns
        self.cycle.add_endpoint(endpoint.core)
        self._watch(endpoint.core.transport)

    def on_close_endpoint(self, endpoint: SendChannelEndpoint) -> None:
        self._endpoints.pop(endpoint.key, None)
        self._forget_socket_errors(endpoint)
        self.cycle.remove_endpoint(endpoint.core)
        endpoint.close()
        self._send(EndpointClosed(endpoint=endpoint))

    def on_add_publication(self, publication: SenderPublication) -> None:
        self._publications[publication.path.key] = publication
        self.cycle.add_path(publication.path, publication.endpoint.core)

    def on_remove_publication(self, publication: SenderPublication) -> None:
        if self._publications.pop(publication.path.key, None) is not None:
            self.cycle.remove_path(publication.path)
        self._send(PublicationReleased(registration_id=publication.registration_id))

    def on_drain_publication(self, publication: SenderPublication) -> None:
        """Freeze the publishers' limit at the written position. The sender still sends everything up to it."""
        publication.path.draining = True
        publication.path.clamp_limit(publication.path.producer_position())

    def on_end_publication(self, publication: SenderPublication) -> None:
        publication.path.end_of_stream = True

    def on_revoke_publication(self, publication: SenderPublication) -> None:
        publication.path.revoked = True
        publication.path.end_of_stream = True

    def on_add_destination(
        self, endpoint: SendChannelEndpoint, address: InetAddress, *, name: str, registration_id: int
    ) -> None:
        endpoint.destinations.add(address.packed, name=name, registration_id=registration_id, now_ns=self._now_ns)

    def on_add_unresolved_destination(self, endpoint: SendChannelEndpoint, *, name: str, registration_id: int) -> None:
        endpoint.destinations.add_unresolved(name=name, registration_id=registration_id)

    def on_remove_destination(
        self, endpoint: SendChannelEndpoint, *, name: str, address: InetAddress | None = None
    ) -> None:
        if not endpoint.destinations.remove(lambda each: each.name == name) and address is not None:
            endpoint.destinations.remove(lambda each: each.packed == address.packed)

    def on_remove_destination_by_id(self, endpoint: SendChannelEndpoint, registration_id: int) -> None:
        endpoint.destinations.remove(lambda each: each.registration_id == registration_id)

    def on_resolution_change(
        self, endpoint: SendChannelEndpoint, address: InetAddress, *, destination: int = -1
    ) -> None:
        if endpoint.core.many:
            endpoint.destinations.move(destination, address.packed, self._now_ns)
            return
        try:
            endpoint.move_to(address)
        except OSError as error:
            self._send(NetworkFault(text=f"{endpoint.channel.canonical_form}: {address}: {error}"))
