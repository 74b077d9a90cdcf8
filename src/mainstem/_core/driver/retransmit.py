"""Which NAKs lead to a retransmission, and when (docs/protocols/aeron.md, 16.4)."""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.layout import *
    from mainstem._core.memory.plain import readonly, set_arrays

    # The reference's pool for a group has no more.
    MAX_ACTIONS = 256

UNICAST_LINGER_NS = 10_000_000
# One NAK causes retransmission of at most this many times the receivers' initial window.
UNICAST_WINDOW_MULTIPLE = 16
GROUP_WINDOW_MULTIPLE = 4
DEFAULT_WINDOW_LENGTH = 128 * 1024
# NAKs remembered at once. Mainstem's receiver reports up to 64 gaps together; a group's pool is the channel's ``max-resend``.
UNICAST_ACTIONS = 64
DEFAULT_GROUP_ACTIONS = 16
# Limit on retransmitted bytes as a multiple of new bytes: more than several receivers request at a loss of 50%.
FRESH_MULTIPLE = cython.declare(cython.longlong, 4)
# Requests from a source that has sent no status message get this fraction of the rate.
STRANGERS_SHARE = cython.declare(cython.longlong, 16)
SECOND_NS = cython.declare(cython.longlong, 1_000_000_000)


@cython.cclass
class RetransmitHandler:
    """A memory of recent requests, so that data in flight is not sent twice (docs/protocols/aeron.md, 16.4).

    Positions and lengths are in bytes. With ``group`` semantics (multicast, many destinations) a full pool of ``max_actions``
    refuses further requests and counts them in ``overflows``; otherwise a new action replaces the oldest. ``deadline_ns`` is when
    ``on_time`` has work.

    ``rate`` limits retransmission regardless of the requests: ``rate`` bytes per second plus FRESH_MULTIPLE times the new bytes
    sent since. Unused allowance accumulates up to one second's worth or half a term, whichever is more. Requests from sources that
    no status message came from have a separate allowance, a sixteenth of the rate, so that they do not use up the receivers'.
    Requests refused by the limit count as overflows too. A rate of 0 means no limit.
    """

    deadline_ns: readonly[cython.longlong]
    overflows: readonly[cython.longlong]
    group: cython.bint
    max_actions: cython.int
    term_length: cython.longlong
    max_length: cython.longlong
    reach: cython.longlong
    delay_ns: cython.longlong
    linger_ns: cython.longlong
    rate: cython.longlong
    most_saved: cython.longlong
    allowance: cython.longlong
    strangers_allowance: cython.longlong
    allowed_ns: cython.longlong
    allowed_position: cython.longlong
    count: cython.int
    position: cython.longlong[MAX_ACTIONS]
    length: cython.longlong[MAX_ACTIONS]
    timer: cython.longlong[MAX_ACTIONS]
    delayed: cython.bint[MAX_ACTIONS]
    due: cython.bint[MAX_ACTIONS]

    def __init__(
        self,
        term_length: cython.longlong,
        group: cython.bint = False,
        max_actions: int | None = None,
        window_multiple: int | None = None,
        window_length: cython.longlong = DEFAULT_WINDOW_LENGTH,
        delay_ns: cython.longlong = 0,
        linger_ns: cython.longlong = UNICAST_LINGER_NS,
        rate: cython.longlong = 0,
    ) -> None:
        if not cython.compiled:
            set_arrays(self)
        multiple = window_multiple or (GROUP_WINDOW_MULTIPLE if group else UNICAST_WINDOW_MULTIPLE)
        self.term_length = term_length
        self.group = group
        self.max_actions = min(MAX_ACTIONS, max_actions or DEFAULT_GROUP_ACTIONS) if group else UNICAST_ACTIONS
        self.max_length = min(window_length, term_length // 2) * multiple
        self.reach = term_length // 2 + min(term_length // 8, MAX_MESSAGE_LENGTH)
        self.delay_ns = delay_ns
        self.linger_ns = linger_ns
        self.rate = rate
        self.most_saved = max(rate, term_length // 2)
        self.allowance = self.most_saved
        self.strangers_allowance = self.most_saved // STRANGERS_SHARE
        self.allowed_ns = 0
        self.allowed_position = 0
        self.count = 0
        self.overflows = 0
        self.deadline_ns = NEVER_NS

    def in_reach(self, position: cython.longlong, sender_position: cython.longlong) -> cython.bint:
        return sender_position - self.reach <= position < sender_position

    def ask(
        self,
        position: cython.longlong,
        length: cython.longlong,
        sender_position: cython.longlong,
        now_ns: cython.longlong,
        of_receiver: cython.bint,
    ) -> cython.longlong:
        """Handle a request; return how many bytes to send at once, 0 for none (yet)."""
        i: cython.int
        if length <= 0 or not self.in_reach(position, sender_position):
            return 0
        for i in range(self.count):
            if self.position[i] <= position < self.position[i] + self.length[i]:
                return 0
        if self.rate > 0:
            self.allow_more(sender_position, now_ns)
            if (self.allowance if of_receiver else self.strangers_allowance) <= 0:
                self.overflows += 1
                return 0
        if self.count >= self.max_actions:
            if self.group:
                self.overflows += 1
                return 0
            # A receiver's newest request states what it needs, so drop the oldest.
            self.drop(0)
        if length > self.term_length - (position & (self.term_length - 1)):
            length = self.term_length - (position & (self.term_length - 1))
        if length > self.max_length:
            length = self.max_length
        # The allowance can be overdrawn by one request.
        if of_receiver:
            self.allowance -= length
        else:
            self.strangers_allowance -= length
        i = self.count
        self.count = i + 1
        self.position[i] = position
        self.length[i] = length
        self.delayed[i] = self.delay_ns > 0
        self.due[i] = False
        self.timer[i] = now_ns + (self.delay_ns if self.delayed[i] else self.linger_ns)
        if self.timer[i] < self.deadline_ns:
            self.deadline_ns = self.timer[i]
        return 0 if self.delayed[i] else length

    def allow_more(self, sender_position: cython.longlong, now_ns: cython.longlong) -> cython.void:
        """Add what the allowances have gained from time and new data since the last request."""
        elapsed_ns: cython.longlong = now_ns - self.allowed_ns
        fresh: cython.longlong = sender_position - self.allowed_position
        if elapsed_ns > SECOND_NS:
            elapsed_ns = SECOND_NS
        self.allowed_ns = now_ns
        self.allowed_position = sender_position
        fresh = elapsed_ns * self.rate // SECOND_NS + FRESH_MULTIPLE * fresh
        self.allowance += fresh
        if self.allowance > self.most_saved:
            self.allowance = self.most_saved
        self.strangers_allowance += fresh // STRANGERS_SHARE
        if self.strangers_allowance > self.most_saved // STRANGERS_SHARE:
            self.strangers_allowance = self.most_saved // STRANGERS_SHARE

    def drop(self, index: cython.int) -> cython.void:
        i: cython.int
        for i in range(index, self.count - 1):
            self.position[i] = self.position[i + 1]
            self.length[i] = self.length[i + 1]
            self.timer[i] = self.timer[i + 1]
            self.delayed[i] = self.delayed[i + 1]
            self.due[i] = self.due[i + 1]
        self.count -= 1

    def expire(self, sender_position: cython.longlong, now_ns: cython.longlong) -> cython.void:
        i: cython.int = 0
        while i < self.count:
            if self.timer[i] > now_ns:
                i += 1
            elif self.delayed[i]:
                self.delayed[i] = False
                self.due[i] = self.in_reach(self.position[i], sender_position)
                self.timer[i] = now_ns + self.linger_ns
                i += 1
            else:
                self.drop(i)
        self.set_deadline()

    def next_due(self, start: cython.int) -> cython.int:
        """Return the first due action from ``start`` on, and mark it as done; -1 if there is none."""
        i: cython.int
        for i in range(start, self.count):
            if self.due[i]:
                self.due[i] = False
                return i
        return -1

    def set_deadline(self) -> cython.void:
        i: cython.int
        self.deadline_ns = NEVER_NS
        for i in range(self.count):
            if self.timer[i] < self.deadline_ns:
                self.deadline_ns = self.timer[i]

    def on_nak(
        self,
        position: cython.longlong,
        length: cython.longlong,
        sender_position: cython.longlong,
        now_ns: cython.longlong,
        of_receiver: cython.bint = True,
    ) -> tuple[int, int] | None:
        granted = self.ask(position, length, sender_position, now_ns, of_receiver)
        return (position, granted) if granted else None

    def on_time(self, now_ns: cython.longlong, sender_position: cython.longlong) -> list[tuple[int, int]]:
        result = []
        if now_ns >= self.deadline_ns:
            self.expire(sender_position, now_ns)
            i: cython.int = self.next_due(0)
            while i >= 0:
                result.append((self.position[i], self.length[i]))
                i = self.next_due(i + 1)
        return result
