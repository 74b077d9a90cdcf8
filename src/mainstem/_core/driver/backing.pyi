# Written from backing.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.memory.buffer import AtomicBuffer

class Backing:
    """What of a sparse log has its blocks. ``start`` is the stream's first position, ``margin`` in bytes."""

    margin: int
    position: int
    is_held: bool
    def __init__(self, log: AtomicBuffer, term_length: int, start: int, margin: int) -> None: ...
    @property
    def is_complete(self) -> bool:
        """Whether every page has its block."""
    def back_up(self, goal: int) -> bool:
        """Takes the blocks up to ``goal`` and the margin, all of them; false where the file system has no room."""
