"""Jmux's rules about sessions, as tables.

A session has a client's half and a server's half. The messages that an endpoint may send depend on its own half; whether an id
may be opened again depends on both. The same tables serve before sending (they give the rule that forbids a message here) and on
receipt (they give the rule that the peer broke).
"""

from __future__ import annotations

from enum import IntEnum

from mainstem.mux.engine import Rule


class Role(IntEnum):
    """One of the two ends of a connection."""

    CLIENT = 0
    SERVER = 1


class HalfState(IntEnum):
    """The state of one endpoint's half of a session: not established, sending, finished sending, or terminated."""

    NONE = 0
    OPEN = 1
    FINISHED = 2
    TERMINATED = 3


class Input(IntEnum):
    """The messages about a session that matter for its state."""

    OPEN = 0
    OPEN_EOF = 1
    DATA = 2
    EOF = 3
    CLOSE_EOF = 4
    CLOSE = 5
    ABORT = 6
    INCREMENT = 7
    ACKNOWLEDGMENT = 8


INACTIVE = Rule("inactive-session")
STILL_OPEN = Rule("open-on-open-session")
NOT_TERMINATED = Rule("open-before-previous-session-terminated")
FINISHED_ALREADY = Rule("data-on-finished-session")
CLOSED_WHILE_OPEN = Rule("close-on-open-session")
CLOSED_BY_CLIENT = Rule("close-sent-by-client")
OPENED_BY_SERVER = Rule("open-sent-by-server")
ACKNOWLEDGED_BY_SERVER = Rule("acknowledgment-sent-by-server")

NONE, OPEN, FINISHED, TERMINATED = HalfState

# For each message that an endpoint sends, its half afterward, or the rule that forbids the message, by its half before: NONE,
# OPEN, FINISHED, TERMINATED.
CLIENT_ROWS: dict[Input, tuple[HalfState | Rule, ...]] = {
    Input.OPEN: (OPEN, STILL_OPEN, NOT_TERMINATED, NOT_TERMINATED),
    Input.OPEN_EOF: (FINISHED, STILL_OPEN, NOT_TERMINATED, NOT_TERMINATED),
    Input.DATA: (INACTIVE, OPEN, FINISHED_ALREADY, INACTIVE),
    Input.EOF: (INACTIVE, FINISHED, FINISHED_ALREADY, INACTIVE),
    Input.CLOSE_EOF: (CLOSED_BY_CLIENT,) * 4,
    Input.CLOSE: (CLOSED_BY_CLIENT,) * 4,
    Input.ABORT: (INACTIVE, TERMINATED, TERMINATED, INACTIVE),
    Input.INCREMENT: (INACTIVE, OPEN, FINISHED, INACTIVE),
    Input.ACKNOWLEDGMENT: (INACTIVE, OPEN, FINISHED, INACTIVE),
}
# The server's half becomes OPEN when the client opens the session.
SERVER_ROWS: dict[Input, tuple[HalfState | Rule, ...]] = {
    Input.OPEN: (OPENED_BY_SERVER,) * 4,
    Input.OPEN_EOF: (OPENED_BY_SERVER,) * 4,
    Input.DATA: (INACTIVE, OPEN, FINISHED_ALREADY, INACTIVE),
    Input.EOF: (INACTIVE, FINISHED, FINISHED_ALREADY, INACTIVE),
    Input.CLOSE_EOF: (INACTIVE, TERMINATED, FINISHED_ALREADY, INACTIVE),
    Input.CLOSE: (INACTIVE, CLOSED_WHILE_OPEN, TERMINATED, INACTIVE),
    Input.ABORT: (INACTIVE, TERMINATED, TERMINATED, INACTIVE),
    Input.INCREMENT: (INACTIVE, OPEN, FINISHED, INACTIVE),
    Input.ACKNOWLEDGMENT: (ACKNOWLEDGED_BY_SERVER,) * 4,
}

# The same tables indexed by position, NEXT[role][half][input], for the code that runs for every message.
NEXT: tuple[tuple[tuple[HalfState | Rule, ...], ...], ...] = tuple(
    tuple(tuple(rows[sent][half] for sent in Input) for half in HalfState) for rows in (CLIENT_ROWS, SERVER_ROWS)
)

# The pairs (client's half, server's half) in which the id may be opened, for the first time or again. If a client has finished and
# the server has terminated the session, opening the id terminates the client's half implicitly.
MAY_OPEN: frozenset[tuple[HalfState, HalfState]] = frozenset(
    {(NONE, NONE), (FINISHED, TERMINATED), (TERMINATED, TERMINATED)}
)


class Acknowledgment(IntEnum):
    """The state of a response's acknowledgment."""

    NOT_REQUESTED = 0
    REQUESTED = 1
    SENT = 2
