# Written from aeron_frames.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Iterable

from typing_extensions import Buffer

from mainstem._core.capture.frame_rows import FrameRows
from mainstem._core.capture.packets import Packet
from mainstem._core.capture.records import RecordWalk

class CaptureDecoder:
    """Decodes runs of a capture file into ``rows``.

    ``plain``: datagrams that came whole are decoded; ``guess``: on every port, where each byte fits Aeron. ``number`` is the
    last packet's. A run stops at ``offset``; after DECODE_SEGMENT ``packet`` has a fragment or a segment that the buckets
    asked for.
    """

    walk: RecordWalk
    packet: Packet
    rows: FrameRows
    number: int
    offset: int
    plain: bool
    guess: bool
    follow_fragments: bool
    def __init__(self, walk: RecordWalk, rows: FrameRows) -> None: ...
    def set_ports(self, udp: Iterable[int], tcp: Iterable[int]) -> None:
        """Ports whose datagrams are Aeron's whatever they hold, and ports whose segments are wanted."""
    def take_passed(self) -> list[tuple[int, int]]:
        """How many packets had no row since the last call, and the number of the last, by reason (``layout.PASSED_...``)."""
    def pass_over(self, reason: int, count: int = 1) -> None:
        """Counts the packet at which the decoder stopped among those without a row; -1 takes an earlier one out again."""
    def set_buckets(self, tcp: int, fragments: int) -> None:
        """Which flows (a bit for each bucket) are handed over."""
    def seek(self, number: int) -> None:
        """The next packet is number + 1."""
    def run(self, source: Buffer, offset: int, limit: int) -> int:
        """Decodes records in ``[offset, limit)``; why it stopped (``layout.DECODE_...``). Raises IndexError."""
    def whole(self, source: Buffer, link: int) -> int:
        """Decodes one packet that was put together from fragments, for the rows' current packet.

        Its kind, or -1 where no room is left for it.
        """
