"""An image: active while packets come and a subscription reads, draining, lingering, done (docs/protocols/aeron.md, 15.6).

What arrives is inserted, acknowledged and NAKed by the compiled ``ReceivePath`` and the receiver; here is what is rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.driver.conductor.life_cycle import Stream, StreamState
from mainstem.aeron.driver.conductor.params import SubscriptionParams
from mainstem.aeron.driver.conductor.untethered import check_untethered, untethered_image_limit
from mainstem.aeron.driver.media.addresses import text_of
from mainstem.aeron.system_counter import SystemCounter

if TYPE_CHECKING:
    from mainstem.aeron.driver.conductor.channels import ReceiveChannel
    from mainstem.aeron.driver.conductor.life_cycle import StreamListener, StreamMemory
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.subscription_link import Interest, SubscriptionLink
    from mainstem.aeron.driver.receiver.receiver_image import ReceiverImage
    from mainstem.aeron.loss_report import LossEntryWriter

# A draining image announces that to the sender in this many status messages before it goes.
EOS_STATUS_MESSAGES = 5


class PublicationImage(Stream[SubscriptionParams]):
    """A publication as it is rebuilt here. ``params`` are those of the oldest subscription that matched it.

    ``receiver_image`` is its part in the receiver, which alone changes that part and its path, until ``is_released``.
    ``needs_response`` is true where its sender waits for a response channel.
    """

    def __init__(
        self,
        memory: StreamMemory,
        params: SubscriptionParams,
        receiver_image: ReceiverImage,
        receive_channel: ReceiveChannel,
        resources: Resources,
        now_ns: int,
        *,
        needs_response: bool,
    ) -> None:
        path = receiver_image.path
        super().__init__(memory, params, path.subscribers, resources, now_ns)
        self.path = path
        self.receiver_image = receiver_image
        self.receive_channel = receive_channel
        self.is_released = False
        self.needs_response = needs_response
        self._source_identity = text_of(receiver_image.source)
        self._loss_entry: LossEntryWriter | None = None
        self._liveness_timeout_ns = resources.settings.image_liveness_timeout_ns
        self._drain_ns = EOS_STATUS_MESSAGES * resources.settings.rcv_status_message_timeout_ns

    @property
    def source_identity(self) -> str:
        """The address that its first SETUP came from."""
        return self._source_identity

    @property
    def join_position(self) -> int:
        """Where a new subscriber begins: where the slowest one is, or what is rebuilt."""
        rebuilt = self.path.rebuild_position
        return min((p.cell.get_acquire() for p in self.subscribers if p.is_counted), default=rebuilt)

    @property
    def is_rejoinable(self) -> bool:
        """Whether the same session may come again once this image is gone."""
        return all(position.subscription.params.rejoin for position in self.subscribers)

    def interest_of(self, subscription: SubscriptionLink) -> Interest | None:
        """Returns the subscription's channel if the image arrives through it."""
        return subscription.interest_in_received(self.receive_channel, self.session_id)

    def on_revoked(self, now_ns: int) -> bool:
        """The sender withdrew the stream: nothing is drained. False when the image was already on its way out."""
        if self.state not in (StreamState.ACTIVE, StreamState.DRAINING):
            return False
        self._resources.count(SystemCounter.IMAGES_REVOKED)
        self._move(StreamState.LINGER, now_ns)
        return True

    def on_loss(self, bytes_lost: int) -> None:
        """Enters bytes that were found missing, and not reported before, in the loss report (docs/protocols/aeron.md, 9.2).

        The image's entry is made at its first loss; nothing is recorded once the report is full.
        """
        now_ms = self._resources.clock.epoch_ms()
        if self._loss_entry is not None:
            self._loss_entry.record(bytes_lost, now_ms=now_ms)
        else:
            self._loss_entry = self._resources.loss_report.create_entry(
                bytes_lost,
                now_ms=now_ms,
                session_id=self.session_id,
                stream_id=self.stream_id,
                channel=self.channel,
                source=self.source_identity,
            )

    def _on_active(self, now_ns: int, listener: StreamListener) -> None:
        path = self.path
        furthest = path.subscribers.maximum()
        limit = untethered_image_limit(furthest, path.window_length, path.last_status_position, path.mtu)
        check_untethered(self, limit, self.params.tether_timeouts, listener, now_ns=now_ns)
        if self._is_over(now_ns):
            self._resources.receiver.drain_image(self.receiver_image)
            self._move(StreamState.DRAINING, now_ns)

    def _is_over(self, now_ns: int) -> bool:
        path = self.path
        if not self.subscribers or now_ns - path.last_packet_ns > self._liveness_timeout_ns:
            return True
        return path.end_of_stream_position >= 0 and path.rebuild_position >= path.high_water_mark

    def _is_being_read(self) -> bool:
        return self._is_read_behind(self.path.rebuild_position)

    def _is_drained(self, now_ns: int) -> bool:
        return now_ns - self.since_ns >= self._drain_ns and self._have_read(self.path.rebuild_position, now_ns)

    def _has_lingered(self, now_ns: int) -> bool:
        return not self.subscribers or now_ns - self.since_ns >= self._liveness_timeout_ns
