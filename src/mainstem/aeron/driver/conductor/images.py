"""Every image: created when a SETUP meets a subscription, taken through its life, deleted (aeron-behaviour §15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem._core.driver.receive_path import ReceivePath
from mainstem.aeron.driver.conductor.life_cycle import ImageState
from mainstem.aeron.driver.conductor.loss_entries import Losses
from mainstem.aeron.driver.conductor.publication_image import PublicationImage
from mainstem.aeron.driver.conductor.publication_logs import kept_only_if_complete, socket_fields
from mainstem.aeron.driver.conductor.publication_params import pick
from mainstem.aeron.driver.conductor.receiver_factory import is_group, make_receiving
from mainstem.aeron.driver.conductor.stream_counters import ReceiveCounters, StreamCounters
from mainstem.aeron.driver.media.addresses import text_of
from mainstem.aeron.logbuffer import LogParameters, LogType, position_bits, position_of
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from mainstem.aeron.driver.conductor.endpoints import Endpoints, ReceiveEndpoint
    from mainstem.aeron.driver.conductor.image_links import Linker
    from mainstem.aeron.driver.conductor.subscription_link import Subscription
    from mainstem.aeron.driver.conductor.subscription_params import SubscriptionParams
    from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
    from mainstem.aeron.driver.messages import CreateImage, ImageEndOfStream, ImageReleased, LossObserved
    from mainstem.aeron.driver.receiver.receiver_image import ReceiverImage
    from mainstem.aeron.driver.resources import Resources
    from mainstem.aeron.logbuffer import LogBuffers

# How long a session stays unwelcome whose subscription said rejoin=false: for good.
FOR_EVER_NS = 1 << 62


class Images:
    """The images of this driver, by the receiver's part of each."""

    def __init__(
        self,
        resources: Resources,
        linker: Linker,
        subscriptions: SubscriptionRegistry,
        endpoints: Endpoints,
    ) -> None:
        self._resources = resources
        self._linker = linker
        self._subscriptions = subscriptions
        self._endpoints = endpoints
        self._losses = Losses(resources)
        self.active: list[PublicationImage] = []

    def find(self, registration_id: int) -> PublicationImage | None:
        """The image of that id, while it is active."""
        for image in self.active:
            if image.registration_id == registration_id and image.state is ImageState.ACTIVE:
                return image
        return None

    def on_create(self, message: CreateImage, now_ns: int) -> None:
        """The receiver met a SETUP of a session that it has no image for."""
        endpoint = self._endpoints.of_media(message.endpoint)
        subscriptions = [] if endpoint is None else self._matching(endpoint, message)
        if endpoint is None or not subscriptions:
            # The subscription went while the SETUP was on its way here.
            self._resources.receiver.image_refused(message.endpoint, message.stream_id, message.session_id, now_ns)
            return
        try:
            self._check(endpoint, subscriptions[0], message)
            image = self._create(endpoint, subscriptions[0], message, now_ns)
        except BaseException:
            self._resources.receiver.image_refused(message.endpoint, message.stream_id, message.session_id, now_ns)
            raise
        for subscription in subscriptions:
            position = self._linker.link(subscription, image, now_ns)
            self._linker.announce(image, position)
        self._resources.receiver.add_image(endpoint.media, image.receiving)

    def _create(
        self, endpoint: ReceiveEndpoint, oldest: Subscription, message: CreateImage, now_ns: int
    ) -> PublicationImage:
        """The image as the oldest matching subscription wants it, not yet linked to anybody."""
        resources, settings, params = self._resources, self._resources.settings, oldest.params
        registration_id = resources.next_id()
        position = position_of(
            message.active_term_id,
            message.term_offset,
            message.initial_term_id,
            position_bits(message.term_length),
        )
        window = min(params.receiver_window_length, message.term_length // 2)
        log, log_file = self._create_log(registration_id, endpoint, params, message, window)
        stream = StreamCounters(
            resources.counters,
            registration_id,
            session_id=message.session_id,
            stream_id=message.stream_id,
            channel=oldest.channel,
        )
        with kept_only_if_complete(resources, log, log_file, stream):
            counters = ReceiveCounters.allocate(stream, start=position)
            path = ReceivePath(
                log.buffer,
                counters=resources.counter_values,
                session_id=message.session_id,
                stream_id=message.stream_id,
                initial_term_id=message.initial_term_id,
                term_length=message.term_length,
                mtu=message.mtu,
                join_position=position,
                window_length=window,
                receiver_id=endpoint.media.receiver_id,
                high_water_mark=counters.high_water_mark.counter_id,
                receiver_position=counters.position.counter_id,
                group_tag=endpoint.media.group_tag,
                now_ns=now_ns,
            )
            image = PublicationImage(
                registration_id=registration_id,
                session_id=message.session_id,
                stream_id=message.stream_id,
                channel=oldest.channel,
                params=params,
                log=log,
                log_file=log_file,
                path=path,
                receiving=make_receiving(
                    resources, path, endpoint, params, message, stream=stream, counters=counters, now_ns=now_ns
                ),
                endpoint=endpoint,
                source_identity=text_of(message.source),
                stream_counters=stream,
                system_counters=resources.system_counters,
                liveness_timeout_ns=settings.image_liveness_timeout_ns,
                status_message_timeout_ns=settings.rcv_status_message_timeout_ns,
                wants_response=bool(message.flags & layout.SETUP_FLAG_SEND_RESPONSE),
                now_ns=now_ns,
            )
        endpoint.users += 1
        self.active.append(image)
        return image

    def _create_log(
        self,
        registration_id: int,
        endpoint: ReceiveEndpoint,
        params: SubscriptionParams,
        message: CreateImage,
        window: int,
    ) -> tuple[LogBuffers, str]:
        settings = self._resources.settings
        return self._resources.logs.create_image(
            LogParameters(
                correlation_id=registration_id,
                session_id=message.session_id,
                stream_id=message.stream_id,
                initial_term_id=message.initial_term_id,
                term_length=message.term_length,
                mtu=message.mtu,
                log_type=LogType.IMAGE,
                page_size=settings.file_page_size,
                receiver_window_length=window,
                group=is_group(endpoint, params, message, settings),
                **params.log_fields(),
                **socket_fields(
                    self._resources.buffer_limits,
                    sndbuf=pick(endpoint.channel.uri.so_sndbuf, 0),
                    rcvbuf=pick(endpoint.channel.uri.so_rcvbuf, 0),
                ),
            )
        )

    def _check(self, endpoint: ReceiveEndpoint, oldest: Subscription, message: CreateImage) -> None:
        """The sender's frames must fit the window and the socket's buffer (§15.1). Raises ConfigurationError."""
        window = min(oldest.params.receiver_window_length, message.term_length // 2)
        buffer = endpoint.media.receive_buffer_length
        if message.mtu > window or (buffer and max(message.mtu, window) > buffer):
            raise ConfigurationError(
                f"session {message.session_id} of stream {message.stream_id} at {endpoint.canonical_form}: mtu "
                f"{message.mtu}, receiver window {window} and socket receive buffer {buffer} must rise in this order"
            )

    def on_loss(self, message: LossObserved, now_ns: int) -> None:  # noqa: ARG002
        """Bytes of an image were found missing: its entry in the loss report grows."""
        image = self._of(message.image)
        if image is not None:
            self._losses.record(image, message.bytes_lost)

    def _matching(self, endpoint: ReceiveEndpoint, message: CreateImage) -> list[Subscription]:
        return self._subscriptions.matching_network(endpoint, message.stream_id, message.session_id)

    def link_subscription(self, subscription: Subscription, now_ns: int) -> None:
        """Links a new subscription to the images that match it."""
        for image in self.active:
            if (
                image.endpoint is subscription.endpoint
                and image.stream_id == subscription.stream_id
                and image.accepts_subscribers
                and subscription.accepts_session(image.session_id)
            ):
                position = self._linker.link(subscription, image, now_ns)
                self._linker.announce(image, position)

    def on_timer(self, now_ns: int) -> None:
        """One step in the life of each."""
        for image in list(self.active):
            before = image.state
            image.on_time_event(now_ns, self._linker)
            if image.state is not before and image.state is ImageState.LINGER:
                self._withdraw(image)
            self._delete_when_done(image)

    def on_end_of_stream(self, message: ImageEndOfStream, now_ns: int) -> None:
        """Every connection of an image said that the stream is over; a revoked one is not drained."""
        image = self._of(message.image)
        if message.revoked and image is not None and image.on_revoked(now_ns):
            self._resources.changed(f"image {image.registration_id}", "ACTIVE", "REVOKED")
            self._resources.note(
                "PUBLICATION_IMAGE_REVOKE",
                f"revokedPos={message.position} sessionId={image.session_id} streamId={image.stream_id} "
                f"channel={image.channel}",
            )
            self._linker.on_lingering(image)
            self._withdraw(image)

    def on_released(self, message: ImageReleased, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """The receiver has let go of an image."""
        image = self._of(message.image)
        if image is not None:
            image.is_released = True
            self._delete_when_done(image)

    def _withdraw(self, image: PublicationImage) -> None:
        cool_down_ns = 0 if image.is_rejoinable else FOR_EVER_NS
        self._resources.receiver.remove_image(image.receiving, cool_down_ns=cool_down_ns)

    def _delete_when_done(self, image: PublicationImage) -> None:
        if image.state is not ImageState.DONE or not image.is_released:
            return
        self.active.remove(image)
        self._resources.changed(f"image {image.registration_id}", image.state.name, "REMOVED")
        self._resources.note(
            "REMOVE_IMAGE_CLEANUP",
            f"sessionId={image.session_id} streamId={image.stream_id} id={image.registration_id} channel={image.channel}",
        )
        self._linker.unlink_all(image)
        image.stream_counters.close()
        self._resources.logs.delete(image.log, image.log_file)
        image.endpoint.users -= 1
        self._endpoints.close_receive_if_unused(image.endpoint)

    def _of(self, receiving: ReceiverImage) -> PublicationImage | None:
        return next((image for image in self.active if image.receiving is receiving), None)
