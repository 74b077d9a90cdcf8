"""Statistics of Aqueduct's servers and connections."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from mainstem._internal.endpoint_stats import EndpointStats, add_counters, counters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem._internal.endpoint_stats import EndpointCounters
    from mainstem.aqueduct.context import ConnectionCounters
    from mainstem.aqueduct.runner import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class AqueductStats(EndpointStats):
    """The state and counters of an Aqueduct server or connection: those of `EndpointStats` and counters of messages.

    Attributes:
        messages_received: Messages received, except discarded ones.
        messages_discarded: Messages for a receiver that does not exist or has ended.
        ghosts_refused: Control streams refused because their channel half does not exist.
        unreliable_evicted: Unreliable messages dropped because newer ones arrived before the application had taken them.
        unreliable_late: Unreliable messages that arrived after they had been given up.
        unreliable_dropped: Unreliable messages dropped here because there was no room to send them.

    Example:
        >>> server.stats().messages_received
        4096
    """

    messages_received: int
    messages_discarded: int
    ghosts_refused: int
    unreliable_evicted: int
    unreliable_late: int
    unreliable_dropped: int


def connection_stats(
    runners: Iterable[Runner], traffic: EndpointCounters, ended: ConnectionCounters, *, role: str, closed: bool
) -> AqueductStats:
    """Return the statistics of an endpoint; ``ended`` holds the counters of runners that are gone."""
    runners = tuple(runners)
    open_runners = [runner for runner in runners if runner.is_open]
    counts = replace(ended)
    for runner in runners:
        add_counters(counts, runner.engine.context.counts)
    values = counters(traffic) | asdict(counts)
    # The engine counts channel halves, because the runner does not see all of them.
    values["streams_opened"] = values.pop("halves_created")
    return AqueductStats(
        protocol="aqueduct",
        role=role,
        closed=closed,
        connections=len(open_runners),
        streams=sum(runner.engine.live_halves for runner in open_runners),
        unsent_bytes=sum(runner.engine.unacknowledged[1] for runner in open_runners),
        unread_bytes=sum(runner.engine.buffer.size for runner in open_runners),
        **values,
    )
