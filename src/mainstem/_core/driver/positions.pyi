# Written from positions.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.memory.buffer import AtomicBuffer

FIRST_ROOM: int
MOST_POSITIONS: int

class PositionSet:
    """Ids of counters whose values are positions: a stream's subscribers or spies.

    One thread adds and removes; the compiled cycles of other threads may read at the same time. A counter must hold its
    position before it is added. Raises IndexError for an id outside ``counters`` (the counters' values buffer) and ValueError
    for a value that is no position. Values may be written by other processes: a caller of ``lowest`` or ``highest``
    bounds it by what has been written.
    """
    def __init__(self, counters: AtomicBuffer) -> None: ...
    def __len__(self) -> int: ...
    def add(self, counter_id: int) -> None: ...
    def remove(self, counter_id: int) -> bool:
        """True when it was there."""
    def ids(self) -> list[int]: ...
    def minimum(self) -> int:
        """The smallest position, -1 when the set is empty."""
    def maximum(self) -> int:
        """The greatest position, -1 when the set is empty."""
