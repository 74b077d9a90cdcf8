"""The life of an image: active while packets come and somebody reads, draining, lingering, done (aeron-behaviour §15.6).

What arrives is inserted, acknowledged and NAKed by the compiled ``ReceivePath`` and the receiver; here is what is rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.driver.conductor.life_cycle import ImageState
from mainstem.aeron.driver.conductor.untethered import check_untethered, have_read, untethered_image_limit
from mainstem.aeron.system_counter import SystemCounter

if TYPE_CHECKING:
    from mainstem._core.driver.receive_path import ReceivePath
    from mainstem.aeron.driver.conductor.endpoints import ReceiveEndpoint
    from mainstem.aeron.driver.conductor.life_cycle import PublicationListener
    from mainstem.aeron.driver.conductor.stream_counters import StreamCounters
    from mainstem.aeron.driver.conductor.subscription_link import SubscriberPosition
    from mainstem.aeron.driver.conductor.subscription_params import SubscriptionParams
    from mainstem.aeron.driver.receiver.receiver_image import ReceiverImage
    from mainstem.aeron.logbuffer import LogBuffers
    from mainstem.aeron.loss_report import LossEntryWriter
    from mainstem.aeron.system_counter import SystemCounters

# A draining image tells the sender so in this many status messages before it goes.
EOS_STATUS_MESSAGES = 5


class PublicationImage:
    """A publication as it is rebuilt here. ``params`` are those of the oldest subscription that matched it.

    ``wants_response`` says that its sender waits for a response channel.
    """

    def __init__(
        self,
        *,
        registration_id: int,
        session_id: int,
        stream_id: int,
        channel: str,
        params: SubscriptionParams,
        log: LogBuffers,
        log_file: str,
        path: ReceivePath,
        receiving: ReceiverImage,
        endpoint: ReceiveEndpoint,
        source_identity: str,
        stream_counters: StreamCounters,
        system_counters: SystemCounters,
        liveness_timeout_ns: int,
        status_message_timeout_ns: int,
        wants_response: bool,
        now_ns: int,
    ) -> None:
        self.registration_id = registration_id
        self.session_id = session_id
        self.stream_id = stream_id
        self.channel = channel
        self.params = params
        self.log = log
        self.log_file = log_file
        self.path = path
        self.receiving = receiving
        self.endpoint = endpoint
        self.source_identity = source_identity
        self.stream_counters = stream_counters
        self.state = ImageState.ACTIVE
        self.since_ns = now_ns
        self.is_released = False
        self.wants_response = wants_response
        self.loss_entry: LossEntryWriter | None = None
        self.subscribers: list[SubscriberPosition] = []
        self._system_counters = system_counters
        self._liveness_timeout_ns = liveness_timeout_ns
        self._drain_ns = EOS_STATUS_MESSAGES * status_message_timeout_ns

    @property
    def accepts_subscribers(self) -> bool:
        """Whether a new subscription may link to it."""
        return self.state is ImageState.ACTIVE

    @property
    def join_position(self) -> int:
        """Where a new subscriber begins: where the slowest one is, or what is rebuilt."""
        rebuilt = self.path.rebuild_position
        return min((p.cell.get_acquire() for p in self.subscribers if p.is_counted), default=rebuilt)

    def add_subscriber(self, position: SubscriberPosition) -> None:
        """The window waits for ``position`` from now on."""
        if position not in self.subscribers:
            self.subscribers.append(position)
        self.path.subscribers.add(position.cell.counter_id)

    def remove_subscriber(self, position: SubscriberPosition) -> None:
        """No longer waits for it."""
        self.path.subscribers.remove(position.cell.counter_id)
        self.subscribers.remove(position)

    def rest_subscriber(self, position: SubscriberPosition) -> None:
        """No longer waits for it, though it stays known."""
        self.path.subscribers.remove(position.cell.counter_id)

    @property
    def is_rejoinable(self) -> bool:
        """Whether the same session may come again once this image is gone."""
        return all(position.subscription.params.rejoin for position in self.subscribers)

    def on_revoked(self, now_ns: int) -> bool:
        """The sender withdrew the stream: nothing is drained. False when the image was already on its way out."""
        if self.state not in (ImageState.ACTIVE, ImageState.DRAINING):
            return False
        self._system_counters.increment(SystemCounter.IMAGES_REVOKED)
        self._move(ImageState.LINGER, now_ns)
        return True

    def on_time_event(self, now_ns: int, listener: PublicationListener) -> None:
        """One step of its life, on every timer tick."""
        if self.state is ImageState.ACTIVE:
            path = self.path
            furthest = path.subscribers.maximum()
            limit = untethered_image_limit(furthest, path.window_length, path.last_status_position, path.mtu)
            check_untethered(self, limit, self.params.tether_timeouts, listener, now_ns=now_ns)
            if self._is_over(now_ns):
                self.path.draining = True
                self._move(ImageState.DRAINING, now_ns)
        elif self.state is ImageState.DRAINING:
            if self._is_drained(now_ns) and now_ns - self.since_ns >= self._drain_ns:
                self._move(ImageState.LINGER, now_ns)
                listener.on_lingering(self)
        elif self.state is ImageState.LINGER and (
            not self.subscribers or now_ns - self.since_ns >= self._liveness_timeout_ns
        ):
            self._move(ImageState.DONE, now_ns)

    def _is_over(self, now_ns: int) -> bool:
        path = self.path
        if not self.subscribers or now_ns - path.last_packet_ns > self._liveness_timeout_ns:
            return True
        return path.end_of_stream_position >= 0 and path.rebuild_position >= path.high_water_mark

    def _is_drained(self, now_ns: int) -> bool:
        rebuilt, timeouts = self.path.rebuild_position, self.params.tether_timeouts
        return have_read(self.subscribers, rebuilt, timeouts, draining_ns=now_ns - self.since_ns)

    def _move(self, state: ImageState, now_ns: int) -> None:
        assert state in self.state.successors
        self.state = state
        self.since_ns = now_ns
