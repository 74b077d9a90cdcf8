"""The conductor, which runs client commands, handles messages of the other agents, and manages all resources.

The sender and the receiver move frames. The conductor creates, links and ends everything that they use. Only the conductor
allocates counters, creates and deletes logs, resolves names, opens sockets and sends responses to clients. Streams never wait for
it, because compiled cycles move limits and positions, clean logs, and send status messages and NAKs.

A duty cycle does the following, in this order:

1. Handle at most one client command (``client_command_adapter``). A command that needs an address that a closing socket still uses
   waits, and delays the commands after it.
2. Handle messages of the sender and the receiver (``agent_message_adapter``).
3. Exchange names with other drivers, if configured.
4. Delete unused logs. Unmapping a large log takes milliseconds, so there is a limit per cycle.
5. Once per timer interval: write the heartbeat, release clients that are gone, move streams to their next states if that is due,
   and unblock the to-driver buffer if a dead client blocks it.

A registration of a client is a ``PublicationLink``, a ``SubscriptionLink`` or a counter, and ends with the client. The objects that
registrations use are counted: a publication has ``references``, and an open channel has ``users`` and ``interest``. They end when
their count is 0.

To end an object that another agent uses, the conductor needs a round trip. It frees memory only in this order:

    conductor                       sender or receiver
    state DONE, or unused
    remove_... / close_...   --->   takes it out of its cycle, closes its sockets
                             <---   PublicationReleased, ImageReleased, EndpointClosed
    frees counters, deletes the log

The id of a counter is reused only after a cool-down, because other processes may still read the counter. All state of the
conductor belongs to its thread; ``agent_proxies`` lists what the threads share. This module only routes commands and messages.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from mainstem.aeron.cnc import DRIVER_SHUT_DOWN
from mainstem.aeron.command import commands as command
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.driver.conductor.agent_message_adapter import AgentMessageAdapter
from mainstem.aeron.driver.conductor.channels import Channels
from mainstem.aeron.driver.conductor.client_command_adapter import ClientCommandAdapter
from mainstem.aeron.driver.conductor.client_counters import ClientCounters
from mainstem.aeron.driver.conductor.clients import Clients
from mainstem.aeron.driver.conductor.destination_commands import ReceiveDestinationCommands, SendDestinationCommands
from mainstem.aeron.driver.conductor.image_links import ImageLinks
from mainstem.aeron.driver.conductor.image_rejection import ImageRejection
from mainstem.aeron.driver.conductor.ipc_publication import IpcPublications
from mainstem.aeron.driver.conductor.network_publication import NetworkPublications
from mainstem.aeron.driver.conductor.publication_commands import PublicationCommands
from mainstem.aeron.driver.conductor.publication_errors import PublicationErrors
from mainstem.aeron.driver.conductor.publication_image import Images
from mainstem.aeron.driver.conductor.response_channels import ResponseChannels
from mainstem.aeron.driver.conductor.session_ids import SessionIds
from mainstem.aeron.driver.conductor.subscription_commands import SubscriptionCommands
from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry

if TYPE_CHECKING:
    from mainstem.aeron.command.commands import TerminateDriver
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor_proxy import DriverConductorProxy

logger = logging.getLogger("mainstem.aeron.driver")

# How long to wait before polling again while a record is claimed but not committed. A client usually commits it soon, without a
# notification, but a client that died blocks the buffer for seconds.
COMMAND_PAUSE_NS = 1_000_000


class DriverConductor:
    """The agent that handles client commands. It must run at ``next_timer_ns`` at the latest."""

    def __init__(self, resources: Resources, to_conductor: DriverConductorProxy, now_ns: int) -> None:
        self._resources = resources
        settings = resources.settings
        registry = SubscriptionRegistry()
        session_ids = SessionIds(
            resources.rng,
            reserved_low=settings.publication_reserved_session_id_low,
            reserved_high=settings.publication_reserved_session_id_high,
        )
        links = ImageLinks(resources)
        channels = Channels(resources)
        self.clients = Clients(
            resources, liveness_timeout_ns=settings.client_liveness_timeout_ns, release=self._release_client
        )
        self.ipc = IpcPublications(resources, links, registry, session_ids)
        self.network = NetworkPublications(resources, links, registry, session_ids, channels)
        self.images = Images(resources, links, registry, channels)
        self.response_channels = ResponseChannels(resources, registry, self.ipc, self.network, self.images)
        self.publications = PublicationCommands(
            resources, self.clients, links, self.ipc, self.network, session_ids, self.response_channels, channels
        )
        self.subscriptions = SubscriptionCommands(
            resources, self.clients, links, registry, channels, self.ipc, self.network, self.images
        )
        self.client_counters = ClientCounters(resources, self.clients)
        self.is_termination_requested = False
        destinations = SendDestinationCommands(resources, self.publications, channels)
        receive_destinations = ReceiveDestinationCommands(resources, registry, channels, links, self.ipc, self.network)
        rejections = ImageRejection(resources, self.ipc, self.images, links)
        self._commands = ClientCommandAdapter(
            resources,
            {
                command.AddPublication: self.publications.add,
                command.AddExclusivePublication: self.publications.add,
                command.RemovePublication: self.publications.remove,
                command.AddSubscription: self.subscriptions.add,
                command.RemoveSubscription: self.subscriptions.remove,
                command.ClientKeepalive: self.clients.on_keepalive,
                command.ClientClose: self.clients.on_close,
                command.AddDestination: destinations.add,
                command.RemoveDestination: destinations.remove,
                command.RemoveDestinationById: destinations.remove_by_id,
                command.AddReceiveDestination: receive_destinations.add,
                command.RemoveReceiveDestination: receive_destinations.remove,
                command.AddCounter: self.client_counters.add,
                command.AddStaticCounter: self.client_counters.add_static,
                command.RemoveCounter: self.client_counters.remove,
                command.TerminateDriver: self._on_terminate,
                command.RejectImage: rejections.reject,
                command.GetNextAvailableSessionId: self.publications.next_session_id,
            },
            now_ns,
        )
        self._messages = AgentMessageAdapter(
            resources,
            to_conductor,
            self.network,
            PublicationErrors(resources, self.network),
            self.images,
            channels,
            self.response_channels,
        )
        self._free_limit = settings.driver_resource_free_limit
        self._timer_interval_ns = settings.timer_interval_ns
        self._timer_due_ns = now_ns
        self._now_ns = now_ns

    @property
    def next_timer_ns(self) -> int:
        if self._resources.logs.has_deleted:
            return self._now_ns
        due_ns = min(self._timer_due_ns, self._resources.names.deadline_ns)
        return min(due_ns, self._now_ns + COMMAND_PAUSE_NS) if self._commands.has_more else due_ns

    def decide(self, now_ns: int) -> int:
        self._now_ns = now_ns
        work = self._commands.poll(now_ns) + self._messages.poll(now_ns) + self._resources.names.do_work(now_ns)
        work += self._resources.logs.free_some(self._free_limit)
        if now_ns >= self._timer_due_ns:
            self._on_timer(now_ns)
            work += 1
        return work

    def close(self) -> None:
        """Store the "shut down" heartbeat and unmap all logs. Their files are deleted with the directory."""
        self._resources.to_driver.consumer_heartbeat_ms = DRIVER_SHUT_DOWN
        self._resources.names.close()
        self._resources.logs.free_some(sys.maxsize)
        logs = [publication.log for publication in self.ipc.streams]
        logs += [publication.log for publication in self.network.streams]
        logs += [image.log for image in self.images.streams]
        for log in logs:
            self._resources.logs.unmap(log)

    def _on_timer(self, now_ns: int) -> None:
        self._timer_due_ns = now_ns + self._timer_interval_ns
        self._resources.to_driver.consumer_heartbeat_ms = self._resources.clock.epoch_ms()
        self.clients.on_timer(now_ns)
        self.ipc.on_timer(now_ns)
        self.network.on_timer(now_ns)
        self.images.on_timer(now_ns)
        self._commands.on_timer(now_ns)
        for path in self._resources.logs.awaiting_space():
            text = f"{path}: the file system is full; the stream waits until there is space"
            self._resources.errors.record(text, code=ErrorCode.STORAGE_SPACE)
            self._resources.errors.warn(path, text)

    def _on_terminate(self, command: TerminateDriver, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """Handle TERMINATE_DRIVER, which only the validator ``allow`` accepts.

        The client gets no response in either case (docs/protocols/aeron.md, 5).
        """
        if self._resources.settings.driver_termination_validator == "allow":
            logger.info("client %d asked the driver to terminate", command.client_id)
            self.is_termination_requested = True
        else:
            self._resources.errors.record(f"client {command.client_id} is not allowed to terminate the driver")

    def _release_client(self, client_id: int) -> None:
        self.publications.release_client(client_id, self._now_ns)
        self.subscriptions.release_client(client_id, self._now_ns)
        self.client_counters.release_client(client_id)
