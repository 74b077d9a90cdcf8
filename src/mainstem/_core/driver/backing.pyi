# Written from backing.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.memory.buffer import AtomicBuffer

class Backing:
    """What of a sparse log has its blocks. ``start`` is the stream's first position, ``margin`` and ``ahead`` in bytes."""

    margin: int
    ahead: int
    position: int
    is_held: bool
    def __init__(self, log: AtomicBuffer, term_length: int, start: int, margin: int, ahead: int) -> None: ...
    @property
    def is_complete(self) -> bool:
        """Whether every page has its block, or none can be taken ahead."""
    def first_ranges(self) -> list[tuple[int, int]]:
        """Offset and length of each part of the log that its first ``ahead`` bytes and the margin behind them may touch."""
    def begin(self) -> bool:
        """Notes that the first ranges have their blocks. False where the kernel cannot take more of them ahead."""
