"""The receiver agent: a compiled cycle for all images, and Python code for the events that it reports.

See docs/protocols/aeron.md, 15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core import layout
from mainstem._core.driver.datagram import Address
from mainstem._core.driver.receive_cycle import ReceiverCycle
from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.driver.conductor_proxy import (
    CreateImage,
    DestinationClosed,
    EndpointClosed,
    ImageEndOfStream,
    ImageReleased,
    LossObserved,
    PeerFault,
    ResolveAgain,
)
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.driver.network_agent import CHECK_INTERVAL_NS, NetworkAgent
from mainstem.aeron.driver.receiver.data_packet_dispatcher import DataPacketDispatcher
from mainstem.aeron.driver.receiver.image_limiter import ImageLimiter, Refusal, Session
from mainstem.aeron.protocol.frames import Rttm, Setup, StatusMessage
from mainstem.aeron.protocol.layouts import LAYOUTS, FrameType

if TYPE_CHECKING:
    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem.aeron.admission import EndpointFilter
    from mainstem.aeron.driver.conductor_proxy import ConductorQueue
    from mainstem.aeron.driver.media.endpoints import ReceiveChannelEndpoint, ReceiveDestination
    from mainstem.aeron.driver.receiver.receiver_image import ReceiverImage

SILENCE_NS = 5_000_000_000
# Minimum time between two scans of the silent images, so that a flood of SETUPs doesn't cause a scan for each one.
SILENT_CHECK_INTERVAL_NS = 10_000_000
SILENT_REFUSALS = (Refusal.SILENT_OF_SOURCE, Refusal.SILENT)


class Receiver(NetworkAgent[ReceiverCycle, "ReceiveChannelEndpoint"]):
    def __init__(
        self,
        *,
        counters: AtomicBuffer,
        to_conductor: ConductorQueue,
        limiter: ImageLimiter | None = None,
        resolve_interval_ns: int = CHECK_INTERVAL_NS,
        now_ns: int = 0,
        source_filter: EndpointFilter | None = None,
    ) -> None:
        super().__init__(
            ReceiverCycle(counters),
            counters=counters,
            to_conductor=to_conductor,
            resolve_interval_ns=resolve_interval_ns,
            now_ns=now_ns,
        )
        self._filter = source_filter
        self._limiter = ImageLimiter() if limiter is None else limiter
        # The first SETUP refused for each reason since the last check, with its packed source address.
        self._refused: dict[Refusal, tuple[bytes, Setup]] = {}
        self._dispatchers: dict[int, DataPacketDispatcher] = {}
        self._images: dict[int, tuple[ReceiverImage, ReceiveChannelEndpoint]] = {}
        # Images that had received nothing at the last scan, by path key, with their session and the time of creation.
        self._silent: dict[int, tuple[ReceiverImage, Session, int]] = {}
        self._silent_check_ns = now_ns

    def _on_events(self, events: list[tuple[Any, ...]], now_ns: int) -> None:
        for kind, endpoint_key, path_key, _, value, index, source, frame in events:
            if kind in (layout.EVENT_UNKNOWN_SESSION, layout.EVENT_SETUP, layout.EVENT_FRAME):
                endpoint = self._endpoints.get(endpoint_key)
                if endpoint is not None:
                    self._on_frame(endpoint, kind, index, source, frame, now_ns)
                continue
            entry = self._images.get(path_key)
            if entry is None:
                continue
            image = entry[0]
            if kind == layout.EVENT_LOSS:
                image.on_loss(now_ns)
                self._send(LossObserved(registration_id=image.registration_id, bytes_lost=value, now_ns=now_ns))
            elif kind == layout.EVENT_STATUS_DUE:
                if image.on_status_due(now_ns):
                    self._count(SystemCounter.ERROR_FRAMES_SENT)
            elif kind == layout.EVENT_END_OF_STREAM:
                end = image.path.end_of_stream_position
                self._send(ImageEndOfStream(registration_id=image.registration_id, position=end, revoked=bool(value)))
        for image, _ in self._images.values():
            if now_ns >= image.path.next_python_ns:
                image.on_time(now_ns)

    def _on_frame(
        self, endpoint: ReceiveChannelEndpoint, kind: int, index: int, source: bytes, frame: bytes, now_ns: int
    ) -> None:
        if kind == layout.EVENT_SETUP:
            self._on_setup(endpoint, index, source, Setup.read(frame), now_ns)
        elif kind == layout.EVENT_FRAME:
            measure = Rttm.read(frame)
            image = self._image_of(endpoint, measure.stream_id, measure.session_id)
            if image is not None and not image.on_measurement(measure, now_ns):
                self._count(SystemCounter.INVALID_PACKETS)
        else:
            fields = LAYOUTS[FrameType.DATA].read(frame)
            session_id, stream_id = fields["session_id"], fields["stream_id"]
            image = self._image_of(endpoint, stream_id, session_id)
            if self._filter is not None and not self._filter.admits(InetAddress.unpack(source).ip):
                self._count(SystemCounter.ENDPOINT_FILTER_REFUSALS)
                if image is None:
                    self._dispatchers[endpoint.key].on_refused(stream_id, session_id, now_ns)
            elif image is not None:
                self._connect(endpoint, image, index, source, now_ns)
            elif self._dispatchers[endpoint.key].on_unknown(stream_id, session_id, now_ns):
                self._elicit(endpoint, index, source, stream_id, session_id)

    def _image_of(self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int) -> ReceiverImage | None:
        path = endpoint.core.paths.get(session_id, stream_id)
        entry = None if path is None else self._images.get(path.key)  # type: ignore[attr-defined]
        return None if entry is None else entry[0]

    def _control_address(self, endpoint: ReceiveChannelEndpoint, index: int, source: bytes) -> Address:
        destination = endpoint.destinations.get(index)
        if destination is not None and destination.control_address is not None:
            return destination.control_address
        return Address(source)

    def _elicit(
        self, endpoint: ReceiveChannelEndpoint, index: int, source: bytes, stream_id: int, session_id: int
    ) -> None:
        transport = endpoint.core.transport(index)
        if transport is not None:
            request = StatusMessage(
                session_id=session_id,
                stream_id=stream_id,
                receiver_id=endpoint.receiver_id,
                group_tag=endpoint.group_tag,
                flags=layout.SM_FLAG_SEND_SETUP,
            )
            transport.send(request.encode(), self._control_address(endpoint, index, source))

    def _on_setup(self, endpoint: ReceiveChannelEndpoint, index: int, source: bytes, setup: Setup, now_ns: int) -> None:
        destination = endpoint.destinations.get(index)
        if destination is None:
            return
        address = InetAddress.unpack(source).ip
        if self._filter is not None and not self._filter.admits(address):
            self._count(SystemCounter.ENDPOINT_FILTER_REFUSALS)
            return
        image = self._image_of(endpoint, setup.stream_id, setup.session_id)
        if image is not None:
            self._connect(endpoint, image, index, source, now_ns)
            return
        dispatcher = self._dispatchers[endpoint.key]
        session = (endpoint.key, setup.stream_id, setup.session_id)
        refusal = self._limiter.refusal(session, address)
        if refusal in SILENT_REFUSALS and now_ns >= self._silent_check_ns:
            self._note_heard(now_ns)
            refusal = self._limiter.refusal(session, address)
        if refusal is not None and dispatcher.has_subscription(setup.stream_id, setup.session_id):
            self._refused.setdefault(refusal, (source, setup))
        elif dispatcher.on_setup(setup.stream_id, setup.session_id, now_ns):
            if self._filter is not None and not self._filter.admits_stream(
                address, term_length=setup.term_length, now_ns=now_ns
            ):
                self._count(SystemCounter.ENDPOINT_FILTER_REFUSALS)
                dispatcher.on_refused(setup.stream_id, setup.session_id, now_ns)
                return
            if destination.channel.is_multicast and setup.ttl > destination.ttl:
                # The sender's data reaches further than this receiver's status messages.
                self._count(SystemCounter.POSSIBLE_TTL_ASYMMETRY)
            self._limiter.creating(session, address)
            self._send(
                CreateImage(
                    endpoint=endpoint,
                    transport_index=index,
                    session_id=setup.session_id,
                    stream_id=setup.stream_id,
                    initial_term_id=setup.initial_term_id,
                    active_term_id=setup.active_term_id,
                    term_offset=setup.term_offset,
                    term_length=setup.term_length,
                    mtu=setup.mtu,
                    ttl=setup.ttl,
                    flags=setup.flags,
                    source=source,
                )
            )

    def _note_heard(self, now_ns: int) -> None:
        self._silent_check_ns = now_ns + SILENT_CHECK_INTERVAL_NS
        for key, (image, session, made_ns) in list(self._silent.items()):
            if image.path.last_packet_ns != made_ns:
                del self._silent[key]
                self._limiter.heard(session)

    def _connect(
        self, endpoint: ReceiveChannelEndpoint, image: ReceiverImage, index: int, source: bytes, now_ns: int
    ) -> None:
        """Add a connection to the image's sender, or with multicast or explicit control, one connection per socket."""
        transport = endpoint.core.transport(index)
        destination = endpoint.destinations.get(index)
        if transport is None or destination is None:
            return
        fixed = destination.control_address
        image.path.add_connection(
            transport,
            index,
            Address(source) if fixed is None else fixed,
            Address(source) if fixed is None else None,
            now_ns,
        )

    def _check(self, now_ns: int, *, resolves: bool) -> None:
        """Report refused SETUPs and failing sockets, expire sessions, and request due SETUPs (docs/protocols/aeron.md, 15.1).

        Runs once a second. If ``resolves``, it also has names of silent peers resolved again.
        """
        self._note_heard(now_ns)
        self._refused.pop(Refusal.BUSY, None)
        for refusal, (source, setup) in self._refused.items():
            text = f"a SETUP of session {setup.session_id} of stream {setup.stream_id} was refused: {refusal.value}"
            self._send(PeerFault(kind=f"SETUP refused, {refusal.name}", source=source, text=text))
        self._refused.clear()
        for key, endpoint in self._endpoints.items():
            self._dispatchers[key].on_time(now_ns)
            for index, destination in endpoint.destinations.items():
                if destination.elicits_setup and self._dispatchers[key].has_interest:
                    self._elicit(endpoint, index, b"", 0, 0)
                    if (
                        resolves
                        and now_ns - endpoint.core.last_packet_ns > SILENCE_NS
                        and destination.channel.uri.control is not None
                    ):
                        self._send(
                            ResolveAgain(
                                endpoint=endpoint,
                                name=destination.channel.uri.control,
                                address=bytes(self._control_address(endpoint, index, b"")),
                                destination=index,
                            )
                        )
                self._report_socket_errors((key, index), destination.transport, destination.channel)

    def on_register_endpoint(self, endpoint: ReceiveChannelEndpoint) -> None:
        self._endpoints[endpoint.key] = endpoint
        self._dispatchers[endpoint.key] = DataPacketDispatcher(endpoint.core)
        self.cycle.add_endpoint(endpoint.core)
        for destination in endpoint.destinations.values():
            self._watch(destination.transport)

    def on_close_endpoint(self, endpoint: ReceiveChannelEndpoint) -> None:
        if self._endpoints.pop(endpoint.key, None) is not None:
            del self._dispatchers[endpoint.key]
            self.cycle.remove_endpoint(endpoint.core)
            self._forget_socket_errors(endpoint)
        endpoint.close()
        self._send(EndpointClosed(endpoint=endpoint))

    def on_add_subscription(
        self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int | None = None
    ) -> None:
        dispatcher = self._dispatchers[endpoint.key]
        first = not dispatcher.has_interest
        dispatcher.add_subscription(stream_id, session_id)
        if first:
            for index, destination in endpoint.destinations.items():
                if destination.elicits_setup:
                    self._elicit(endpoint, index, b"", 0, 0)

    def on_remove_subscription(
        self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int | None = None
    ) -> None:
        dispatcher = self._dispatchers.get(endpoint.key)
        if dispatcher is not None:
            dispatcher.remove_subscription(stream_id, session_id)

    def on_request_setup(self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int) -> None:
        for index, destination in endpoint.destinations.items():
            if destination.control_address is not None:
                self._elicit(endpoint, index, b"", stream_id, session_id)

    def on_add_image(self, endpoint: ReceiveChannelEndpoint, image: ReceiverImage) -> None:
        path = image.path
        session = (endpoint.key, path.stream_id, path.session_id)
        self._limiter.created(session)
        self._silent[path.key] = (image, session, path.last_packet_ns)
        self._dispatchers[endpoint.key].forget(path.stream_id, path.session_id)
        self._images[path.key] = (image, endpoint)
        self._connect(endpoint, image, image.transport_index, image.source, self._now_ns)
        self.cycle.add_path(path, endpoint.core)

    def on_refuse_image(self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int) -> None:
        self._limiter.gone((endpoint.key, stream_id, session_id))
        dispatcher = self._dispatchers.get(endpoint.key)
        if dispatcher is not None:
            dispatcher.forget(stream_id, session_id)

    def on_remove_image(self, image: ReceiverImage, *, cool_down_ns: int = 0) -> None:
        """Take an image out of the cycle, then report ``ImageReleased`` so that the conductor can unmap its log.

        For ``cool_down_ns``, the session gets no new image.
        """
        entry = self._images.pop(image.path.key, None)
        self._silent.pop(image.path.key, None)
        if entry is not None:
            endpoint = entry[1]
            self._limiter.gone((endpoint.key, image.path.stream_id, image.path.session_id))
            self.cycle.remove_from_dispatch(image.path, endpoint.core)
            self.cycle.remove_path(image.path)
            dispatcher = self._dispatchers.get(endpoint.key)
            if dispatcher is not None and cool_down_ns > 0:
                dispatcher.cool_down(image.path.stream_id, image.path.session_id, self._now_ns + cool_down_ns)
        self._send(ImageReleased(registration_id=image.registration_id))

    def on_drain_image(self, image: ReceiverImage) -> None:
        if not image.path.draining:
            image.path.draining = True
            image.path.status_now()

    def on_revive_image(self, image: ReceiverImage) -> None:
        """Take back that the image was left, because it has a subscriber again."""
        image.path.draining = False
        image.path.status_now()

    def on_reject_image(self, image: ReceiverImage, reason: str) -> None:
        image.reject(reason)

    def on_set_response_session(self, image: ReceiverImage, session_id: int | None) -> None:
        image.set_response_session(session_id)

    def on_add_destination(self, endpoint: ReceiveChannelEndpoint, destination: ReceiveDestination) -> None:
        endpoint.add_destination(destination)
        self._watch(destination.transport)
        if destination.elicits_setup and self._dispatchers[endpoint.key].has_interest:
            self._elicit(endpoint, destination.index, b"", 0, 0)

    def on_remove_destination(self, endpoint: ReceiveChannelEndpoint, destination: ReceiveDestination) -> None:
        """Close one socket of a subscription and drop its connections from the images, then report ``DestinationClosed``."""
        for image, where in self._images.values():
            if where is endpoint:
                image.path.remove_transport(destination.index, self._now_ns)
        endpoint.remove_destination(destination)
        self._send(DestinationClosed(destination=destination))

    def on_resolution_change(self, endpoint: ReceiveChannelEndpoint, address: InetAddress, *, destination: int) -> None:
        if destination in endpoint.destinations:
            endpoint.destinations[destination].move_control_to(address)
