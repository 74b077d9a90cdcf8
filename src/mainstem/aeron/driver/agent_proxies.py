"""The sender and the receiver as the conductor sees them: every command that crosses to another agent's thread.

The conductor never changes what the sender or the receiver owns. It calls a method of a proxy; the call is queued with its
arguments and run at the beginning of the other agent's next duty cycle. Each command is one method of that agent, named
``on_...``, and one line here; its signature and its meaning are the method's.

Commands of one agent are run in the order in which they were queued, so that an endpoint is registered before its publications
are added and closed after they were removed. Nothing is returned: where the conductor must know that a command was carried
out, the agent sends a message (``conductor_proxy``). What a command hands over (an endpoint, a publication's or an image's part in
the agent) belongs to the agent from then on, until such a message gives it back: ``EndpointClosed``,
``DestinationClosed``, ``PublicationReleased``, ``ImageReleased``.

Three things are shared without messages, because they were made for it: the counters and the logs, whose words are written
with the orderings of ``_core``'s atomics; a stream's set of subscriber positions, which one thread changes and others read; and
positions of compiled paths, which the conductor reads and never writes.
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
    """An agent as other threads see it."""

    def __init__(self, agent: A) -> None:
        self._agent: A = agent

    def call(self, handler: Callable[Concatenate[A, P], None], *args: P.args, **kwargs: P.kwargs) -> None:
        self._agent.commands.append(partial(handler, self._agent, *args, **kwargs))


def command(handler: Callable[Concatenate[A, P], None]) -> Callable[Concatenate[AgentProxy[A], P], None]:
    """Return a method of a proxy that queues ``handler``, a method of the agent."""

    @wraps(handler)
    def queue(proxy: AgentProxy[A], /, *args: P.args, **kwargs: P.kwargs) -> None:
        proxy.call(handler, *args, **kwargs)

    return queue


class SenderProxy(AgentProxy[Sender]):
    """The commands to the sender."""

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
    """The commands to the receiver."""

    register_endpoint = command(Receiver.on_register_endpoint)
    close_endpoint = command(Receiver.on_close_endpoint)
    add_subscription = command(Receiver.on_add_subscription)
    remove_subscription = command(Receiver.on_remove_subscription)
    request_setup = command(Receiver.on_request_setup)
    add_image = command(Receiver.on_add_image)
    refuse_image = command(Receiver.on_refuse_image)
    remove_image = command(Receiver.on_remove_image)
    drain_image = command(Receiver.on_drain_image)
    reject_image = command(Receiver.on_reject_image)
    set_response_session = command(Receiver.on_set_response_session)
    add_destination = command(Receiver.on_add_destination)
    remove_destination = command(Receiver.on_remove_destination)
    resolution_change = command(Receiver.on_resolution_change)
