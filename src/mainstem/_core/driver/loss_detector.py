"""Which gaps of an image to request now. Tracks several at once, each with its own timer (docs/protocols/aeron.md, 16.1).

Theory of operation. A scan of an image's log yields the current gaps. The detector stores them as pieces: bytes that became
known to be missing, and were requested, together. A piece keeps its state when its gap grows, shrinks or splits, so a
retransmission that arrives datagram by datagram, or only in part, causes no new request for the rest.

A sender responds to a repeated request with repeated bytes: the reference's sender on unicast remembers one request, the
last, and recognizes no other repeat. So a piece is requested again only if there is reason to believe that its
retransmission was lost:

- The response is overdue. The detector measures the time from a request to its response (RFC 6298: a smoothed time and four
  deviations) from the pieces that are filled between two scans. The first repeat waits until senders stop suppressing it.
- A response to a later request has arrived (as RFC 8985 does for TCP). Senders handle requests in order, and the network
  mostly keeps the order. This does not apply to a group, where another receiver's request may have filled a gap.

If the round trip is long, losing a request or a response costs too much time. The detector then sends one or two copies after
each request, which is few compared to the reference's receiver, which causes one every 10 ms.

If a piece was requested twice, either of two responses may have filled it, so its time is not measured (RFC 6298, 3). If
every piece is requested twice, because the round trip has become longer than the estimate, the detector waits for the time
from the first request instead, until a piece is filled after a single request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from collections.abc import Iterable

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import readonly, set_arrays

    # The number of gaps that are repaired at once; those behind them wait until these are closed.
    MAX_GAPS = 64

from mainstem._core.driver.delay import DelayGenerator

# Senders ignore repeats for this long (docs/protocols/aeron.md, 16.4), so a repeat without a special reason waits at least as long.
LINGER_NS = cython.declare(cython.longlong, 10_000_000)
# The shortest wait for a response after that. Responses over loopback take less, but more on a busy processor.
MIN_OVERDUE_NS = cython.declare(cython.longlong, 1_000_000)
# The longest wait for a response, so that a sender that stopped for a while does not slow down repair for long.
MAX_OVERDUE_NS = cython.declare(cython.longlong, 1_000_000_000)
# How often the wait doubles while no response has been measured: 10 ms becomes 640 ms, longer than round trips are.
MAX_DOUBLINGS = cython.declare(cython.int, 6)
# If losing a request costs more than this, it is sent up to three times, spaced just far enough that senders respond to each. At a
# loss of 5% in each direction, ten of a hundred gaps lose one request or response, and one in a thousand loses three.
COPY_RESPONSE_NS = cython.declare(cython.longlong, 20_000_000)
COPY_SPACING_NS = cython.declare(cython.longlong, 11_000_000)
MAX_COPIES = cython.declare(cython.int, 2)
# Consecutive gaps filled only after two requests, before the measured time is considered out of date. At a loss of 20%, one in
# five is requested twice, and five of them in a row are rare.
MAX_DOUBTS = cython.declare(cython.int, 4)


@cython.cclass
class LossDetector:
    """The gaps, as (position, length), that scans of an image's log have found, each with a timer (docs/protocols/aeron.md, 16.1).

    Bytes that were missing before keep their timer, however their gap changes; others get a new one. At most 64 pieces are
    tracked. ``deadline_ns`` is when ``due`` has something to return, 2**63 - 1 while nothing is missing. ``response_ns`` is the
    usual time from a request to its response, 0 before one was measured. In a ``group``, other receivers' requests fill gaps too.
    """

    delay: readonly[DelayGenerator]
    group: readonly[cython.bint]
    deadline_ns: readonly[cython.longlong]
    response_ns: readonly[cython.longlong]
    deviation_ns: readonly[cython.longlong]
    request_length: readonly[cython.longlong]
    counted_to: cython.longlong
    requests: cython.longlong
    count: cython.int
    before: cython.int
    cursor: cython.int
    reached: cython.longlong
    doubts: cython.int
    doubt_ns: cython.longlong
    responded_order: cython.longlong
    responded_to: cython.longlong
    # For each piece: its position and length, whether it belongs to the same gap as the piece before it, when it is due, when it
    # was last and first requested, how often (0 for never), and the number of its last request.
    position: cython.longlong[MAX_GAPS]
    length: cython.longlong[MAX_GAPS]
    continues: cython.bint[MAX_GAPS]
    timer: cython.longlong[MAX_GAPS]
    asked: cython.longlong[MAX_GAPS]
    first_asked: cython.longlong[MAX_GAPS]
    times: cython.int[MAX_GAPS]
    copies: cython.int[MAX_GAPS]
    order: cython.longlong[MAX_GAPS]
    old_position: cython.longlong[MAX_GAPS]
    old_length: cython.longlong[MAX_GAPS]
    old_timer: cython.longlong[MAX_GAPS]
    old_asked: cython.longlong[MAX_GAPS]
    old_first_asked: cython.longlong[MAX_GAPS]
    old_times: cython.int[MAX_GAPS]
    old_copies: cython.int[MAX_GAPS]
    old_order: cython.longlong[MAX_GAPS]

    def __init__(self, delay: DelayGenerator, group: cython.bint = False) -> None:
        if not cython.compiled:
            set_arrays(self)
        self.delay = delay
        self.group = group
        self.count = 0
        self.before = 0
        self.cursor = 0
        self.reached = 0
        self.counted_to = 0
        self.requests = 0
        self.request_length = 0
        self.response_ns = 0
        self.deviation_ns = 0
        self.doubts = 0
        self.doubt_ns = 0
        self.responded_order = 0
        self.responded_to = 0
        self.deadline_ns = NEVER_NS

    def begin(self) -> cython.void:
        i: cython.int
        for i in range(self.count):
            self.old_position[i] = self.position[i]
            self.old_length[i] = self.length[i]
            self.old_timer[i] = self.timer[i]
            self.old_asked[i] = self.asked[i]
            self.old_first_asked[i] = self.first_asked[i]
            self.old_times[i] = self.times[i]
            self.old_copies[i] = self.copies[i]
            self.old_order[i] = self.order[i]
        self.before = self.count
        self.cursor = 0
        self.count = 0
        self.reached = 0
        self.responded_order = 0
        self.responded_to = 0

    def found(self, position: cython.longlong, length: cython.longlong, now_ns: cython.longlong) -> cython.longlong:
        """Add one gap of the scan, in order of position; return how many of its bytes were never reported missing before."""
        at: cython.longlong = position
        end: cython.longlong = position + length
        stop: cython.longlong
        first: cython.bint = True
        self.pass_to(position, now_ns)
        while at < end and self.count < MAX_GAPS:
            if self.cursor < self.before and self.old_position[self.cursor] <= at:
                # The part of an old piece that is still missing.
                stop = self.old_position[self.cursor] + self.old_length[self.cursor]
                self.keep(at, stop if stop < end else end, first)
                if stop <= end:
                    self.cursor += 1
            else:
                stop = end
                if self.cursor < self.before and self.old_position[self.cursor] < end:
                    stop = self.old_position[self.cursor]
                self.add(at, stop, first, now_ns)
            at = stop if stop < end else end
            first = False
        self.reached = at
        if at <= self.counted_to:
            return 0
        length = at - (position if position > self.counted_to else self.counted_to)
        self.counted_to = at
        return length

    def add(
        self, position: cython.longlong, end: cython.longlong, first: cython.bint, now_ns: cython.longlong
    ) -> cython.void:
        i: cython.int = self.count
        self.count = i + 1
        self.position[i] = position
        self.length[i] = end - position
        self.continues[i] = not first
        self.timer[i] = now_ns + self.delay.first()
        self.asked[i] = 0
        self.first_asked[i] = 0
        self.times[i] = 0
        self.copies[i] = 0
        self.order[i] = 0

    def keep(self, position: cython.longlong, end: cython.longlong, first: cython.bint) -> cython.void:
        i: cython.int = self.count
        j: cython.int = self.cursor
        # Pieces of one gap that were requested together become one piece.
        if (
            not first
            and self.order[i - 1] > 0
            and self.order[i - 1] == self.old_order[j]
            and self.timer[i - 1] == self.old_timer[j]
        ):
            self.length[i - 1] += end - position
            return
        self.count = i + 1
        self.position[i] = position
        self.length[i] = end - position
        self.continues[i] = not first
        self.timer[i] = self.old_timer[j]
        self.asked[i] = self.old_asked[j]
        self.first_asked[i] = self.old_first_asked[j]
        self.times[i] = self.old_times[j]
        self.copies[i] = self.old_copies[j]
        self.order[i] = self.old_order[j]

    def pass_to(self, position: cython.longlong, now_ns: cython.longlong) -> cython.void:
        """Note that the parts of old pieces between the previous gap and ``position`` have been filled."""
        start: cython.longlong
        end: cython.longlong
        stop: cython.longlong
        while self.cursor < self.before and self.old_position[self.cursor] < position:
            start = self.old_position[self.cursor]
            end = start + self.old_length[self.cursor]
            stop = end if end < position else position
            if start < self.reached:
                start = self.reached
            if start < stop and self.old_times[self.cursor] > 0:
                self.on_response(self.cursor, stop, now_ns)
            if end > position:
                return
            self.cursor += 1

    def on_response(self, j: cython.int, end: cython.longlong, now_ns: cython.longlong) -> cython.void:
        """Note that the requested old piece ``j``, or a part of it that ends at ``end``, has been filled."""
        took: cython.longlong = now_ns - self.old_asked[j]
        plausible: cython.bint = 2 * took >= self.response_ns
        if self.old_times[j] == 1:
            self.measure(took)
            self.doubts = 0
        else:
            self.doubts += 1
            self.doubt_ns = now_ns - self.old_first_asked[j]
            if self.response_ns == 0:
                self.measure(self.doubt_ns)
        # Too soon for a response: a datagram that was late and not lost, or the response to an earlier request.
        if not plausible:
            return
        if self.old_order[j] > self.responded_order or (
            self.old_order[j] == self.responded_order and end > self.responded_to
        ):
            self.responded_order = self.old_order[j]
            self.responded_to = end

    def measure(self, took: cython.longlong) -> cython.void:
        off: cython.longlong
        if self.response_ns == 0:
            # At least 1, because 0 means that nothing was measured.
            self.response_ns = took + 1
            self.deviation_ns = took // 2
            return
        off = took - self.response_ns
        self.response_ns += off // 8
        if self.response_ns < 1:
            self.response_ns = 1
        self.deviation_ns += ((off if off > 0 else -off) - self.deviation_ns) // 4

    def finish(self, now_ns: cython.longlong) -> cython.void:
        i: cython.int
        # A full table ends a scan early, so the state of the pieces behind it is unknown; do not count them as filled.
        if self.count < MAX_GAPS:
            self.pass_to(NEVER_NS, now_ns)
        # Pieces requested before the one that was just filled are due now, except in a group or while copies are sent.
        if self.responded_order > 0 and not self.group and self.response_ns < COPY_RESPONSE_NS:
            for i in range(self.count):
                if self.times[i] > 0 and (
                    self.order[i] < self.responded_order
                    or (self.order[i] == self.responded_order and self.position[i] < self.responded_to)
                ):
                    self.timer[i] = now_ns
        self.set_deadline()

    def forget(self, now_ns: cython.longlong) -> cython.void:
        self.begin()
        self.finish(now_ns)

    def set_deadline(self) -> cython.void:
        i: cython.int
        self.deadline_ns = NEVER_NS
        for i in range(self.count):
            if self.timer[i] < self.deadline_ns:
                self.deadline_ns = self.timer[i]

    def next_due(self, start: cython.int, now_ns: cython.longlong) -> cython.int:
        """Return the first piece from ``start`` on that is due, and restart its timer; -1 if there is none.

        ``request_length`` is how much to request from its position on: it includes adjoining pieces of the same gap that are due.
        """
        i: cython.int
        first: cython.int = -1
        for i in range(start, self.count):
            if first >= 0 and not self.continues[i]:
                break
            if self.timer[i] <= now_ns:
                if first < 0:
                    first = i
                    self.requests += 1
                    self.request_length = 0
                self.request_length += self.length[i]
                self.request(i, now_ns)
            elif first >= 0:
                break
        return first

    def request(self, i: cython.int, now_ns: cython.longlong) -> cython.void:
        if self.copies[i] > 0:
            self.copies[i] -= 1
        else:
            self.times[i] += 1
            self.order[i] = self.requests
            if self.times[i] == 1:
                self.first_asked[i] = now_ns
            self.asked[i] = now_ns
            self.copies[i] = cython.cast(cython.int, min(MAX_COPIES, self.response_ns // COPY_RESPONSE_NS))
        if self.copies[i] > 0:
            self.timer[i] = now_ns + max(COPY_SPACING_NS, self.delay.retry())
        else:
            self.timer[i] = max(now_ns + self.patience(self.times[i]), self.first_asked[i] + LINGER_NS)

    def patience(self, times: cython.int) -> cython.longlong:
        """Return how long to wait for the response to a request that was made ``times`` times."""
        wait: cython.longlong = self.delay.retry()
        usual: cython.longlong = self.response_ns + 4 * self.deviation_ns
        if self.response_ns == 0:
            # The round trip is unknown: each wait is twice the last, so that a long round trip causes few repeats.
            usual = LINGER_NS << (times - 1 if times <= MAX_DOUBLINGS else MAX_DOUBLINGS)
        elif self.doubts > MAX_DOUBTS and usual < self.doubt_ns + self.doubt_ns // 8:
            usual = self.doubt_ns + self.doubt_ns // 8
        if usual < MIN_OVERDUE_NS:
            usual = MIN_OVERDUE_NS
        if usual > MAX_OVERDUE_NS:
            usual = MAX_OVERDUE_NS
        return wait if wait > usual else usual

    @property
    def gaps(self) -> list[tuple[int, int]]:
        result: list[tuple[int, int]] = []
        i: cython.int
        for i in range(self.count):
            if self.continues[i]:
                start, length = result.pop()
                result.append((start, length + self.length[i]))
            else:
                result.append((self.position[i], self.length[i]))
        return result

    def on_scan(self, gaps: Iterable[tuple[int, int]], now_ns: cython.longlong) -> int:
        """Update from the gaps of a scan, in order. Return the bytes that were never reported missing before."""
        fresh: cython.longlong = 0
        self.begin()
        for position, length in gaps:
            fresh += self.found(position, length, now_ns)
        self.finish(now_ns)
        return fresh

    def due(self, now_ns: cython.longlong) -> list[tuple[int, int]]:
        result = []
        i: cython.int = self.next_due(0, now_ns)
        while i >= 0:
            result.append((self.position[i], self.request_length))
            i = self.next_due(i + 1, now_ns)
        self.set_deadline()
        return result
