"""What all parts of a connection share: its side, its limits, the time, its events and counters, and who observes it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem.aqueduct.frames import encode_frame
from mainstem.instruments import NULL_INSTRUMENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aqueduct.events import Event
    from mainstem.aqueduct.limits import Limits
    from mainstem.aqueduct.timing import Timing
    from mainstem.instruments import Instrument


@dataclass(slots=True)
class ConnectionCounters:
    halves_created: int = 0
    """Channel halves created, both senders and receivers, minted by either side."""
    messages_received: int = 0
    messages_discarded: int = 0
    """Messages for a receiver that does not exist or has ended."""
    ghosts_refused: int = 0
    """Control streams refused because their half does not exist: the peer created a ghost receiver."""
    unreliable_evicted: int = 0
    """Unreliable messages dropped because newer ones arrived before the application had taken them."""
    unreliable_late: int = 0
    """Unreliable messages that arrived after they had been given up."""
    unreliable_dropped: int = 0
    """Unreliable messages dropped here because there was no room to send them."""


class Context:
    """``events`` is the queue of notifications for the application. The engine sets ``now_ns`` whenever it is called."""

    def __init__(self, *, is_client: bool, limits: Limits, timing: Timing, instrument: Instrument, peer: str) -> None:
        self.is_client = is_client
        self.limits = limits
        self.timing = timing
        self.peer = peer
        self.now_ns = self.rtt_ns = 0
        self.events: deque[Event] = deque()
        self.counts = ConnectionCounters()
        # Called when the application has left something to send.
        self.wake: Callable[[], None] = _nothing
        self.is_observed = instrument is not NULL_INSTRUMENT
        self._instrument = instrument

    def saw_frame(self, tag: int, value: Any) -> None:
        self._instrument.frame_in(self.peer, encode_frame(tag, value), self.now_ns)

    def sent_frame(self, data: bytes) -> None:
        if self.is_observed:
            self._instrument.frame_out(self.peer, data, self.now_ns)

    def changed_state(self, subject: str, old: str, new: str) -> None:
        self._instrument.state_change(subject, old, new, self.now_ns)


def _nothing() -> None:
    """The default of ``wake``."""
