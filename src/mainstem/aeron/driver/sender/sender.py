"""The sender agent: one compiled cycle for all publications, then whatever was exceptional in it (behaviour, 14)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from mainstem._core import layout
from mainstem._core.driver.send_cycle import SenderCycle
from mainstem.aeron.driver import control_frames
from mainstem.aeron.driver.messages import EndpointClosed, NetworkFault, PublicationReleased, ResolveAgain
from mainstem.aeron.driver.proxy import AgentProxy, CommandQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem.aeron.driver.media.addresses import InetAddress
    from mainstem.aeron.driver.media.endpoints import SendChannelEndpoint
    from mainstem.aeron.driver.messages import ToConductor
    from mainstem.aeron.driver.sender.sender_publication import SenderPublication

# How often destinations and silent peers are looked at.
CHECK_INTERVAL_NS = 1_000_000_000
# A peer that is silent this long may have moved (behaviour, 19.8).
SILENCE_NS = 5_000_000_000
ERROR_FRAMES_RECEIVED_OFFSET = 38 * layout.COUNTER_VALUE_LENGTH


class Mailbox(Protocol):
    """Where messages to the conductor go: a deque, or what appends like one."""

    def append(self, item: ToConductor, /) -> None: ...


class SenderProxy(AgentProxy):
    """The sender as other threads see it."""

    def __init__(self, sender: Sender, queue: CommandQueue) -> None:
        super().__init__(queue)
        self._sender = sender

    def register_endpoint(self, endpoint: SendChannelEndpoint) -> None:
        self._queue.put(partial(self._sender.on_register_endpoint, endpoint))

    def close_endpoint(self, endpoint: SendChannelEndpoint) -> None:
        """Closes its socket; answered by ``EndpointClosed``. Its publications must be gone."""
        self._queue.put(partial(self._sender.on_close_endpoint, endpoint))

    def add_publication(self, publication: SenderPublication) -> None:
        self._queue.put(partial(self._sender.on_add_publication, publication))

    def remove_publication(self, publication: SenderPublication) -> None:
        """Answered by ``PublicationReleased``; from then on its log may be unmapped."""
        self._queue.put(partial(self._sender.on_remove_publication, publication))

    def add_destination(
        self, endpoint: SendChannelEndpoint, address: InetAddress, *, name: str, registration_id: int
    ) -> None:
        """A destination told by hand; ``name`` is its ``host:port`` as it was written."""
        self._queue.put(partial(self._sender.on_add_destination, endpoint, address, name, registration_id))

    def add_unresolved(self, endpoint: SendChannelEndpoint, *, name: str, registration_id: int) -> None:
        """A destination told by hand whose name nobody knows yet: it is looked up again and again."""
        self._queue.put(partial(endpoint.destinations.add_unresolved, name=name, registration_id=registration_id))

    def remove_destination(
        self, endpoint: SendChannelEndpoint, *, name: str, address: InetAddress | None = None
    ) -> None:
        self._queue.put(partial(self._sender.on_remove_destination, endpoint, name, address))

    def remove_destination_by_id(self, endpoint: SendChannelEndpoint, registration_id: int) -> None:
        self._queue.put(partial(endpoint.destinations.remove_by_id, registration_id))  # type: ignore[arg-type]

    def resolution_change(self, endpoint: SendChannelEndpoint, address: InetAddress, *, destination: int = -1) -> None:
        """The answer to ``ResolveAgain`` where the address has changed."""
        self._queue.put(partial(self._sender.on_resolution_change, endpoint, address, destination))

    def call(self, function: Callable[[], None]) -> None:
        """Anything else, in the sender's thread."""
        self._queue.put(function)


