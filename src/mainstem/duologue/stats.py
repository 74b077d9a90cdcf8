"""What servers and duologues count."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ServerStats:
    """Counts since the server's start."""

    introductions: int = 0  # streams that arrived on the all-clients channel
    introductions_refused: int = 0  # of them: unwanted before they sent anything, or silent for too long
    hellos: int = 0
    bad_hellos: int = 0  # first messages that were no HELLO, or not encrypted for this server
    hellos_ignored: int = 0  # above the rate of their prefix
    refused_full: int = 0
    refused_address: int = 0
    duologues_opened: int = 0
    duologues_joined: int = 0
    duologues_closed: int = 0
    duologues_evicted: int = 0  # waiting ones that gave way when the server was full
    bad_messages: int = 0
    answers_lost: int = 0  # responses that no client took for 500 ms


@dataclass(frozen=True, slots=True)
class DuologueStats:
    """Counts of one end of a duologue.

    Attributes:
        messages_sent: Messages that the stream accepted.
        bytes_sent: Their bytes.
        messages_received: Messages that arrived.
        bytes_received: Their bytes.
    """

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
