"""What the sender and the receiver report to the conductor, one message after another."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainstem.aeron.driver import messages
from mainstem.aeron.driver.conductor.re_resolution import Resolving
from mainstem.aeron.driver.runner import AgentFailed

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable
    from typing import Any

    from mainstem.aeron.driver.conductor.endpoints import Endpoints
    from mainstem.aeron.driver.conductor.images import Images
    from mainstem.aeron.driver.conductor.network_publications import NetworkPublications
    from mainstem.aeron.driver.conductor.response_channels import ResponseChannels
    from mainstem.aeron.driver.resources import Resources

# Messages handled in one duty cycle; creating an image's log takes longest.
EVENTS_PER_CYCLE = 16


class EventReader:
    """Routes each message by its class."""

    def __init__(
        self,
        resources: Resources,
        to_conductor: deque[object],
        network: NetworkPublications,
        images: Images,
        endpoints: Endpoints,
        response_channels: ResponseChannels,
    ) -> None:
        self._resources = resources
        self._queue = to_conductor
        self._handlers: dict[type, Callable[[Any, int], None]] = {
            AgentFailed: self._on_agent_failed,
            messages.CreateImage: images.on_create,
            messages.ImageEndOfStream: images.on_end_of_stream,
            messages.ImageReleased: images.on_released,
            messages.PublicationReleased: network.on_released,
            messages.LossObserved: images.on_loss,
            messages.PublicationError: network.on_error,
            messages.EndpointClosed: endpoints.on_closed,
            messages.ResolveAgain: Resolving(resources).on_resolve_again,
            messages.ResponseSetup: response_channels.on_response_setup,
            messages.ResponseConnected: response_channels.on_connected,
            messages.NetworkFault: self._on_network_fault,
        }

    def poll(self, now_ns: int) -> int:
        """Handles up to EVENTS_PER_CYCLE messages; returns how many."""
        count = 0
        while count < EVENTS_PER_CYCLE and self._queue:
            message = self._queue.popleft()
            count += 1
            handler = self._handlers.get(type(message))
            if handler is None:
                self._resources.errors.record(f"message not understood: {message!r}")
                continue
            try:
                handler(message, now_ns)
            except Exception as error:  # one bad stream must not stop the conductor of all the others
                self._resources.errors.record(f"{type(message).__name__}: {type(error).__name__}: {error}")
        return count

    def _on_network_fault(self, message: messages.NetworkFault, now_ns: int) -> None:  # noqa: ARG002
        self._resources.errors.record(message.text)

    def _on_agent_failed(self, message: AgentFailed, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        error = message.error
        logger.error("%s failed in a duty cycle", message.agent, exc_info=error)
        self._resources.errors.record(f"{message.agent}: {type(error).__name__}: {error}")
