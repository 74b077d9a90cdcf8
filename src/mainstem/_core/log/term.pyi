# Written from term.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.memory.buffer import AtomicBuffer

class RunBatch:
    """What is sent in one call: runs of datagrams that are contiguous in memory and, but for the last one, of equal size.

    ``segment`` is the size of a datagram of the run, ``length`` of all of it, ``advance`` how far the position has moved
    from the start of the scan when the run and those before it have left.
    """
    def __init__(self) -> None: ...
    def scan(
        self,
        log: AtomicBuffer,
        term: int,
        offset: int,
        term_length: int,
        window: int,
        mtu: int,
        max_runs: int = 64,
        max_segments: int = 64,
    ) -> list[tuple[int, int, int, int]]:
        """Scans a term for what may be sent: ``[(offset in the log, length, segment size, advance from the start), …]``."""
    @property
    def is_blocked(self) -> bool:
        """The last scan stopped at a committed frame for which the window was too small."""
    @property
    def spoilt_length(self) -> int:
        """The length of the frame at which the last scan stopped because it is not possible there; 0 for none."""

def unblock(log: AtomicBuffer, term_length: int, initial_term_id: int, position: int) -> bool:
    """Frees a log whose consumers stand still at ``position`` because a producer died (docs/protocols/aeron.md, 11.7).

    A claimed frame becomes padding, an unfinished end of a term is padded and the log rotated. True when something was done;
    the caller counts it. Concurrent publications only. Raises ValueError where the claim, or the position, is not possible.
    """

def gaps(log: AtomicBuffer, term: int, offset: int, limit: int, most: int = 64) -> list[tuple[int, int]]:
    """The gaps of the term at ``term`` between two offsets, as (offset, length), the first ``most`` of them."""

def insert(log: AtomicBuffer, at: int, datagram: AtomicBuffer) -> bool:
    """Inserts a datagram's frames; False when the place is taken (docs/protocols/aeron.md, 15.3)."""

def fill_gap(log: AtomicBuffer, term: int, offset: int, length: int, term_id: int) -> bool:
    """Makes a gap that is still all zero one PAD frame from the log's default header."""

def clean(log: AtomicBuffer, term_length: int, position: int, target: int) -> int:
    """Zeroes from ``position`` to ``target`` or the term's end, header word last; returns the position reached."""

def producer_position(log: AtomicBuffer, term_length: int, initial_term_id: int) -> int:
    """The producers' position, from the raw tail of the active term."""
