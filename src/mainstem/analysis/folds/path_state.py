"""The state of one path: the positions of its publisher and receivers, and the ranges that are missing."""

from __future__ import annotations

from dataclasses import dataclass, field

from mainstem.aeron.logbuffer import wrap_i32
from mainstem.analysis.folds.fold import checkpointed

NS_PER_MS = 1_000_000
UNSEEN = -(1 << 62)
"""A position below all others. It means that nothing was seen yet."""

# The minimum for a term length that is derived because no SETUP was captured.
LEAST_TERM_LENGTH = 64 << 10
# Receivers of one path that are tracked. In a larger group, the first ones represent all of them.
MAX_RECEIVERS = 1024


@checkpointed("Receiver")
@dataclass
class Receiver:
    position: int
    limit: int


@checkpointed("Gap")
@dataclass
class Gap:
    start: int
    end: int
    noticed_ns: int
    by_nak: bool
    missing: list[list[int]]
    revision: int
    naks: int = 0
    first_nak_ns: int = 0
    answered_ns: int = 0
    ended_ns: int = 0
    passed: bool = False


@checkpointed("Totals")
@dataclass
class Totals:
    datagrams: int = 0
    wire_bytes: int = 0
    data_frames: int = 0
    data_bytes: int = 0
    new_bytes: int = 0
    messages: int = 0
    padding_frames: int = 0
    heartbeats: int = 0
    setups: int = 0
    naks: int = 0
    nak_bytes: int = 0
    status_messages: int = 0
    rttms: int = 0
    errors: int = 0
    retransmits: int = 0
    retransmitted_bytes: int = 0
    duplicates: int = 0
    gaps: int = 0
    lost_bytes: int = 0
    publisher_idle_ns: int = 0
    receiver_stall_ns: int = 0
    network_stall_ns: int = 0
    lives: int = 1


@checkpointed("PathState")
@dataclass
class PathState:
    """Everything that later frames of a path are compared with. Positions are relative to the start of ``base_term``."""

    seen: int = 0
    first_ns: int = 0
    last_ns: int = 0
    publisher: str = ""
    base_term: int | None = None
    initial_term_id: int | None = None
    term_length: int = 0
    is_length_known: bool = False
    mtu: int = 0
    base_end: int = 0
    largest: int = 0
    start: int = UNSEEN
    hwm: int = UNSEEN
    last_advance_ns: int = 0
    last_sender_ns: int = 0
    limit: int | None = None
    receivers: dict[str, Receiver] = field(default_factory=dict)
    most_receivers: int = 0
    stood: int = UNSEEN
    unblocked_at: int = UNSEEN
    unblocked_ns: int = 0
    unblocked_left: int = 0
    last_nak_ns: int = 0
    is_ended: bool = False
    gaps: list[Gap] = field(default_factory=list)
    closed: list[Gap] = field(default_factory=list)
    questions: dict[str, int] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)

    def position(self, term_id: int, term_offset: int) -> int:
        terms = wrap_i32(term_id - (self.base_term or 0))
        if self.term_length:
            return terms * self.term_length + term_offset
        # While the term length is unknown, data of only one term was seen. Keep other terms far away from it.
        return (terms << 40) + term_offset

    def place(self, position: int) -> tuple[int, int]:
        terms = position // self.term_length if self.term_length else position >> 40
        offset = position - (terms * self.term_length if self.term_length else terms << 40)
        return wrap_i32((self.base_term or 0) + terms), offset

    @property
    def least_limit(self) -> int | None:
        return min((receiver.limit for receiver in self.receivers.values()), default=None)

    @property
    def least_position(self) -> int:
        return min((receiver.position for receiver in self.receivers.values()), default=UNSEEN)
