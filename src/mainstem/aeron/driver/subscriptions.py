"""ADD_SUBSCRIPTION and REMOVE_SUBSCRIPTION: over the network, IPC and spies (aeron-behaviour §7, §19.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.command.responses import OnOperationSuccess, OnSubscriptionReady
from mainstem.aeron.driver.subscribers import Subscription, SubscriptionKind
from mainstem.aeron.driver.subscription_params import SubscriptionParams
from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from mainstem.aeron.command.commands import AddSubscription, RemoveSubscription
    from mainstem.aeron.driver.clients import Clients
    from mainstem.aeron.driver.ipc_publications import IpcPublications
    from mainstem.aeron.driver.linking import Linker
    from mainstem.aeron.driver.resources import Resources
    from mainstem.aeron.driver.subscription_registry import SubscriptionRegistry

NO_CHANNEL_STATUS = -1


class Subscriptions:
    """Registers subscriptions and links each to the streams that are there already."""

    def __init__(
        self,
        resources: Resources,
        clients: Clients,
        linker: Linker,
        registry: SubscriptionRegistry,
        ipc: IpcPublications,
    ) -> None:
        self._resources = resources
        self._clients = clients
        self._linker = linker
        self.registry = registry
        self._ipc = ipc

    def add(self, command: AddSubscription, now_ns: int) -> None:
        """ADD_SUBSCRIPTION; the prefix of the channel says which kind."""
        self._clients.get_or_add(command.client_id)
        uri = ChannelUri.parse(command.channel)
        kind = SubscriptionKind.SPY if uri.spy else SubscriptionKind.IPC if uri.is_ipc else SubscriptionKind.NETWORK
        subscription = Subscription(
            registration_id=command.correlation_id,
            client_id=command.client_id,
            stream_id=command.stream_id,
            channel=command.channel,
            kind=kind,
            params=SubscriptionParams.of(uri, self._resources.settings),
        )
        if kind is not SubscriptionKind.IPC:
            raise RegistrationError(f"channel {uri}: only aeron:ipc is supported", code=ErrorCode.NOT_SUPPORTED)
        subscription.ipc = True
        self._ready(subscription, NO_CHANNEL_STATUS)
        self._ipc.link_all(now_ns)

    def _ready(self, subscription: Subscription, channel_status_id: int) -> None:
        self.registry.add(subscription)
        self._resources.responses.send(
            OnSubscriptionReady(correlation_id=subscription.registration_id, channel_status_id=channel_status_id)
        )

    def remove(self, command: RemoveSubscription, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """REMOVE_SUBSCRIPTION."""
        self._release(self.registry.get(command.registration_id))
        self._resources.responses.send(OnOperationSuccess(correlation_id=command.correlation_id))

    def release_client(self, client_id: int) -> None:
        """Gives up every subscription of a client."""
        for subscription in self.registry.of_client(client_id):
            self._release(subscription)

    def _release(self, subscription: Subscription) -> None:
        self.registry.remove(subscription)
        for source in list(subscription.positions):
            self._linker.unlink(subscription, source)
