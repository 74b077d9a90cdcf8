"""The conductor: takes commands and what the other agents report, and walks every resource through its life.

It only routes: each concern has a file of its own. What must happen in every cycle (limits, positions, cleaning) is compiled
and does not wait for this.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mainstem.aeron.cnc import DRIVER_SHUT_DOWN
from mainstem.aeron.command import commands as command
from mainstem.aeron.driver.conductor.agent_messages import EventReader
from mainstem.aeron.driver.conductor.client_counters import ClientCounters
from mainstem.aeron.driver.conductor.clients import Clients
from mainstem.aeron.driver.conductor.commands import CommandReader
from mainstem.aeron.driver.conductor.destinations import ReceiveDestinations, SendDestinations
from mainstem.aeron.driver.conductor.endpoints import Endpoints
from mainstem.aeron.driver.conductor.image_links import Linker
from mainstem.aeron.driver.conductor.images import Images
from mainstem.aeron.driver.conductor.ipc_publications import IpcPublications
from mainstem.aeron.driver.conductor.network_publications import NetworkPublications
from mainstem.aeron.driver.conductor.publications import Publications
from mainstem.aeron.driver.conductor.rejection import Rejections
from mainstem.aeron.driver.conductor.response_channels import ResponseChannels
from mainstem.aeron.driver.conductor.session_ids import SessionIds
from mainstem.aeron.driver.conductor.stuck_command import StuckCommand
from mainstem.aeron.driver.conductor.subscription_registry import SubscriptionRegistry
from mainstem.aeron.driver.conductor.subscriptions import Subscriptions
from mainstem.aeron.driver.conductor.termination import Termination

if TYPE_CHECKING:
    from collections import deque

    from mainstem.aeron.driver.resources import Resources


class DriverConductor:
    """The agent that clients talk to. ``do_work`` is its duty cycle; ``next_timer_ns`` is when it must run at the latest."""

    role = "driver-conductor"

    def __init__(self, resources: Resources, to_conductor: deque[object], now_ns: int) -> None:
        self._resources = resources
        settings = resources.settings
        registry = SubscriptionRegistry()
        session_ids = SessionIds(
            resources.random,
            reserved_low=settings.publication_reserved_session_id_low,
            reserved_high=settings.publication_reserved_session_id_high,
        )
        linker = Linker(resources)
        self.endpoints = Endpoints(resources)
        self.clients = Clients(
            resources, liveness_timeout_ns=settings.client_liveness_timeout_ns, release=self._release_client
        )
        self.ipc = IpcPublications(resources, session_ids, linker, registry)
        self.network = NetworkPublications(resources, session_ids, linker, registry, self.endpoints)
        self.images = Images(resources, linker, registry, self.endpoints)
        self.response_channels = ResponseChannels(resources, registry, self.ipc, self.network, self.images)
        self.publications = Publications(
            resources, self.clients, linker, self.ipc, self.network, session_ids, self.response_channels
        )
        self.subscriptions = Subscriptions(
            resources, self.clients, linker, registry, self.endpoints, self.ipc, self.network, self.images
        )
        self.client_counters = ClientCounters(resources, self.clients)
        self.termination = Termination(resources)
        destinations = SendDestinations(resources, self.publications, self.endpoints)
        receive_destinations = ReceiveDestinations(resources, registry, self.endpoints, linker, self.ipc, self.network)
        rejections = Rejections(resources, self.ipc, self.images, linker)
        self._commands = CommandReader(
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
                command.TerminateDriver: self.termination.on_terminate,
                command.RejectImage: rejections.reject,
                command.GetNextAvailableSessionId: self.publications.next_session_id,
            },
        )
        self._events = EventReader(
            resources, to_conductor, self.network, self.images, self.endpoints, self.response_channels
        )
        self._stuck_command = StuckCommand(resources, now_ns)
        self._free_limit = settings.driver_resource_free_limit
        self._timer_interval_ns = settings.timer_interval_ns
        self._timer_due_ns = now_ns
        self._now_ns = now_ns

    @property
    def next_timer_ns(self) -> int:
        """When there is something to do at the latest."""
        if self._resources.logs.has_unwanted:
            return self._now_ns
        return min(self._timer_due_ns, self._resources.names.deadline_ns)

    def do_work(self, now_ns: int) -> int:
        """One duty cycle; how much work there was."""
        self._now_ns = now_ns
        work = self._commands.poll(now_ns) + self._events.poll(now_ns) + self._resources.names.do_work(now_ns)
        work += self._resources.logs.free_some(self._free_limit)
        if now_ns >= self._timer_due_ns:
            self._on_timer(now_ns)
            work += 1
        return work

    decide = do_work

    def close(self) -> None:
        """Stores the heartbeat that says "shut down", and lets go of every log's memory; the files go with the directory."""
        self._resources.to_driver.consumer_heartbeat_ms = DRIVER_SHUT_DOWN
        self._resources.names.close()
        self._resources.logs.free_some(sys.maxsize)
        logs = [publication.log for publication in self.ipc.active]
        logs += [publication.log for publication in self.network.active]
        logs += [image.log for image in self.images.active]
        for log in logs:
            self._resources.logs.unmap(log)

    def _on_timer(self, now_ns: int) -> None:
        self._timer_due_ns = now_ns + self._timer_interval_ns
        self._resources.to_driver.consumer_heartbeat_ms = self._resources.clock.epoch_ms()
        self.clients.on_timer()
        self.ipc.on_timer(now_ns)
        self.network.on_timer(now_ns)
        self.images.on_timer(now_ns)
        self._stuck_command.on_timer(now_ns)

    def _release_client(self, client_id: int) -> None:
        self.publications.release_client(client_id, self._now_ns)
        self.subscriptions.release_client(client_id)
        self.client_counters.release_client(client_id)
