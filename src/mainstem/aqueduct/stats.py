"""The figures of Aqueduct's servers and connections: what every endpoint has, and what became of messages."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from mainstem._internal.endpoint_stats import EndpointStats, Traffic, counters
from mainstem.aqueduct.connection_state import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem.aqueduct.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class AqueductStats(EndpointStats):
    """What a server or a connection of Aqueduct has at one moment, and what it has counted: `EndpointStats`, and messages.

    Attributes:
        messages_received: Messages that came, discarded ones among them.
        messages_discarded: Messages for a receiver that is not there, or no longer.
        ghosts_refused: Control streams for a channel half that is not there.
        unreliable_evicted: Unreliable messages dropped because newer ones came before the program had taken them.
        unreliable_late: Unreliable messages that came after they had been given up.
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


def add_counts(total: Counts, other: Counts) -> None:
    """Adds every counter of ``other`` to ``total``."""
    for field in fields(Counts):
        setattr(total, field.name, getattr(total, field.name) + getattr(other, field.name))


def session_stats(
    sessions: Iterable[Session], traffic: Traffic, ended: Counts, *, role: str, is_over: bool
) -> AqueductStats:
    """Returns the figures of an endpoint: of its sessions, and in ``ended`` what sessions counted that are gone."""
    sessions = tuple(sessions)
    counts = Counts()
    add_counts(counts, ended)
    for session in sessions:
        add_counts(counts, session.conn.counts)
    open_sessions = [session for session in sessions if session.is_open]
    values = counters(traffic) | {field.name: getattr(counts, field.name) for field in fields(Counts)}
    # A connection counts its channel halves itself, as no session sees them all.
    values["streams_opened"] = values.pop("halves_created")
    return AqueductStats(
        protocol="aqueduct",
        role=role,
        is_over=is_over,
        connections=len(open_sessions),
        streams=sum(session.conn.live_halves for session in open_sessions),
        unsent_bytes=sum(session.conn.unacknowledged[1] for session in open_sessions),
        unread_bytes=sum(session.conn.buffered_bytes for session in open_sessions),
        **values,
    )
