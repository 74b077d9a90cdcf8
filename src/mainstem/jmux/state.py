"""The rules of Jmux about sessions, as tables.

A session has a client's half and a server's half. What an endpoint may send depends on its own half; whether an id may be
opened again depends on the pair. The same tables serve before sending (the rule that forbids a message here) and when
receiving (the rule that the peer broke).
"""

from __future__ import annotations

from enum import IntEnum

from mainstem.mux.engine import Rule


class Role(IntEnum):
    """Which end of the connection."""

    CLIENT = 0
    SERVER = 1


class HalfState(IntEnum):
    """One endpoint's half of a session: not established, established and sending, finished sending, or terminated."""

    NONE = 0
    OPEN = 1
    FINISHED = 2
    TERMINATED = 3


class Input(IntEnum):
    """What an endpoint sends about a session, as far as the state is concerned."""

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

# (client's half, what the client sends) -> the client's half afterwards, or the rule that forbids it.
CLIENT_SENDS: dict[tuple[HalfState, Input], HalfState | Rule] = {
    (HalfState.NONE, Input.OPEN): HalfState.OPEN,
    (HalfState.NONE, Input.OPEN_EOF): HalfState.FINISHED,
    (HalfState.NONE, Input.DATA): INACTIVE,
    (HalfState.NONE, Input.EOF): INACTIVE,
    (HalfState.NONE, Input.CLOSE_EOF): CLOSED_BY_CLIENT,
    (HalfState.NONE, Input.CLOSE): CLOSED_BY_CLIENT,
    (HalfState.NONE, Input.ABORT): INACTIVE,
    (HalfState.NONE, Input.INCREMENT): INACTIVE,
    (HalfState.NONE, Input.ACKNOWLEDGMENT): INACTIVE,
    (HalfState.OPEN, Input.OPEN): STILL_OPEN,
    (HalfState.OPEN, Input.OPEN_EOF): STILL_OPEN,
    (HalfState.OPEN, Input.DATA): HalfState.OPEN,
    (HalfState.OPEN, Input.EOF): HalfState.FINISHED,
    (HalfState.OPEN, Input.CLOSE_EOF): CLOSED_BY_CLIENT,
    (HalfState.OPEN, Input.CLOSE): CLOSED_BY_CLIENT,
    (HalfState.OPEN, Input.ABORT): HalfState.TERMINATED,
    (HalfState.OPEN, Input.INCREMENT): HalfState.OPEN,
    (HalfState.OPEN, Input.ACKNOWLEDGMENT): HalfState.OPEN,
    (HalfState.FINISHED, Input.OPEN): NOT_TERMINATED,
    (HalfState.FINISHED, Input.OPEN_EOF): NOT_TERMINATED,
    (HalfState.FINISHED, Input.DATA): FINISHED_ALREADY,
    (HalfState.FINISHED, Input.EOF): FINISHED_ALREADY,
    (HalfState.FINISHED, Input.CLOSE_EOF): CLOSED_BY_CLIENT,
    (HalfState.FINISHED, Input.CLOSE): CLOSED_BY_CLIENT,
    (HalfState.FINISHED, Input.ABORT): HalfState.TERMINATED,
    (HalfState.FINISHED, Input.INCREMENT): HalfState.FINISHED,
    (HalfState.FINISHED, Input.ACKNOWLEDGMENT): HalfState.FINISHED,
    (HalfState.TERMINATED, Input.OPEN): NOT_TERMINATED,
    (HalfState.TERMINATED, Input.OPEN_EOF): NOT_TERMINATED,
    (HalfState.TERMINATED, Input.DATA): INACTIVE,
    (HalfState.TERMINATED, Input.EOF): INACTIVE,
    (HalfState.TERMINATED, Input.CLOSE_EOF): CLOSED_BY_CLIENT,
    (HalfState.TERMINATED, Input.CLOSE): CLOSED_BY_CLIENT,
    (HalfState.TERMINATED, Input.ABORT): INACTIVE,
    (HalfState.TERMINATED, Input.INCREMENT): INACTIVE,
    (HalfState.TERMINATED, Input.ACKNOWLEDGMENT): INACTIVE,
}

