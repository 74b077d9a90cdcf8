"""Response channels, on which a publication responds to an image, and a subscription waits for the response.

See docs/protocols/aeron.md, 20.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.frozen import replaced
from mainstem.aeron.channel_values import RESPONSE_PROTOTYPE
from mainstem.aeron.driver.conductor.network_publication import NetworkPublication
from mainstem.aeron.driver.conductor.params import NO_RESPONSE
from mainstem.aeron.driver.errors import invalid_channel

if TYPE_CHECKING:
    from mainstem.aeron.channel import ChannelUri
    from mainstem.aeron.driver.conductor.ipc_publication import IpcPublication, IpcPublications
    from mainstem.aeron.driver.conductor.network_publication import NetworkPublications
    from mainstem.aeron.driver.conductor.params import PublicationParams
    from mainstem.aeron.driver.conductor.publication_image import Images
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
    from mainstem.aeron.driver.conductor_proxy import ResponseConnected, ResponseSetupReceived


class ResponseChannels:
    """The connection of requests and responses by correlation id."""

    def __init__(
        self,
        resources: Resources,
        registry: SubscriptionRegistry,
        ipc: IpcPublications,
        network: NetworkPublications,
        images: Images,
    ) -> None:
        self._resources = resources
        self._registry = registry
        self._ipc = ipc
        self._network = network
        self._images = images

    def check(self, uri: ChannelUri, params: PublicationParams) -> PublicationParams:
        """Check that a response has an image that waits for it, and a request a subscription. Raises RegistrationError.

        Return the effective parameters. Over IPC nothing is refused: a publication that responds to no existing request is an
        ordinary one.
        """
        if uri.is_ipc:
            is_response = params.is_response and self._ipc.find(params.response_correlation_id) is not None
            return replaced(params, is_response=is_response)
        correlation_id = params.response_correlation_id
        if params.is_response:
            self._check_response(uri, correlation_id)
        elif correlation_id != NO_RESPONSE:
            subscription = self._registry.find(correlation_id)
            if subscription is None or subscription.receive_channel is None:
                raise invalid_channel(
                    f"unable to find response subscription for response-correlation-id={correlation_id}: channel={uri}"
                )
        return params

    def _check_response(self, uri: ChannelUri, correlation_id: int) -> None:
        if correlation_id == NO_RESPONSE:
            raise invalid_channel(
                f"control-mode=response was specified, but no response-correlation-id set: channel={uri}"
            )
        if correlation_id == RESPONSE_PROTOTYPE:
            # It opens the endpoint and settles the log's parameters before there is an image to respond to.
            return
        image = self._images.find(correlation_id)
        if image is None:
            raise invalid_channel(f"image.correlationId={correlation_id} not found: channel={uri}")
        if not image.needs_response:
            raise invalid_channel(
                f"image.correlationId={correlation_id} did not request a response channel: channel={uri}"
            )

    def on_added(self, publication: IpcPublication | NetworkPublication) -> None:
        if isinstance(publication, NetworkPublication) and publication.params.is_response:
            image = self._images.find(publication.params.response_correlation_id)
            if image is not None:
                self._resources.receiver.set_response_session(image.receiver_image, publication.session_id)

    def on_response_setup(self, message: ResponseSetupReceived, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """Limit the waiting subscription to the response session that the peer announced, and request its SETUP."""
        publication = self._network.get(message.registration_id)
        if publication is None:
            return
        subscription = self._registry.find(publication.params.response_correlation_id)
        if subscription is None or subscription.receive_channel is None or not subscription.params.is_response:
            return
        session_id = message.response_session_id
        if subscription.session_id != session_id:
            channel = subscription.receive_channel
            channel.add_interest(subscription.stream_id, session_id)
            channel.remove_interest(subscription.stream_id, subscription.session_id)
            subscription.session_id = session_id
        self._resources.receiver.request_setup(
            subscription.receive_channel.endpoint, subscription.stream_id, session_id
        )

    def on_connected(self, message: ResponseConnected, now_ns: int) -> None:  # noqa: ARG002
        publication = self._network.get(message.registration_id)
        image = None if publication is None else self._images.find(publication.params.response_correlation_id)
        if image is not None:
            self._resources.receiver.set_response_session(image.receiver_image, None)
