"""Images, created when a SETUP matches a subscription, then active, draining, lingering, done (docs/protocols/aeron.md, 15).

The compiled ``ReceivePath`` and the receiver insert data, and send status messages and NAKs.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem._core.driver.receive_path import ReceivePath
from mainstem._core.system_counter import SystemCounter
from mainstem._internal.validation import INT32_MAX
from mainstem.aeron.driver.conductor.life_cycle import (
    Stream,
    StreamMemory,
    StreamState,
    check_untethered,
    untethered_image_limit,
)
from mainstem.aeron.driver.conductor.params import SubscriptionParams
from mainstem.aeron.driver.conductor.receiver_factory import is_group, make_receiver_image
from mainstem.aeron.driver.conductor.stream_counters import ReceiveCounters, StreamCounters
from mainstem.aeron.driver.conductor.stream_registry import StreamRegistry
from mainstem.aeron.driver.errors import error_code_of
from mainstem.aeron.driver.event_log.events import Event
from mainstem.aeron.driver.media.addresses import InetAddress, text_of
from mainstem.aeron.logbuffer import LogParameters, LogType, position_bits, position_of
from mainstem.errors import ConfigurationError, MainstemError

if TYPE_CHECKING:
    from mainstem.aeron.driver.conductor.channels import Channels, ReceiveChannel
    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.subscription_link import Interest, SubscriberPosition, SubscriptionLink
    from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
    from mainstem.aeron.driver.conductor_proxy import CreateImage, ImageEndOfStream, ImageReleased, LossObserved
    from mainstem.aeron.driver.receiver.receiver_image import ReceiverImage
    from mainstem.aeron.loss_report import LossEntryWriter


# A draining image announces its end to the sender in this many status messages before it lingers.
EOS_STATUS_MESSAGES = 5


class DrainReason(Enum):
    NO_SUBSCRIBER = "no subscriber is left"
    TIMEOUT = "no packet came within the image liveness timeout"
    END_OF_STREAM = "the stream ended and all of it arrived"


class PublicationImage(Stream[SubscriptionParams]):
    """A remote publication, rebuilt in a local log. ``params`` are those of the oldest matching subscription.

    Until ``is_released``, only the receiver changes ``receiver_image`` and its path. ``needs_response`` is set if the sender waits
    for a response channel.
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
        self.drain_reason: DrainReason | None = None
        self._source_identity = text_of(receiver_image.source)
        self._loss_entry: LossEntryWriter | None = None
        self._liveness_timeout_ns = resources.settings.image_liveness_timeout_ns
        self._drain_ns = EOS_STATUS_MESSAGES * resources.settings.rcv_status_message_timeout_ns

    @property
    def source_identity(self) -> str:
        return self._source_identity

    @property
    def join_position(self) -> int:
        rebuilt = self.path.rebuild_position
        return min((p.cell.get_acquire() for p in self.subscribers if p.is_counted), default=rebuilt)

    @property
    def is_rejoinable(self) -> bool:
        return all(position.subscription.params.rejoin for position in self.subscribers)

    def interest_of(self, subscription: SubscriptionLink) -> Interest | None:
        return subscription.interest_in_received(self.receive_channel, self.session_id)

    def on_revoked(self, now_ns: int) -> bool:
        """End the image without draining, because the sender revoked the stream. Return False if it lingers already or is done."""
        if self.state not in (StreamState.ACTIVE, StreamState.DRAINING):
            return False
        self._resources.count(SystemCounter.IMAGES_REVOKED)
        self._move(StreamState.LINGER, now_ns)
        return True

    def on_loss(self, bytes_lost: int) -> None:
        """Record newly missing bytes in the loss report (docs/protocols/aeron.md, 9.2), unless it is full."""
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

    def _on_active(self, now_ns: int, links: ImageLinks) -> None:
        path = self.path
        furthest = path.subscribers.maximum()
        limit = untethered_image_limit(furthest, path.window_length, path.last_status_position, path.mtu)
        check_untethered(self, limit, self.params.tether_timeouts, links, now_ns=now_ns)
        self.drain_if_due(now_ns)

    def drain_if_due(self, now_ns: int) -> None:
        if self.state is not StreamState.ACTIVE:
            return
        self.drain_reason = self._find_drain_reason(now_ns)
        if self.drain_reason is not None:
            self._resources.receiver.drain_image(self.receiver_image)
            self._move(StreamState.DRAINING, now_ns)
            subject = f"image {self.registration_id}, {self.drain_reason.value}"
            self._resources.changed(subject, "ACTIVE", "DRAINING")

    def _find_drain_reason(self, now_ns: int) -> DrainReason | None:
        path = self.path
        if not self.subscribers:
            return DrainReason.NO_SUBSCRIBER
        if now_ns - path.last_packet_ns > self._liveness_timeout_ns:
            return DrainReason.TIMEOUT
        if path.end_of_stream_position >= 0 and path.rebuild_position >= path.high_water_mark:
            return DrainReason.END_OF_STREAM
        return None

    def on_unlinked(self, now_ns: int) -> None:
        """Announce to the sender at once that the last subscriber has left."""
        self.drain_if_due(now_ns)

    @property
    def accepts_subscribers(self) -> bool:
        return super().accepts_subscribers or self._was_left

    @property
    def _was_left(self) -> bool:
        return self.state is StreamState.DRAINING and self.drain_reason is DrainReason.NO_SUBSCRIBER

    def add_subscriber(self, position: SubscriberPosition) -> None:
        super().add_subscriber(position)
        if self._was_left:
            self.drain_reason = None
            self._resources.receiver.revive_image(self.receiver_image)
            self._move(StreamState.ACTIVE, position.since_ns)
            self._resources.changed(f"image {self.registration_id}, it has a subscriber", "DRAINING", "ACTIVE")

    def _is_being_read(self) -> bool:
        return self._is_read_behind(self.path.rebuild_position)

    def _is_drained(self, now_ns: int) -> bool:
        return now_ns - self.since_ns >= self._drain_ns and self._have_read(self.path.rebuild_position, now_ns)

    def _has_lingered(self, now_ns: int) -> bool:
        return not self.subscribers or now_ns - self.since_ns >= self._liveness_timeout_ns


