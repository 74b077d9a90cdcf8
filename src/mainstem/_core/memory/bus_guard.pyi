# Written from bus_guard.py by tools/write_core_stubs.py: edit that file, then run the tool.
from typing_extensions import Buffer

class BusGuard:
    """Guards the pages of one mapping until ``close``, which must come before the mapping ends. Uncompiled it guards nothing."""
    def __init__(self, mapping: Buffer) -> None: ...
    @property
    def was_cut(self) -> bool:
        """Whether pages were read that the file no longer had."""
    def close(self) -> None:
        """Guards the range no longer. May be called twice."""
