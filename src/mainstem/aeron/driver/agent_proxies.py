"""The commands that the conductor sends to the threads of the sender and the receiver.

The conductor never changes an object that another agent owns. A method of a proxy queues a call instead. The other agent runs the
queued calls in order at the start of its next duty cycle, so an endpoint is registered before its publications are added, and
closed after they are removed. Each command is an ``on_...`` method of the agent, which defines its signature and its meaning.

A command returns nothing. If the conductor needs to know that a command is done, the agent sends it a message
(``conductor_proxy``). An object that a command hands over belongs to the agent until ``EndpointClosed``, ``DestinationClosed``,
``PublicationReleased`` or ``ImageReleased`` gives it back.

Three things are shared without messages: counters and logs, through the atomics of ``_core``; a stream's set of subscriber
positions, which one thread changes and others read; and the positions of compiled paths, which the conductor only reads.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, TypeVar

from mainstem.aeron.driver.receiver.receiver import Receiver
from mainstem.aeron.driver.sender.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Callable

A = TypeVar("A", Sender, Receiver)
P = ParamSpec("P")


class AgentProxy(Generic[A]):
    def __init__(self, agent: A) -> None:
        self._agent: A = agent

    def call(self, handler: Callable[Concatenate[A, P], None], *args: P.args, **kwargs: P.kwargs) -> None:
        self._agent.commands.append(partial(handler, self._agent, *args, **kwargs))


def command(handler: Callable[Concatenate[A, P], None]) -> Callable[Concatenate[AgentProxy[A], P], None]:
    @wraps(handler)
    def queue(proxy: AgentProxy[A], /, *args: P.args, **kwargs: P.kwargs) -> None:
        proxy.call(handler, *args, **kwargs)

    return queue


class SenderProxy(AgentProxy[Sender]):
    register_endpoint = command(Sender.on_register_endpoint)
    close_endpoint = command(Sender.on_close_endpoint)
    add_publication = command(Sender.on_add_publication)
    remove_publication = command(Sender.on_remove_publication)
    drain_publication = command(Sender.on_drain_publication)
    end_publication = command(Sender.on_end_publication)
    revoke_publication = command(Sender.on_revoke_publication)
    add_destination = command(Sender.on_add_destination)
    add_unresolved_destination = command(Sender.on_add_unresolved_destination)
    remove_destination = command(Sender.on_remove_destination)
    remove_destination_by_id = command(Sender.on_remove_destination_by_id)
    resolution_change = command(Sender.on_resolution_change)


class ReceiverProxy(AgentProxy[Receiver]):
    register_endpoint = command(Receiver.on_register_endpoint)
    close_endpoint = command(Receiver.on_close_endpoint)
    add_subscription = command(Receiver.on_add_subscription)
    remove_subscription = command(Receiver.on_remove_subscription)
    request_setup = command(Receiver.on_request_setup)
    add_image = command(Receiver.on_add_image)
    refuse_image = command(Receiver.on_refuse_image)
    remove_image = command(Receiver.on_remove_image)
    drain_image = command(Receiver.on_drain_image)
    revive_image = command(Receiver.on_revive_image)
    reject_image = command(Receiver.on_reject_image)
    set_response_session = command(Receiver.on_set_response_session)
    add_destination = command(Receiver.on_add_destination)
    remove_destination = command(Receiver.on_remove_destination)
    resolution_change = command(Receiver.on_resolution_change)