# (server's half, what the server sends) -> the server's half afterwards, or the rule that forbids it.
# The server's half becomes OPEN when the client opens the session.
SERVER_SENDS: dict[tuple[HalfState, Input], HalfState | Rule] = {
    (HalfState.NONE, Input.OPEN): OPENED_BY_SERVER,
    (HalfState.NONE, Input.OPEN_EOF): OPENED_BY_SERVER,
    (HalfState.NONE, Input.DATA): INACTIVE,
    (HalfState.NONE, Input.EOF): INACTIVE,
    (HalfState.NONE, Input.CLOSE_EOF): INACTIVE,
    (HalfState.NONE, Input.CLOSE): INACTIVE,
    (HalfState.NONE, Input.ABORT): INACTIVE,
    (HalfState.NONE, Input.INCREMENT): INACTIVE,
    (HalfState.NONE, Input.ACKNOWLEDGMENT): ACKNOWLEDGED_BY_SERVER,
    (HalfState.OPEN, Input.OPEN): OPENED_BY_SERVER,
    (HalfState.OPEN, Input.OPEN_EOF): OPENED_BY_SERVER,
    (HalfState.OPEN, Input.DATA): HalfState.OPEN,
    (HalfState.OPEN, Input.EOF): HalfState.FINISHED,
    (HalfState.OPEN, Input.CLOSE_EOF): HalfState.TERMINATED,
    (HalfState.OPEN, Input.CLOSE): CLOSED_WHILE_OPEN,
    (HalfState.OPEN, Input.ABORT): HalfState.TERMINATED,
    (HalfState.OPEN, Input.INCREMENT): HalfState.OPEN,
    (HalfState.OPEN, Input.ACKNOWLEDGMENT): ACKNOWLEDGED_BY_SERVER,
    (HalfState.FINISHED, Input.OPEN): OPENED_BY_SERVER,
    (HalfState.FINISHED, Input.OPEN_EOF): OPENED_BY_SERVER,
    (HalfState.FINISHED, Input.DATA): FINISHED_ALREADY,
    (HalfState.FINISHED, Input.EOF): FINISHED_ALREADY,
    (HalfState.FINISHED, Input.CLOSE_EOF): FINISHED_ALREADY,
    (HalfState.FINISHED, Input.CLOSE): HalfState.TERMINATED,
    (HalfState.FINISHED, Input.ABORT): HalfState.TERMINATED,
    (HalfState.FINISHED, Input.INCREMENT): HalfState.FINISHED,
    (HalfState.FINISHED, Input.ACKNOWLEDGMENT): ACKNOWLEDGED_BY_SERVER,
    (HalfState.TERMINATED, Input.OPEN): OPENED_BY_SERVER,
    (HalfState.TERMINATED, Input.OPEN_EOF): OPENED_BY_SERVER,
    (HalfState.TERMINATED, Input.DATA): INACTIVE,
    (HalfState.TERMINATED, Input.EOF): INACTIVE,
    (HalfState.TERMINATED, Input.CLOSE_EOF): INACTIVE,
    (HalfState.TERMINATED, Input.CLOSE): INACTIVE,
    (HalfState.TERMINATED, Input.ABORT): INACTIVE,
    (HalfState.TERMINATED, Input.INCREMENT): INACTIVE,
    (HalfState.TERMINATED, Input.ACKNOWLEDGMENT): ACKNOWLEDGED_BY_SERVER,
}

# (client's half, server's half): the id may be opened, for the first time or again. A client that finished is terminated
# implicitly by opening the id once the server terminated the session.
MAY_OPEN: frozenset[tuple[HalfState, HalfState]] = frozenset(
    {
        (HalfState.NONE, HalfState.NONE),
        (HalfState.FINISHED, HalfState.TERMINATED),
        (HalfState.TERMINATED, HalfState.TERMINATED),
    }
)

# (own half, peer's half) in which a received Abort is still owed an Abort: the peer's is terminated, ours is not.
OWES_ABORT: frozenset[tuple[HalfState, HalfState]] = frozenset(
    {(HalfState.OPEN, HalfState.TERMINATED), (HalfState.FINISHED, HalfState.TERMINATED)}
)

SENDS = (CLIENT_SENDS, SERVER_SENDS)
# The same by position: NEXT[role][half][input], for the path that runs once a message.
NEXT: tuple[tuple[tuple[HalfState | Rule, ...], ...], ...] = tuple(
    tuple(tuple(table[half, sent] for sent in Input) for half in HalfState) for table in SENDS
)


class Acknowledgment(IntEnum):
    """The state of a response's acknowledgment."""

    NOT_REQUESTED = 0
    REQUESTED = 1
    SENT = 2
