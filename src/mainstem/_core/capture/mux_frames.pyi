# Written from mux_frames.py by tools/write_core_stubs.py: edit that file, then run the tool.
from typing_extensions import Buffer

from mainstem._core.capture.frame_rows import FrameRows

class MuxParser:
    """One direction of a connection. ``position`` counts its bytes; ``reason`` is not 0 once nothing can be understood.

    ``connection`` and ``from_client`` (1, 0, or -1 where it is not known) go into each row. ``keep``: payloads and texts too.
    """

    rows: FrameRows
    jmux: bool
    position: int
    reason: int
    connection: int
    from_client: int
    def __init__(self, rows: FrameRows, jmux: bool, keep: bool = False) -> None: ...
    def restart(self, position: int) -> None:
        """A packet starts at this place of the stream; at 0 a Jmux connection's own header does."""
    def skip(self, count: int) -> bool:
        """So many bytes are lost. True where they were in the middle of one packet's body: parsing may go on."""
    @property
    def waits(self) -> bool:
        """A whole packet waits for a row."""
    def flush(self) -> None:
        """Writes a row that waited for room."""
    def feed(self, source: Buffer, offset: int, limit: int) -> int:
        """Parses bytes. Returns where it stopped; short of ``limit`` rows are full, or ``reason`` is set."""
    def settles(self, source: Buffer, offset: int, limit: int) -> bool:
        """Whether these bytes may be the start of packets. Forgets the packet that was open."""
    def keep_body(self) -> None: ...
