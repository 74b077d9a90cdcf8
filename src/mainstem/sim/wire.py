"""Invariants of the datagrams of a stream, as seen from the network: windows, NAKs and retransmissions, heartbeats.

Messages arrive complete and in order even if a driver is wasteful or late, because the next NAK or status message makes up for a
missing one. So a ``WireChecker`` sees each frame as it is sent and as it arrives, and checks the obligations of both ends
(docs/protocols/aeron.md, 14 to 17):

- A sender sends no byte beyond the limit of the status messages it has received.
- A sender responds to a NAK in its next duty cycle with everything that is missing, unless it has retransmitted those bytes
  within the linger time. If its pool of retransmissions is full or its rate is used up, it may refuse.
- A sender with a receiver is never silent for longer than its heartbeat interval.
- A receiver's status message names a position up to which everything has arrived, offers exactly its window, and comes at least
  once per status interval as long as the image lives.

A sender that has ended has no obligations: the checker reports missed ones when the sender sends its next frame.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem._internal.clock import NS_PER_MS
from mainstem.sim.checkers import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.driver.media.addresses import InetAddress


# -- the cost of repairing loss ----------------------------------------------------------------------------------------
#
# A driver that is wasteful or late still delivers every message, because the next NAK repairs what one NAK misses. So these are
# limits on the totals of a run. They were calibrated over 300 seeds of each of fifteen scenarios whose streams cross a network;
# the worst run of correct code is noted beside each limit. A ratio with fewer than ``MIN_SAMPLES`` samples is not checked.


MIN_SAMPLES = 50
MAX_NAKS_PER_LOSS = 60.0  # worst 23.6, median 3.0
MAX_RESENT_PER_LOST = 40.0  # worst 16.0, median 3.0
MAX_STATUS = 8.0  # worst 3.2, median 0.9
MAX_IGNORED_SHARE = 0.005  # worst 0
MAX_REPAIR_ROUND_TRIPS = 200.0  # worst 82.4, with a sleeping subscriber; median 1.4
# The time of a repair in addition to the round trip: a sender's linger time, and steps of time.
REPAIR_OVERHEAD_NS = 15 * NS_PER_MS


@dataclass
class Efficiency:
    """Totals of a run."""

    lost: int = 0  # data datagrams that the network lost
    lost_bytes: int = 0
    resent_bytes: int = 0  # retransmitted by senders
    naks: int = 0  # sent by receivers
    status: int = 0  # status messages sent by receivers
    status_due: float = 0.0  # status messages due by time and by data received: four per window
    judged: int = 0  # NAKs that a sender had to serve
    ignored: int = 0  # NAKs among them that it did not serve
    round_trip_ns: int = 0  # the longest between two hosts
    repairs_ns: list[int] = field(default_factory=list, repr=False)  # until each lost datagram was received again
    _open: dict[tuple[object, ...], int] = field(default_factory=dict, repr=False)

    def on_lost(self, key: tuple[object, ...], length: int, now_ns: int) -> None:
        self.lost += 1
        self.lost_bytes += length
        self._open.setdefault(key, now_ns)

    def on_arrived(self, key: tuple[object, ...], now_ns: int) -> None:
        lost_ns = self._open.pop(key, None) if self._open else None
        if lost_ns is not None:
            self.repairs_ns.append(now_ns - lost_ns)

    @property
    def ratios(self) -> dict[str, tuple[float, float, int]]:
        """Each ratio by name, with its limit and number of samples."""
        trip_ns = self.round_trip_ns + REPAIR_OVERHEAD_NS
        return {
            "NAKs per lost datagram": (self.naks / max(1, self.lost), MAX_NAKS_PER_LOSS, self.lost),
            "bytes retransmitted per byte lost": (
                self.resent_bytes / max(1, self.lost_bytes),
                MAX_RESENT_PER_LOST,
                self.lost,
            ),
            "status messages per one due": (self.status / max(1.0, self.status_due), MAX_STATUS, self.status),
            "share of NAKs ignored": (self.ignored / max(1, self.judged), MAX_IGNORED_SHARE, self.judged),
            "median round trips until a loss is repaired": (
                statistics.median(self.repairs_ns or [0]) / trip_ns,
                MAX_REPAIR_ROUND_TRIPS,
                len(self.repairs_ns),
            ),
        }

    def finish(self) -> None:
        """Check the totals at the end of a run. Raises Violation if a ratio exceeds its limit."""
        for name, (ratio, bound, count) in self.ratios.items():
            if count >= MIN_SAMPLES and ratio > bound:
                raise Violation(f"{name}: {ratio:.3g}, limit {bound:g} ({count} samples)")


# -- the wire -----------------------------------------------------------------------------------------------------------

# The default settings, which no scenario changes.
HEARTBEAT_INTERVAL_NS = 100 * NS_PER_MS
STATUS_INTERVAL_NS = 200 * NS_PER_MS
LINGER_NS = 10 * NS_PER_MS
STATUS_PER_WINDOW = 4  # one for each consumed quarter of the window
INITIAL_WINDOW_LENGTH = 128 * 1024
# The tolerance for anything that is due: twice the longest step of time.
SLACK_NS = 15 * NS_PER_MS
# A sender that has data to send reads incoming datagrams in every sixth duty cycle. The next pump sees what it sends then.
PUMPS_TO_RESPOND = 8
# The distance behind the sender within which it serves a NAK, and the maximum number of windows that it serves at once.
MAX_MESSAGE_LENGTH = 16 << 20
WINDOW_MULTIPLE = 4

_HEADER = Struct("<iBBHiiii")  # length, version, flags, type, term offset, session, stream, term id
_FRAME = Struct("<i2xH")  # length, type
# The header with session and stream, then initial term id, active term id, term length, MTU and TTL.
_SETUP = Struct("<iBBHiiiiiiii")
_NAK = Struct("<iBBHiiiii")  # session, stream, term id, term offset, length
_STATUS = Struct("<iBBHiiiii")  # session, stream, term id, term offset, window


@dataclass(slots=True)
class _Request:
    """A NAK that has arrived at a sender, and the retransmissions since."""

    position: int
    end: int
    arrived_ns: int
    by_pump: int
    overflows: int
    is_responded_before: bool
    responses: list[tuple[int, int]] = field(default_factory=list)

    def is_served(self) -> bool:
        reached = self.position
        for start, end in sorted(self.responses):
            if start <= reached:
                reached = max(reached, end)
        return self.is_responded_before or reached >= self.end


@dataclass(slots=True)
class _Log:
    initial_term_id: int
    term_length: int

    def position(self, term_id: int, offset: int) -> int:
        return ((term_id - self.initial_term_id) & 0xFFFFFFFF) * self.term_length + offset


@dataclass(slots=True)
class _Sender(_Log):
    """The state of a stream at the socket that sends it."""

    name: str
    sent_to: int
    edge: int = -1
    last_send_ns: int = -1
    requests: list[_Request] = field(default_factory=list)
    asked: dict[tuple[int, int], int] = field(default_factory=dict)  # ranges, with their latest request
    frame_ends: dict[int, int] = field(default_factory=dict)
    reached: dict[InetAddress, int] = field(default_factory=dict)  # positions sent so far, by destination

    def whole_end(self, position: int, end: int) -> int:
        """Return the end of the last frame that lies entirely in ``[position, end)``."""
        while (after := self.frame_ends.get(position, end + 1)) <= end:
            position = after
        return position

    def is_in_reach(self, position: int) -> bool:
        reach = self.term_length // 2 + min(self.term_length // 8, MAX_MESSAGE_LENGTH)
        return self.sent_to - reach <= position < self.sent_to


@dataclass(slots=True)
class _Receiver(_Log):
    """What has arrived of a stream at a host."""

    arrived_to: int = 0
    last_status_ns: int = -1


class WireChecker:
    """Checks that senders and receivers meet their obligations. Raises ``Violation`` if one does not.

    ``overflows`` returns the number of NAKs that the driver at an address has refused.
    """

    # Whether a single ignored NAK is a violation; otherwise, only the share of ignored NAKs is checked.
    is_strict = True

    def __init__(self, overflows: Callable[[str], int]) -> None:
        self.window_length: int | None = INITIAL_WINDOW_LENGTH  # of receivers; None if congestion control adjusts it
        self.efficiency = Efficiency()
        self.is_blind = False
        self._overflows = overflows
        self._pumps = 0
        self._senders: dict[tuple[InetAddress, int, int], _Sender] = {}
        self._receivers: dict[tuple[str, int, int], _Receiver] = {}

    def pumped(self) -> None:
        """Note that the network has delivered everything due. Called after each ``pump``."""
        self._pumps += 1

    # -- outgoing datagrams ------------------------------------------------------------------------------------------

    def sent(self, source: InetAddress, destination: InetAddress, datagram: bytes, now_ns: int) -> None:
        """Check a datagram that leaves the socket at ``source``."""
        if self.is_blind:
            return
        kind = _kind(datagram)
        if kind in (layout.TYPE_DATA, layout.TYPE_PAD):
            self._data_sent(source, destination, datagram, now_ns)
        elif kind == layout.TYPE_SETUP:
            self._setup_sent(source, datagram)
        elif kind == layout.TYPE_SM:
            self.efficiency.status += 1
            self._status_sent(source, datagram, now_ns)
        elif kind == layout.TYPE_NAK:
            self.efficiency.naks += 1

    def _setup_sent(self, source: InetAddress, datagram: bytes) -> None:
        _, _, _, _, offset, session_id, stream_id, initial, active, term_length, _, _ = _SETUP.unpack_from(datagram)
        known = self._senders.get((source, session_id, stream_id))
        if known is None or (known.initial_term_id, known.term_length) != (initial, term_length):
            sender = _Sender(initial, term_length, f"stream {stream_id} session {session_id} from {source}", 0)
            sender.sent_to = sender.position(active, offset)
            self._senders[source, session_id, stream_id] = sender

    def _data_sent(self, source: InetAddress, destination: InetAddress, datagram: bytes, now_ns: int) -> None:
        _, _, _, _, offset, session_id, stream_id, term_id = _HEADER.unpack_from(datagram)
        sender = self._senders.get((source, session_id, stream_id))
        if sender is None:
            return
        position = sender.position(term_id, offset)
        end, needed = _extent(datagram, position, sender.frame_ends)
        if sender.requests:
            self._check_requests(source, sender)
        is_new = destination not in sender.reached
        reached = sender.reached.get(destination, 0)
        if position < reached and end > position:
            self.efficiency.resent_bytes += end - position
            for request in sender.requests:
                request.responses.append((position, end))
            return
        sender.reached[destination] = max(reached, end)
        if position < sender.sent_to and end > position:
            return  # it was sent to another destination before
        if sender.edge >= 0:
            if end > position and needed > sender.edge:
                raise Violation(
                    f"{sender.name}: sent up to position {needed}, but receivers allowed only {sender.edge}"
                )
            silent_ns = now_ns - sender.last_send_ns
            # A publication whose receivers add themselves as destinations had none before its first, or after the last one left.
            if not is_new and sender.last_send_ns >= 0 and silent_ns > HEARTBEAT_INTERVAL_NS + SLACK_NS:
                raise Violation(
                    f"{sender.name}: sent neither data nor a heartbeat for {silent_ns / NS_PER_MS:.1f} ms "
                    f"(limit {(HEARTBEAT_INTERVAL_NS + SLACK_NS) // NS_PER_MS} ms)"
                )
            sender.last_send_ns = now_ns
        sender.sent_to = max(sender.sent_to, end)

    def _check_requests(self, source: InetAddress, sender: _Sender) -> None:
        """Check the NAKs that are due: each must have been served, unless the sender counted a refusal."""
        due = [request for request in sender.requests if request.by_pump < self._pumps]
        if not due:
            return
        sender.requests = [request for request in sender.requests if request.by_pump >= self._pumps]
        for request in due:
            # Before it read the request, the sender may have advanced so far that it no longer has the bytes.
            is_owed = sender.is_in_reach(request.position) and self._overflows(source.ip) == request.overflows
            if not is_owed:
                continue
            self.efficiency.judged += 1
            if not request.is_served():
                self.efficiency.ignored += 1
                if not self.is_strict:
                    continue
                raise Violation(
                    f"{sender.name}: a NAK asked for {request.position} to {request.end}, but only {request.responses} "
                    "were retransmitted"
                )

    def _status_sent(self, source: InetAddress, datagram: bytes, now_ns: int) -> None:
        _, _, flags, _, session_id, stream_id, term_id, offset, window = _STATUS.unpack_from(datagram)
        receiver = self._receivers.get((source.ip, session_id, stream_id))
        if receiver is None or flags & layout.SM_FLAG_SEND_SETUP:
            return
        name = f"stream {stream_id} session {session_id} at {source.ip}"
        position = receiver.position(term_id, offset)
        if position > receiver.arrived_to:
            raise Violation(
                f"{name}: a status message acknowledges position {position}, but data arrived only up to {receiver.arrived_to}"
            )
        expected = window if self.window_length is None else min(self.window_length, receiver.term_length // 2)
        if window != expected:
            raise Violation(f"{name}: a status message offers a window of {window} bytes, not {expected}")
        silent_ns = now_ns - receiver.last_status_ns
        self.efficiency.status_due += min(1, silent_ns / STATUS_INTERVAL_NS) if receiver.last_status_ns >= 0 else 1
        if receiver.last_status_ns >= 0 and silent_ns > STATUS_INTERVAL_NS + SLACK_NS:
            raise Violation(
                f"{name}: sent no status message for {silent_ns / NS_PER_MS:.1f} ms "
                f"(limit {(STATUS_INTERVAL_NS + SLACK_NS) // NS_PER_MS} ms)"
            )
        receiver.last_status_ns = now_ns

    # -- faults of the network ---------------------------------------------------------------------------------------

    def lost(self, at: str, datagram: bytes, now_ns: int) -> None:
        """Note a lost datagram that was sent to the host ``at``."""
        if len(datagram) > layout.DATA_HEADER_LENGTH and _kind(datagram) == layout.TYPE_DATA:
            self.efficiency.on_lost((at, datagram[8:24]), len(datagram), now_ns)

    def damaged(self) -> None:
        """Note that a datagram arrives altered. Its header proves nothing about the sender."""
        self.is_blind = True

    # -- incoming datagrams ------------------------------------------------------------------------------------------

    def arrived(self, at: InetAddress, datagram: bytes, now_ns: int) -> None:
        """Note a datagram that arrives at the socket with the address ``at``."""
        if self.is_blind:
            return
        kind = _kind(datagram)
        if kind in (layout.TYPE_DATA, layout.TYPE_PAD):
            _, _, _, _, offset, session_id, stream_id, term_id = _HEADER.unpack_from(datagram)
            receiver = self._receivers.get((at.ip, session_id, stream_id))
            if receiver is not None:
                if len(datagram) > layout.DATA_HEADER_LENGTH:
                    self.efficiency.on_arrived((at.ip, datagram[8:24]), now_ns)
                    window = min(self.window_length or INITIAL_WINDOW_LENGTH, receiver.term_length // 2)
                    self.efficiency.status_due += STATUS_PER_WINDOW * len(datagram) / window
                end, _ = _extent(datagram, receiver.position(term_id, offset), None)
                receiver.arrived_to = max(receiver.arrived_to, end)
        elif kind == layout.TYPE_SETUP:
            self._setup_arrived(at, datagram)
        elif kind == layout.TYPE_SM:
            self._status_arrived(at, datagram)
        elif kind == layout.TYPE_NAK:
            self._nak_arrived(at, datagram, now_ns)

    def _setup_arrived(self, at: InetAddress, datagram: bytes) -> None:
        _, _, _, _, offset, session_id, stream_id, initial, active, term_length, _, _ = _SETUP.unpack_from(datagram)
        receiver = self._receivers.get((at.ip, session_id, stream_id))
        if receiver is None or (receiver.initial_term_id, receiver.term_length) != (initial, term_length):
            receiver = self._receivers[at.ip, session_id, stream_id] = _Receiver(initial, term_length)
        receiver.arrived_to = max(receiver.arrived_to, receiver.position(active, offset))
        # The setup may begin another image, for which the status messages of the previous image mean nothing.
        receiver.last_status_ns = -1

    def _status_arrived(self, at: InetAddress, datagram: bytes) -> None:
        _, _, flags, _, session_id, stream_id, term_id, offset, window = _STATUS.unpack_from(datagram)
        sender = self._senders.get((at, session_id, stream_id))
        if sender is not None and not flags & layout.SM_FLAG_SEND_SETUP:
            sender.edge = max(sender.edge, sender.position(term_id, offset) + window)

    def _nak_arrived(self, at: InetAddress, datagram: bytes, now_ns: int) -> None:
        _, _, _, _, session_id, stream_id, term_id, offset, length = _NAK.unpack_from(datagram)
        sender = self._senders.get((at, session_id, stream_id))
        if sender is None:
            return
        position = sender.position(term_id, offset)
        # Recently requested bytes are already in flight or were refused. The sender identifies ranges by their starts.
        asked = sender.asked
        while asked and now_ns - asked[first := next(iter(asked))] > LINGER_NS + SLACK_NS:
            del asked[first]
        key = (position, position + length)
        lately = asked.pop(key, None) is not None or any(start <= position < limit for start, limit in asked)
        asked[key] = now_ns  # moves the key to the end, as the newest
        # A redundant sender that is behind may get a request for bytes that it sends in this very cycle, before reading the
        # request.
        if not sender.is_in_reach(position):
            return
        most = min(INITIAL_WINDOW_LENGTH, sender.term_length // 2) * WINDOW_MULTIPLE
        term_end = (position // sender.term_length + 1) * sender.term_length
        stop = min(position + min(length, most), sender.sent_to, term_end)
        # A receiver with room for half a frame requests half a frame, and receives nothing.
        end = sender.whole_end(position, stop)
        if end == position:
            return
        sender.requests.append(
            _Request(position, end, now_ns, self._pumps + PUMPS_TO_RESPOND, self._overflows(at.ip), lately)
        )


def _kind(datagram: bytes) -> int:
    """Return the type of a datagram's first frame; -1 if it is not a frame."""
    return int.from_bytes(datagram[6:8], "little") if len(datagram) >= layout.NAK_LENGTH else -1


def _extent(datagram: bytes, position: int, frame_ends: dict[int, int] | None) -> tuple[int, int]:
    """Return the position after a datagram's frames, and the position up to which the frames need space in the window.

    A padding frame needs space only for its header. Adds the end of each frame to ``frame_ends``, by its position.
    """
    at = 0
    last = len(datagram) - layout.DATA_HEADER_LENGTH
    while at <= last:
        length, kind = _FRAME.unpack_from(datagram, at)
        if length <= 0:
            break
        aligned = (length + layout.FRAME_ALIGNMENT - 1) & -layout.FRAME_ALIGNMENT
        if frame_ends is not None:
            frame_ends[position + at] = position + at + aligned
        if kind == layout.TYPE_PAD:
            return position + at + aligned, position + at + layout.DATA_HEADER_LENGTH
        at += aligned
    return position + at, position + at
