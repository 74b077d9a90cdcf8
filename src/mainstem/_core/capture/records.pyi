# Written from records.py by tools/write_core_stubs.py: edit that file, then run the tool.
from typing_extensions import Buffer

from mainstem._core.memory.buffer import AtomicBuffer

class RecordWalk:
    """Steps through the records of pcap, or the blocks of pcapng (``blocks``), in memory.

    After a step that found a packet: ``data`` is where it starts, ``captured`` and ``original`` its bytes in the file and
    on the wire, ``time_ns`` its time since 1970 (``timed`` is false where it has none), ``link`` its link type. ``offset`` is
    where the next record starts. After RECORD_MORE ``needed`` says how many bytes the record has at least.
    """

    blocks: bool
    swapped: bool
    offset: int
    data: int
    captured: int
    original: int
    time_ns: int
    timed: bool
    link: int
    needed: int
    snaplen: int
    interfaces: int
    def __init__(self, blocks: bool = True) -> None: ...
    def set_records(self, swapped: bool, nanoseconds: bool, link: int, snaplen: int) -> None:
        """Reads pcap from here on, as its header said."""
    def set_section(self, swapped: bool) -> None:
        """Reads a section of pcapng from here on, without interfaces as yet."""
    def add_interface(self, link: int, resolution: int, offset_s: int, snaplen: int) -> None:
        """An interface of the section, in order. ``resolution`` is the byte of if_tsresol."""
    def interface_at(self, number: int) -> tuple[int, int, int, int]:
        """(link, resolution, offset_s, snaplen). Raises IndexError."""
    def next(self, source: Buffer | AtomicBuffer, offset: int, limit: int) -> int:
        """One step at ``offset``: ``layout.RECORD_...``. Raises IndexError when the range lies outside."""
    def resync(self, source: Buffer | AtomicBuffer, offset: int, stop: int, limit: int, count: int) -> int:
        """The first place in ``[offset, stop)`` where ``count`` packets could follow one another before ``limit``, or -1.

        Takes time in proportion to ``stop - offset``, whatever the bytes are. Raises IndexError when the range lies outside.
        """
