"""The halves of a connection's channels: where they are kept, their ids, and the changes of their states.

``senders`` and ``receivers`` hold the live halves by channel id. ``drained`` holds receivers that have ended on the wire but still
have something for the application. Three lists hold halves that something must happen to: ``lost`` and ``dropped`` are the work
lists of `Loss`, and ``awaiting_control`` waits for the transport to open control streams. So does ``early``, the halves that are
not obtainable yet, oldest first.

Two filters store ids that the peer minted: those that have been attached to a message (allowed only once), and those whose half
has ended here (late frames for them are dropped instead of creating ghost receivers).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from mainstem._core.aqueduct.ranges import RangeSet
from mainstem._core.aqueduct.run_writer import integer_frame
from mainstem.aqueduct.frames import (
    ENTRYPOINT,
    INDEX_SHIFT,
    MESSAGE,
    MINTED_BY_SERVER,
    ONESHOT,
    SPACE_MASK,
    TO_CLIENT,
    describe,
    protocol_error,
)
from mainstem.aqueduct.halves import ReceiverHalf, SenderHalf
from mainstem.aqueduct.state import TABLE

if TYPE_CHECKING:
    from mainstem._core.aqueduct.run_writer import MessageWriter
    from mainstem.aqueduct.context import Context
    from mainstem.aqueduct.halves import Half


class IdFilter:
    """Channel ids as exact sets of ranges, one for each index space.

    It is limited in size. Forgetting an old range costs only one round trip for a ghost receiver.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._spaces: dict[int, RangeSet] = {}

    def add(self, channel_id: int) -> bool:
        """Add an id; return False if it was there already."""
        ranges = self._spaces.get(channel_id & SPACE_MASK)
        if ranges is None:
            ranges = self._spaces[channel_id & SPACE_MASK] = RangeSet()
        added = ranges.add(channel_id >> INDEX_SHIFT)
        if len(ranges) > self._context.limits.max_filter_ranges:
            ranges.drop_oldest()
        return added

    def __len__(self) -> int:
        """The number of ranges."""
        return sum(map(len, self._spaces.values()))

    def __contains__(self, channel_id: int) -> bool:
        ranges = self._spaces.get(channel_id & SPACE_MASK)
        return ranges is not None and channel_id >> INDEX_SHIFT in ranges


class ChannelTable:
    def __init__(self, context: Context, writer: MessageWriter) -> None:
        self._context = context
        self._is_client = context.is_client
        self.senders: dict[int, SenderHalf] = {}
        self.receivers: dict[int, ReceiverHalf] = {}
        # Receivers that have ended on the wire, and that the application has not read to the end or not received yet.
        self.drained: dict[int, ReceiverHalf] = {}
        self.lost: list[Half] = []
        self.dropped: list[tuple[Half, bool]] = []
        self.awaiting_control: deque[Half] = deque()
        self.early: OrderedDict[Half, None] = OrderedDict()
        self._next_index = dict.fromkeys(range(SPACE_MASK + 1), 0)
        self.closed_ids = IdFilter(context)
        self.attached_ids = IdFilter(context)
        self.entrypoint: Half
        if self._is_client:
            # The entrypoint has used the first index of the client's own outgoing space.
            self._next_index[ENTRYPOINT] = 1
            context.counts.halves_created = 1
            self.entrypoint = self.senders[ENTRYPOINT] = SenderHalf(
                writer, ENTRYPOINT, context.limits, minted_here=True
            )
        else:
            self.entrypoint = self.receivers[ENTRYPOINT] = self.make_receiver(
                ENTRYPOINT, minted_here=False, handed_over=True, obtainable=True
            )

    # Channel ids.

    def mint(self, *, outgoing: bool, oneshot: bool) -> int:
        """Mint the next channel id of an index space; ``outgoing`` means that the channel's sender stays here."""
        space = (0 if self._is_client else MINTED_BY_SERVER) | (ONESHOT if oneshot else 0)
        if outgoing != self._is_client:
            space |= TO_CLIENT
        index = self._next_index[space]
        self._next_index[space] = index + 1
        return index << INDEX_SHIFT | space

    def is_minted_here(self, channel_id: int) -> bool:
        return bool(channel_id & MINTED_BY_SERVER) != self._is_client

    def flows_here(self, channel_id: int) -> bool:
        return bool(channel_id & TO_CLIENT) == self._is_client

    # Halves. A half that the peer minted is reachable, and this side opens its control stream.

    def make_receiver(self, channel_id: int, *, minted_here: bool, handed_over: bool, obtainable: bool) -> ReceiverHalf:
        prefix, oneshot = integer_frame(MESSAGE, channel_id), bool(channel_id & ONESHOT)
        return ReceiverHalf(channel_id, minted_here, not minted_here, oneshot, prefix, handed_over, obtainable)

    @property
    def live(self) -> int:
        return len(self.senders) + len(self.receivers) + len(self.drained)

    def check_count(self) -> None:
        limit = self._context.limits.max_channels
        if len(self.senders) + len(self.receivers) + len(self.drained) >= limit:
            raise protocol_error("channel limit", f"more than {limit} channels at once")

    def move(self, half: Half, happened: Any) -> None:
        """Change a half's state. An impossible transition raises KeyError instead of leading to a wrong state."""
        old = half.state
        half.state = TABLE[old, happened]
        if isinstance(half, SenderHalf):
            half.close_fast_path()
        if self._context.is_observed and half.state is not old:
            subject = f"{'sender' if half.is_sender else 'receiver'} {describe(half.channel_id)}"
            self._context.changed_state(subject, old.name, half.state.name)

    def forget(self) -> None:
        """Forget every live half. Receivers that the application can still read to their end stay."""
        for table in (self.senders, self.receivers, self.lost, self.dropped, self.awaiting_control, self.early):
            table.clear()
