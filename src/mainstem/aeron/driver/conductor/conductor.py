"""The conductor: takes commands and what the other agents report, and walks every resource through its life.

The driver has three agents. The sender and the receiver move frames; the conductor makes, links and ends everything that they
move frames through, and is the only agent that allocates counters, creates and deletes logs, resolves names, opens sockets and
talks to clients. It is not on the way of a message: limits, positions, cleaning, status messages and NAKs belong to compiled
cycles, which do not wait for it. (IPC publications' cycle runs in the conductor's thread, yet without its Python.)

One duty cycle, in this order:

1. At most one command of a client (``client_command_adapter``). Commands are carried out in the order of the to-driver buffer. A
   command that needs a socket which is just being closed waits, and all others behind it.
2. Messages of the sender and the receiver (``agent_message_adapter``).
3. Name resolution between drivers, where it is configured.
4. Deleting a log that nothing uses any more. Unmapping a large one takes milliseconds, so there is a limit for each cycle.
5. Once in each timer interval: the heartbeat in the CnC file, clients that are gone, one step in the life of each stream, a
   to-driver buffer that a dead client blocks.

What a client registers is a link: ``PublicationLink``, ``SubscriptionLink``, a counter. A link belongs to one client and goes with
it. What links refer to is shared and counted: a publication has ``references``, an open channel has ``users`` and interest. It ends
when its count is 0, by the states of ``life_cycle`` for streams, by ``Channels`` for sockets.

Ending something that another agent uses takes a round trip, and memory is given back in this order alone:

    conductor                       sender or receiver
    state DONE, or unused
    remove_... / close_...   --->   takes it out of its cycle, closes its sockets
                             <---   PublicationReleased, ImageReleased, EndpointClosed
    frees counters, deletes the log

A counter's id is used again only after a cool-down, because clients in other processes may still read it.

All state here is the conductor's thread's own. What it shares with other threads is listed in ``agent_proxies``.

This file only routes: each concern has a file of its own.
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

logger = logging.getLogger(__name__)

# A client that has claimed a record finishes it soon, and nothing says when; one that died there holds it for seconds.
COMMAND_PAUSE_NS = 1_000_000


class DriverConductor:
    """The agent that clients talk to. ``decide`` is its duty cycle; ``next_timer_ns`` is when it must run at the latest."""

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
        """Store the heartbeat that means "shut down", and unmaps every log; the files go with the directory."""
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
        self.clients.on_timer()
        self.ipc.on_timer(now_ns)
        self.network.on_timer(now_ns)
        self.images.on_timer(now_ns)
        self._commands.on_timer(now_ns)
        for path in self._resources.logs.awaiting_space():
            text = f"{path}: the file system is full; the stream waits until there is space"
            self._resources.errors.record(text, code=ErrorCode.STORAGE_SPACE)

    def _on_terminate(self, command: TerminateDriver, now_ns: int) -> None:  # noqa: ARG002 - every handler gets the time
        """TERMINATE_DRIVER, accepted by the validator ``allow`` alone. There is no response either way.

        See docs/protocols/aeron.md, 5.
        """
        if self._resources.settings.driver_termination_validator == "allow":
            logger.info("client %d asked the driver to terminate", command.client_id)
            self.is_termination_requested = True
        else:
            self._resources.errors.record(f"client {command.client_id} is not allowed to terminate the driver")

    def _release_client(self, client_id: int) -> None:
        self.publications.release_client(client_id, self._now_ns)
        self.subscriptions.release_client(client_id)
        self.client_counters.release_client(client_id)
