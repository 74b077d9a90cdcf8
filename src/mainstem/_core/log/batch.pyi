# Written from batch.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Iterable
from typing import Any

class Messages:
    """How an appender reads a batch: the size of each message, and its bytes copied to where they belong."""

    count: int
    largest: int
    def prepare(self) -> None:
        """For uncompiled code, where nothing declares the arrays."""

class MessageList(Messages):
    """A list of bytes-like objects; ``bytes`` are read in place, anything else is copied first."""
    def __init__(self, items: Iterable[Any]) -> None: ...

class MessageColumns(Messages):
    """Rows of an Arrow binary column.

    ``data`` and ``offsets`` are buffers; an offset is an int32, or an int64 if ``wide``. Rows ``first`` to
    ``first + count`` are read (all from ``first`` on when ``count`` is negative). Raises ValueError when the offsets fall,
    or leave the data.
    """
    def __init__(self, data: Any, offsets: Any, first: int = 0, count: int = -1, wide: bool = False) -> None: ...
    def check_offsets(self, data_length: int) -> None:
        """Offsets must rise and stay inside the data; also finds the largest message."""
