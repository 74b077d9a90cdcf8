"""Statistics of servers and duologues."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ServerStats:
    """Counts since the server started.

    Attributes:
        handshakes: Streams that arrived on the all-clients channel.
        handshakes_refused: Streams that were refused, or that sent nothing for ``handshake_timeout``.
        hellos: Requests that arrived.
        bad_hellos: Requests that were not a valid HELLO, or not encrypted for this server.
        hellos_ignored: Requests above ``hello_rate``.
        refused_full: Requests refused because ``max_clients`` duologues were open.
        refused_address: Requests refused because their address had ``max_clients_per_address`` duologues.
        duologues_opened: Duologues offered to a client.
        duologues_joined: Duologues that their client joined.
        duologues_closed: Duologues that have ended.
        duologues_evicted: Duologues that no client had joined and that a full server ended to make space.
        bad_messages: Messages that a handler refused, or that were too long.
        responses_lost: Responses on the all-clients channel that no client accepted for 500 ms.
    """

    handshakes: int = 0
    handshakes_refused: int = 0
    hellos: int = 0
    bad_hellos: int = 0
    hellos_ignored: int = 0
    refused_full: int = 0
    refused_address: int = 0
    duologues_opened: int = 0
    duologues_joined: int = 0
    duologues_closed: int = 0
    duologues_evicted: int = 0
    bad_messages: int = 0
    responses_lost: int = 0


@dataclass(frozen=True, slots=True)
class DuologueStats:
    """Counts for one end of a duologue.

    Attributes:
        messages_sent: Messages that the stream accepted.
        bytes_sent: The bytes of these messages.
        messages_received: Messages that arrived.
        bytes_received: The bytes of these messages.
    """

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