# The cool-down of a session whose subscription has rejoin=false: the session never gets another image.
FOR_EVER_NS = 1 << 62


class Images(StreamRegistry[PublicationImage]):
    def __init__(
        self, resources: Resources, links: ImageLinks, subscriptions: SubscriptionRegistry, channels: Channels
    ) -> None:
        super().__init__(resources, links, subscriptions)
        self._channels = channels

    def on_create(self, message: CreateImage, now_ns: int) -> None:
        resources = self._resources
        channel = self._channels.of_endpoint(message.endpoint)
        subscriptions = [] if channel is None else self._matching_setup(channel, message)
        if channel is None or not subscriptions:
            # The subscription was removed while the message was in the queue.
            resources.receiver.refuse_image(message.endpoint, message.stream_id, message.session_id)
            return
        try:
            image = self._create(channel, subscriptions[0], message, now_ns)
        except (MainstemError, OSError, BufferError) as error:
            resources.receiver.refuse_image(message.endpoint, message.stream_id, message.session_id)
            kind, source = f"image: {type(error).__name__}", InetAddress.unpack(message.source)
            text = f"no image was created for a SETUP from {source}: {error}"
            resources.errors.record_peer(kind, source.ip, text, code=error_code_of(error))
            return
        except BaseException:
            resources.receiver.refuse_image(message.endpoint, message.stream_id, message.session_id)
            raise
        self.link_subscribers(image, now_ns)
        resources.receiver.add_image(channel.endpoint, image.receiver_image)

    def _create(
        self, channel: ReceiveChannel, oldest: SubscriptionLink, message: CreateImage, now_ns: int
    ) -> PublicationImage:
        """Create the image with the parameters of the oldest matching subscription, without linking subscribers."""
        resources, params = self._resources, oldest.params
        window_length = min(params.receiver_window_length, message.term_length // 2)
        if channel.receive_buffer_length:  # the system may grant a socket less than the channel requested
            window_length = min(window_length, channel.receive_buffer_length)
        self._check(channel, message, params.receiver_window_length)
        position = position_of(
            message.active_term_id, message.term_offset, message.initial_term_id, position_bits(message.term_length)
        )
        memory = self._create_memory(channel, oldest, message)
        with self._given_back_on_error(memory):
            counters = ReceiveCounters.allocate(memory.counters, start=position)
            path = ReceivePath(
                memory.log.buffer,
                counters=resources.counter_values,
                session_id=message.session_id,
                stream_id=message.stream_id,
                initial_term_id=message.initial_term_id,
                term_length=message.term_length,
                mtu=message.mtu,
                join_position=position,
                window_length=window_length,
                receiver_id=channel.endpoint.receiver_id,
                high_water_mark=counters.high_water_mark.counter_id,
                receiver_position=counters.position.counter_id,
                group_tag=channel.endpoint.group_tag,
                now_ns=now_ns,
            )
            path.allocator = resources.logs.allocate(
                memory.log,
                memory.log_file,
                position,
                margin=0,
                ahead=window_length,
            )
            receiver_image = make_receiver_image(
                resources, path, channel, params, message, stream=memory.counters, counters=counters, now_ns=now_ns
            )
        image = PublicationImage(
            memory,
            params,
            receiver_image,
            channel,
            resources,
            now_ns,
            needs_response=bool(message.flags & layout.SETUP_FLAG_SEND_RESPONSE),
        )
        channel.users += 1
        self.streams.append(image)
        return image

    def _create_memory(self, channel: ReceiveChannel, oldest: SubscriptionLink, message: CreateImage) -> StreamMemory:
        resources, settings, params = self._resources, self._resources.settings, oldest.params
        uri = channel.udp.uri
        registration_id = resources.next_id()
        log, log_file = resources.logs.create_image(
            LogParameters(
                correlation_id=registration_id,
                session_id=message.session_id,
                stream_id=message.stream_id,
                initial_term_id=message.initial_term_id,
                term_length=message.term_length,
                mtu=message.mtu,
                log_type=LogType.IMAGE,
                page_size=settings.file_page_size,
                receiver_window_length=params.receiver_window_length,
                group=is_group(channel, params, message, settings),
                **params.log_fields(),
                **self._socket_fields(
                    sndbuf=min(uri.so_sndbuf or 0, INT32_MAX), rcvbuf=min(uri.so_rcvbuf or 0, INT32_MAX)
                ),
            )
        )
        counters = StreamCounters(
            resources.counters,
            registration_id,
            client_id=oldest.client_id,
            session_id=message.session_id,
            stream_id=message.stream_id,
            channel=oldest.channel,
        )
        return StreamMemory(log=log, log_file=log_file, counters=counters)

    def _check(self, channel: ReceiveChannel, message: CreateImage, window_length: int) -> None:
        """Check that frames fit the configured window and the socket buffer. Raises ConfigurationError.

        The image's own window, which is at most half a term, may be smaller than the MTU (docs/protocols/aeron.md, 15.1).
        """
        buffer = channel.receive_buffer_length
        if message.mtu > window_length or (buffer and message.mtu > buffer):
            raise ConfigurationError(
                f"mtuLength={message.mtu} > initialWindowLength={min(window_length, buffer or window_length)} "
                f"(receiver window {window_length}, socket receive buffer {buffer}): "
                f"session {message.session_id} of stream {message.stream_id} at {channel.canonical_form}"
            )

    def on_loss(self, message: LossObserved, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        image = self.get(message.registration_id)
        if image is not None:
            image.on_loss(message.bytes_lost)

    def _matching_setup(self, channel: ReceiveChannel, message: CreateImage) -> list[SubscriptionLink]:
        return self._subscriptions.matching_setup(channel, message.stream_id, message.session_id)

    def _on_step(self, stream: PublicationImage, before: StreamState, now_ns: int) -> None:  # noqa: ARG002 - as declared
        if stream.state is not before and stream.state is StreamState.LINGER:
            self._withdraw(stream)
        self._delete_when_done(stream)

    def on_end_of_stream(self, message: ImageEndOfStream, now_ns: int) -> None:
        """Handle the end of an image's stream: drain the image, or if the sender revoked the stream, end the image at once."""
        image = self.get(message.registration_id)
        if image is None:
            return
        if not message.revoked:
            image.drain_if_due(now_ns)
        elif image.on_revoked(now_ns):
            self._resources.changed(f"image {image.registration_id}", "ACTIVE", "REVOKED")
            self._resources.note(
                Event.PUBLICATION_IMAGE_REVOKE,
                position=message.position,
                session_id=image.session_id,
                stream_id=image.stream_id,
                channel=image.channel,
            )
            self._links.on_lingering(image)
            self._withdraw(image)

    def on_released(self, message: ImageReleased, now_ns: int) -> None:  # noqa: ARG002
        image = self.get(message.registration_id)
        if image is not None:
            image.is_released = True
            self._delete_when_done(image)

    def _withdraw(self, image: PublicationImage) -> None:
        cool_down_ns = 0 if image.is_rejoinable else FOR_EVER_NS
        self._resources.receiver.remove_image(image.receiver_image, cool_down_ns=cool_down_ns)

    def _delete_when_done(self, image: PublicationImage) -> None:
        if image.state is not StreamState.DONE or not image.is_released:
            return
        self.streams.remove(image)
        self._give_back(image, "image", Event.REMOVE_IMAGE_CLEANUP)
        image.receive_channel.users -= 1
        self._channels.close_if_unused(image.receive_channel)
