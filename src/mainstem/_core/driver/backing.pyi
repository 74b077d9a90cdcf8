# Written from backing.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.memory.buffer import AtomicBuffer

class Backing:
    """What of a sparse log has its blocks. ``start`` is the stream's first position, ``margin`` and ``ahead`` in bytes."""

    margin: int
    ahead: int
    position: int
    is_held: bool
    is_open: bool
    def __init__(self, log: AtomicBuffer, term_length: int, start: int, margin: int, ahead: int) -> None: ...
    @property
    def is_complete(self) -> bool:
        """Whether every page has its block, or none can be taken ahead."""
    @property
    def missing(self) -> int:
        """How many bytes of the first ``ahead``, and of the margin behind them, lack their blocks."""
    def back_up(self, goal: int) -> bool:
        """Takes the blocks up to ``goal`` and the margin, all of them; false where the file system has no room."""