class Sender:
    """Runs in whatever thread calls ``do_work``, always the same one. ``cycle`` is for a compiled loop to drive besides."""

    def __init__(
        self,
        *,
        counters: AtomicBuffer,
        to_conductor: Mailbox,
        status_poll_ratio: int = 6,
        status_poll_interval_ns: int = 100_000_000,
        resolve_interval_ns: int = CHECK_INTERVAL_NS,
        now_ns: int = 0,
    ) -> None:
        self.cycle = SenderCycle(counters, status_poll_ratio, status_poll_interval_ns)
        self._counters = counters
        self._to_conductor = to_conductor
        self._queue = CommandQueue()
        self.proxy = SenderProxy(self, self._queue)
        self._endpoints: dict[int, SendChannelEndpoint] = {}
        self._publications: dict[int, SenderPublication] = {}
        self._now_ns = now_ns
        self._resolve_interval_ns = resolve_interval_ns
        self._resolve_due_ns = now_ns
        self._check_due_ns = now_ns + CHECK_INTERVAL_NS
        self.cycle.set_deadline(self._check_due_ns)
        self._errors: dict[int, int] = {}
        self._registered_ns: dict[int, int] = {}

    @property
    def role_name(self) -> str:
        return "sender"

    def do_work(self, now_ns: int) -> int:
        """One duty cycle at the monotonic time ``now_ns``; how much there was to do."""
        self._now_ns = now_ns
        work = self._queue.run()
        work += self.cycle.run_cycle(now_ns)
        return work + self._decide(now_ns)

    def decide(self, now_ns: int) -> int:
        """Commands, and what the compiled cycle left to decide; for a thread whose compiled loop drives ``cycle`` itself."""
        self._now_ns = now_ns
        return self._queue.run() + self._decide(now_ns)

    def _decide(self, now_ns: int) -> int:
        if not self.cycle.due(now_ns):
            return 0
        events = self.cycle.events.take()
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
        if now_ns >= self._check_due_ns:
            self._check_due_ns = now_ns + CHECK_INTERVAL_NS
            self.cycle.set_deadline(self._check_due_ns)
            self._check(now_ns)
        return len(events)

    def _on_event(
        self, publication: SenderPublication, kind: int, value: int, source: bytes, frame: bytes, now_ns: int
    ) -> None:
        if kind == layout.EVENT_SETUP_DUE:
            publication.on_setup_due(now_ns)
        elif kind == layout.EVENT_RECEIVER_EXPIRED:
            publication.on_receiver_gone(value, now_ns, left=False)
        elif kind == layout.EVENT_NEW_RECEIVER:
            status = control_frames.read_status(frame)
            if status.option_length not in (0, layout.SM_LENGTH_WITH_GROUP_TAG - layout.SM_LENGTH):
                self._tell(NetworkFault(text=f"status message with {status.option_length} bytes of options"))
            self._tell(publication.on_receiver(status, now_ns))
        elif kind == layout.EVENT_SETUP_ELICITED:
            publication.on_elicited(control_frames.read_status(frame), source, now_ns)
        elif kind == layout.EVENT_RECEIVER_LEFT:
            publication.on_receiver_gone(control_frames.read_status(frame).receiver_id, now_ns, left=True)
        elif kind == layout.EVENT_FRAME:
            self._on_frame(publication, source, frame, now_ns)

    def _on_frame(self, publication: SenderPublication, source: bytes, frame: bytes, now_ns: int) -> None:
        kind = control_frames.frame_type(frame)
        if kind == layout.TYPE_RTTM:
            publication.on_measurement(control_frames.read_round_trip(frame), source, now_ns)
        elif kind == layout.TYPE_ERR:
            self._counters.add_i64(ERROR_FRAMES_RECEIVED_OFFSET, 1)
            self._tell(publication.on_error(control_frames.read_error(frame), source, now_ns))
        elif kind == layout.TYPE_RSP_SETUP:
            self._tell(publication.on_response_setup(control_frames.read_response_setup(frame), source))

    def _on_destination(self, endpoint_key: int, source: bytes, frame: bytes, now_ns: int) -> None:
        endpoint = self._endpoints.get(endpoint_key)
        if endpoint is None:
            return
        try:
            endpoint.destinations.on_status(source, control_frames.read_status(frame).receiver_id, now_ns)
        except OverflowError as error:
            self._tell(NetworkFault(text=f"{endpoint.channel.canonical_form}: {error}"))

    def _check(self, now_ns: int) -> None:
        """Once a second: destinations that fell silent, peers that may have moved, sockets that fail."""
        resolves = now_ns >= self._resolve_due_ns
        if resolves:
            self._resolve_due_ns = now_ns + self._resolve_interval_ns
        for endpoint in self._endpoints.values():
            for entry in endpoint.destinations.on_time(now_ns):
                self._tell(
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
                self._tell(
                    ResolveAgain(
                        endpoint=endpoint,
                        name=channel.uri.endpoint,
                        address=endpoint.remote_address.packed,
                        destination=-1,
                    )
                )
            transport = endpoint.core.transport
            if transport.error_count != self._errors.get(endpoint.key, 0):
                self._errors[endpoint.key] = transport.error_count
                text = f"{channel.canonical_form}: the system refused to send or receive (errno {transport.last_error})"
                self._tell(NetworkFault(text=text))

    def _tell(self, message: ToConductor | None) -> None:
        if message is not None:
            self._to_conductor.append(message)

    def on_register_endpoint(self, endpoint: SendChannelEndpoint) -> None:
        self._endpoints[endpoint.key] = endpoint
        self._registered_ns[endpoint.key] = self._now_ns
        self.cycle.add_endpoint(endpoint.core)

    def on_close_endpoint(self, endpoint: SendChannelEndpoint) -> None:
        self._endpoints.pop(endpoint.key, None)
        self._errors.pop(endpoint.key, None)
        self.cycle.remove_endpoint(endpoint.core)
        endpoint.close()
        self._tell(EndpointClosed(endpoint=endpoint))

    def on_add_publication(self, publication: SenderPublication) -> None:
        self._publications[publication.path.key] = publication
        self.cycle.add_path(publication.path, publication.endpoint.core)

    def on_remove_publication(self, publication: SenderPublication) -> None:
        if self._publications.pop(publication.path.key, None) is not None:
            self.cycle.remove_path(publication.path)
        self._tell(PublicationReleased(publication=publication))

    def on_add_destination(
        self, endpoint: SendChannelEndpoint, address: InetAddress, name: str, registration_id: int
    ) -> None:
        try:
            endpoint.destinations.add(address.packed, name=name, registration_id=registration_id, now_ns=self._now_ns)
        except OverflowError as error:
            self._tell(NetworkFault(text=f"{endpoint.channel.canonical_form}: {error}"))

    def on_remove_destination(self, endpoint: SendChannelEndpoint, name: str, address: InetAddress | None) -> None:
        if not endpoint.destinations.remove_by_name(name) and address is not None:
            endpoint.destinations.remove(address.packed)

    def on_resolution_change(self, endpoint: SendChannelEndpoint, address: InetAddress, destination: int) -> None:
        if endpoint.core.many:
            endpoint.destinations.move(destination, address.packed, self._now_ns)
            return
        try:
            endpoint.move_to(address)
        except OSError as error:
            self._tell(NetworkFault(text=f"{endpoint.channel.canonical_form}: {address}: {error}"))

    def close(self) -> None:
        """Closes every socket. After the last duty cycle."""
        for endpoint in list(self._endpoints.values()):
            self.on_close_endpoint(endpoint)

    on_close = close
