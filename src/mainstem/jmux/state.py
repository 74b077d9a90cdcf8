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


class Half(IntEnum):
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
CLIENT_SENDS: dict[tuple[Half, Input], Half | Rule] = {
    (Half.NONE, Input.OPEN): Half.OPEN,
    (Half.NONE, Input.OPEN_EOF): Half.FINISHED,
    (Half.NONE, Input.DATA): INACTIVE,
    (Half.NONE, Input.EOF): INACTIVE,
    (Half.NONE, Input.CLOSE_EOF): CLOSED_BY_CLIENT,
    (Half.NONE, Input.CLOSE): CLOSED_BY_CLIENT,
    (Half.NONE, Input.ABORT): INACTIVE,
    (Half.NONE, Input.INCREMENT): INACTIVE,
    (Half.NONE, Input.ACKNOWLEDGMENT): INACTIVE,
    (Half.OPEN, Input.OPEN): STILL_OPEN,
    (Half.OPEN, Input.OPEN_EOF): STILL_OPEN,
    (Half.OPEN, Input.DATA): Half.OPEN,
    (Half.OPEN, Input.EOF): Half.FINISHED,
    (Half.OPEN, Input.CLOSE_EOF): CLOSED_BY_CLIENT,
    (Half.OPEN, Input.CLOSE): CLOSED_BY_CLIENT,
    (Half.OPEN, Input.ABORT): Half.TERMINATED,
    (Half.OPEN, Input.INCREMENT): Half.OPEN,
    (Half.OPEN, Input.ACKNOWLEDGMENT): Half.OPEN,
    (Half.FINISHED, Input.OPEN): NOT_TERMINATED,
    (Half.FINISHED, Input.OPEN_EOF): NOT_TERMINATED,
    (Half.FINISHED, Input.DATA): FINISHED_ALREADY,
    (Half.FINISHED, Input.EOF): FINISHED_ALREADY,
    (Half.FINISHED, Input.CLOSE_EOF): CLOSED_BY_CLIENT,
    (Half.FINISHED, Input.CLOSE): CLOSED_BY_CLIENT,
    (Half.FINISHED, Input.ABORT): Half.TERMINATED,
    (Half.FINISHED, Input.INCREMENT): Half.FINISHED,
    (Half.FINISHED, Input.ACKNOWLEDGMENT): Half.FINISHED,
    (Half.TERMINATED, Input.OPEN): NOT_TERMINATED,
    (Half.TERMINATED, Input.OPEN_EOF): NOT_TERMINATED,
    (Half.TERMINATED, Input.DATA): INACTIVE,
    (Half.TERMINATED, Input.EOF): INACTIVE,
    (Half.TERMINATED, Input.CLOSE_EOF): CLOSED_BY_CLIENT,
    (Half.TERMINATED, Input.CLOSE): CLOSED_BY_CLIENT,
    (Half.TERMINATED, Input.ABORT): INACTIVE,
    (Half.TERMINATED, Input.INCREMENT): INACTIVE,
    (Half.TERMINATED, Input.ACKNOWLEDGMENT): INACTIVE,
}

# (server's half, what the server sends) -> the server's half afterwards, or the rule that forbids it.
# The server's half becomes OPEN when the client opens the session.
SERVER_SENDS: dict[tuple[Half, Input], Half | Rule] = {
    (Half.NONE, Input.OPEN): OPENED_BY_SERVER,
    (Half.NONE, Input.OPEN_EOF): OPENED_BY_SERVER,
    (Half.NONE, Input.DATA): INACTIVE,
    (Half.NONE, Input.EOF): INACTIVE,
    (Half.NONE, Input.CLOSE_EOF): INACTIVE,
    (Half.NONE, Input.CLOSE): INACTIVE,
    (Half.NONE, Input.ABORT): INACTIVE,
    (Half.NONE, Input.INCREMENT): INACTIVE,
    (Half.NONE, Input.ACKNOWLEDGMENT): ACKNOWLEDGED_BY_SERVER,
    (Half.OPEN, Input.OPEN): OPENED_BY_SERVER,
    (Half.OPEN, Input.OPEN_EOF): OPENED_BY_SERVER,
    (Half.OPEN, Input.DATA): Half.OPEN,
    (Half.OPEN, Input.EOF): Half.FINISHED,
    (Half.OPEN, Input.CLOSE_EOF): Half.TERMINATED,
    (Half.OPEN, Input.CLOSE): CLOSED_WHILE_OPEN,
    (Half.OPEN, Input.ABORT): Half.TERMINATED,
    (Half.OPEN, Input.INCREMENT): Half.OPEN,
    (Half.OPEN, Input.ACKNOWLEDGMENT): ACKNOWLEDGED_BY_SERVER,
    (Half.FINISHED, Input.OPEN): OPENED_BY_SERVER,
    (Half.FINISHED, Input.OPEN_EOF): OPENED_BY_SERVER,
    (Half.FINISHED, Input.DATA): FINISHED_ALREADY,
    (Half.FINISHED, Input.EOF): FINISHED_ALREADY,
    (Half.FINISHED, Input.CLOSE_EOF): FINISHED_ALREADY,
    (Half.FINISHED, Input.CLOSE): Half.TERMINATED,
    (Half.FINISHED, Input.ABORT): Half.TERMINATED,
    (Half.FINISHED, Input.INCREMENT): Half.FINISHED,
    (Half.FINISHED, Input.ACKNOWLEDGMENT): ACKNOWLEDGED_BY_SERVER,
    (Half.TERMINATED, Input.OPEN): OPENED_BY_SERVER,
    (Half.TERMINATED, Input.OPEN_EOF): OPENED_BY_SERVER,
    (Half.TERMINATED, Input.DATA): INACTIVE,
    (Half.TERMINATED, Input.EOF): INACTIVE,
    (Half.TERMINATED, Input.CLOSE_EOF): INACTIVE,
    (Half.TERMINATED, Input.CLOSE): INACTIVE,
    (Half.TERMINATED, Input.ABORT): INACTIVE,
    (Half.TERMINATED, Input.INCREMENT): INACTIVE,
    (Half.TERMINATED, Input.ACKNOWLEDGMENT): ACKNOWLEDGED_BY_SERVER,
}

# (client's half, server's half): the id may be opened, for the first time or again. A client that finished is terminated
# implicitly by opening the id once the server terminated the session.
MAY_OPEN: frozenset[tuple[Half, Half]] = frozenset(
    {
        (Half.NONE, Half.NONE),
        (Half.FINISHED, Half.TERMINATED),
        (Half.TERMINATED, Half.TERMINATED),
    }
)

# (own half, peer's half) in which a received Abort is still owed an Abort: the peer's is terminated, ours is not.
OWES_ABORT: frozenset[tuple[Half, Half]] = frozenset({(Half.OPEN, Half.TERMINATED), (Half.FINISHED, Half.TERMINATED)})

SENDS = (CLIENT_SENDS, SERVER_SENDS)
# The same by position: NEXT[role][half][input], for the path that runs once a message.
NEXT: tuple[tuple[tuple[Half | Rule, ...], ...], ...] = tuple(
    tuple(tuple(table[half, sent] for sent in Input) for half in Half) for table in SENDS
)


class Acknowledgment(IntEnum):
    """The state of a response's acknowledgment."""

    NOT_REQUESTED = 0
    REQUESTED = 1
    SENT = 2
