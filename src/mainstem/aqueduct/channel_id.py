"""Channel ids: 64 bits of direction, minter, oneshot or not, and index.

Bit 0: 0 flows to the server, 1 to the client. Bit 1: 0 minted by the client, 1 by the server. Bit 2: 1 for a oneshot.
The other 61 bits are the index. An id is an ``int`` everywhere: on the wire, in tables and in events.
"""

from __future__ import annotations

from mainstem.errors import LocalProtocolError

ENTRYPOINT = 0
"""The entrypoint channel: from the client to the server, not minted, there from the start."""

TO_CLIENT = 1
MINTED_BY_SERVER = 2
ONESHOT = 4
SPACE_MASK = 7
INDEX_SHIFT = 3
MAX_INDEX = (1 << 61) - 1


def make_channel_id(index: int, *, to_client: bool, minted_by_server: bool, oneshot: bool = False) -> int:
    """Make a channel id. Raises LocalProtocolError for an index outside 61 bits."""
    if not 0 <= index <= MAX_INDEX:
        raise LocalProtocolError(f"channel index {index} is outside 0..2**61-1", rule="channel index")
    return index << INDEX_SHIFT | to_client | minted_by_server << 1 | oneshot << 2


def describe(channel_id: int) -> str:
    """An id for people: ``to-server/client-minted/oneshot#12``."""
    if channel_id == ENTRYPOINT:
        return "entrypoint"
    direction = "to-client" if channel_id & TO_CLIENT else "to-server"
    minter = "server-minted" if channel_id & MINTED_BY_SERVER else "client-minted"
    kind = "/oneshot" if channel_id & ONESHOT else ""
    return f"{direction}/{minter}{kind}#{channel_id >> INDEX_SHIFT}"


class Minter:
    """Mints this side's channel ids, sequentially in each of its four index spaces."""

    def __init__(self, *, is_client: bool) -> None:
        self._base = 0 if is_client else MINTED_BY_SERVER
        self._flows_out = 0 if is_client else TO_CLIENT
        # The entrypoint has used the first index of the client's own outgoing space.
        self._next = dict.fromkeys(range(SPACE_MASK + 1), 0)
        if is_client:
            self._next[ENTRYPOINT] = 1

    def mint(self, *, outgoing: bool, oneshot: bool) -> int:
        """A new id: ``outgoing`` for a channel whose sender stays here."""
        space = (
            self._base | (self._flows_out if outgoing else self._flows_out ^ TO_CLIENT) | (ONESHOT if oneshot else 0)
        )
        index = self._next[space]
        self._next[space] = index + 1
        return index << INDEX_SHIFT | space
