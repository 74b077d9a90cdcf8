"""Statistics of Aqueduct's servers and connections."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from mainstem._internal.endpoint_stats import EndpointStats, add_counters, counters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem._internal.endpoint_stats import EndpointCounters
    from mainstem.aqueduct.context import ConnectionCounters
    from mainstem.aqueduct.protocol import AqueductProtocol


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
    protocols: Iterable[AqueductProtocol],
    traffic: EndpointCounters,
    ended: ConnectionCounters,
    *,
    role: str,
    closed: bool,
) -> AqueductStats:
    """Return the statistics of an endpoint; ``ended`` holds the counters of connections that are gone."""
    protocols = tuple(protocols)
    open_protocols = [protocol for protocol in protocols if protocol.is_open]
    counts = replace(ended)
    for protocol in protocols:
        add_counters(counts, protocol.engine.context.counts)
    values = counters(traffic) | asdict(counts)
    # The engine counts channel halves, because the `AqueductProtocol` does not see all of them.
    values["streams_opened"] = values.pop("halves_created")
    return AqueductStats(
        protocol="aqueduct",
        role=role,
        closed=closed,
        connections=len(open_protocols),
        streams=sum(protocol.engine.live_halves for protocol in open_protocols),
        unsent_bytes=sum(protocol.engine.unacknowledged[1] for protocol in open_protocols),
        unread_bytes=sum(protocol.engine.buffer.size for protocol in open_protocols),
        **values,
    )
