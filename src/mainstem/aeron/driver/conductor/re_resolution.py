"""Names looked up again: peers that fell silent may have moved (aeron-behaviour §19.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.driver.media.endpoints import SendChannelEndpoint
from mainstem.aeron.system_counter import SystemCounter

if TYPE_CHECKING:
    from mainstem.aeron.driver.messages import ResolveAgain
    from mainstem.aeron.driver.resources import Resources


class Resolving:
    """Answers the agents' questions whether a name has another address by now."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    def on_resolve_again(self, message: ResolveAgain, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """Looks the name up. A name that is unknown now keeps its address."""
        resources = self._resources
        endpoint = message.endpoint
        key = "endpoint" if isinstance(endpoint, SendChannelEndpoint) else "control"
        try:
            address = resources.names.address(message.name, key, again=True)
        except LookupError as error:
            resources.errors.record(f"{message.name}: {error}", code=ErrorCode.UNKNOWN_HOST)
            return
        if address.packed == message.address:
            return
        resources.count(SystemCounter.RESOLUTION_CHANGES)
        if isinstance(endpoint, SendChannelEndpoint):
            resources.sender.resolution_change(endpoint, address, destination=message.destination)
        elif message.destination in endpoint.destinations:
            resources.receiver.resolution_change(endpoint.destinations[message.destination], address)
