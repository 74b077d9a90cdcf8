# Written from packet_index.py by tools/write_core_stubs.py: edit that file, then run the tool.
from typing_extensions import Buffer

from mainstem._core.capture.records import RecordWalk

class PacketIndex:
    """What a run of records holds.

    ``packets``, times from ``first_ns`` to ``last_ns`` (-1: none), ``tcp`` and ``fragments`` (a bit for each bucket that has
    some), ``unknown_link`` (-1: all are known). The run ended at ``offset``, because of ``stopped``.
    """

    walk: RecordWalk
    offset: int
    packets: int
    first_ns: int
    last_ns: int
    tcp: int
    fragments: int
    unknown_link: int
    stopped: int
    def __init__(self, walk: RecordWalk) -> None: ...
    def reset(self) -> None: ...
    def run(self, source: Buffer, offset: int, limit: int) -> int:
        """Passes over whole records in ``[offset, limit)``; RECORD_MORE or RECORD_CORRUPT. Raises IndexError."""
