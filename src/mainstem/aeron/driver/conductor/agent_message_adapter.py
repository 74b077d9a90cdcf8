"""The adapter that dispatches messages of the sender and the receiver from the conductor's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.driver import conductor_proxy as messages
from mainstem.aeron.driver.errors import error_code_of
from mainstem.aeron.driver.media.addresses import InetAddress
from mainstem.aeron.driver.media.endpoints import SendChannelEndpoint
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstem.aeron.driver.conductor.channels import Channels
    from mainstem.aeron.driver.conductor.network_publication import NetworkPublications
    from mainstem.aeron.driver.conductor.publication_errors import PublicationErrors
    from mainstem.aeron.driver.conductor.publication_image import Images
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor.response_channels import ResponseChannels
    from mainstem.aeron.driver.conductor_proxy import DriverConductorProxy

# Limits on the messages in one duty cycle. Creating an image takes longest, about half a millisecond. During that time, agents that
# share the thread don't run, and the Python code of the other agents waits.
MESSAGES_PER_CYCLE = 16
IMAGES_PER_CYCLE = 2


class AgentMessageAdapter:
    def __init__(
        self,
        resources: Resources,
        to_conductor: DriverConductorProxy,
        network: NetworkPublications,
        publication_errors: PublicationErrors,
        images: Images,
        channels: Channels,
        response_channels: ResponseChannels,
    ) -> None:
        self._resources = resources
        self._channels = channels
        self._queue = to_conductor
        self._handlers: dict[type, Callable[[Any, int], None]] = {
            messages.AgentFailed: self._on_agent_failed,
            messages.CreateImage: images.on_create,
            messages.ImageEndOfStream: images.on_end_of_stream,
            messages.ImageReleased: images.on_released,
            messages.PublicationReleased: network.on_released,
            messages.LossObserved: images.on_loss,
            messages.PublicationError: publication_errors.on_error,
            messages.EndpointClosed: channels.on_closed,
            messages.DestinationClosed: channels.on_destination_closed,
            messages.ResolveAgain: self._on_resolve_again,
            messages.ResponseSetupReceived: response_channels.on_response_setup,
            messages.ResponseConnected: response_channels.on_connected,
            messages.NetworkFault: self._on_network_fault,
            messages.PeerFault: self._on_peer_fault,
        }

    def poll(self, now_ns: int) -> int:
        """Handle messages and return how many: up to MESSAGES_PER_CYCLE, of which up to IMAGES_PER_CYCLE create images."""
        count = images = 0
        while count < MESSAGES_PER_CYCLE and images < IMAGES_PER_CYCLE and self._queue:
            message = self._queue.popleft()
            count += 1
            images += isinstance(message, messages.CreateImage)
            handler = self._handlers.get(type(message))
            if handler is None:
                self._resources.errors.record(f"unknown message: {message!r}")
                continue
            try:
                handler(message, now_ns)
            except Exception as error:  # one bad stream must not stop the others
                self._resources.errors.record(
                    f"{type(message).__name__}: {type(error).__name__}: {error}",
                    code=error_code_of(error),
                    bug=None if isinstance(error, MainstemError | OSError) else error,
                )
        return count

    def _on_resolve_again(self, message: messages.ResolveAgain, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """Resolve the name of a silent peer again (docs/protocols/aeron.md, 19.8). If that fails, keep the old address."""
        resources = self._resources
        endpoint = message.endpoint
        key = "endpoint" if isinstance(endpoint, SendChannelEndpoint) else "control"
        try:
            address = resources.names.address(message.name, key, again=True)
        except LookupError as error:
            resources.errors.record(f"could not re-resolve: {key}={message.name}: {error}", code=ErrorCode.UNKNOWN_HOST)
            return
        if address.packed == message.address:
            return
        resources.count(SystemCounter.RESOLUTION_CHANGES)
        self._channels.move(endpoint, address)
        if isinstance(endpoint, SendChannelEndpoint):
            resources.sender.resolution_change(endpoint, address, destination=message.destination)
        else:
            resources.receiver.resolution_change(endpoint, address, destination=message.destination)

    def _on_network_fault(self, message: messages.NetworkFault, now_ns: int) -> None:  # noqa: ARG002
        self._resources.errors.record(message.text)

    def _on_peer_fault(self, message: messages.PeerFault, now_ns: int) -> None:  # noqa: ARG002
        self._resources.errors.record_peer(message.kind, InetAddress.unpack(message.source).ip, message.text)

    def _on_agent_failed(self, message: messages.AgentFailed, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        error = message.error
        text = f"{message.agent} failed in its duty cycle: {type(error).__name__}: {error}"
        self._resources.errors.record(text, bug=error)
