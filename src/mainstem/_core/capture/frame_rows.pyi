# Written from frame_rows.py by tools/write_core_stubs.py: edit that file, then run the tool.
from typing_extensions import Buffer

WIDTHS: tuple[str, ...]

class FrameRows:
    """A batch of up to ``rows`` rows of ``frames``; ``column_bits`` has a bit for each column (``layout.ROW_...``) that is kept.

    src and dst are kept as 16 bytes each, an IPv4 address as IPv6 maps it.
    """

    rows: int
    capacity: int
    text_length: int
    payload_length: int
    frame_index: int
    def __init__(self, column_bits: int = -1, rows: int = 8192) -> None: ...
    def reserve(self, text: int, payload: int) -> None:
        """Room for so many more bytes of text and of payload; what is there stays."""
    @property
    def full(self) -> bool:
        """No row is left."""
    def begin(self, number: int, time_ns: int, timed: bool, wire_length: int, transport: int = -1) -> None:
        """The rows to come are of this packet."""
    def flow(self, addresses: Buffer, source_port: int, destination_port: int) -> None:
        """... between these: sender's and receiver's 16 bytes."""
    def row(self, protocol: int, kind: int, values: dict[int, int], text: bytes = b"") -> None:
        """Writes a whole row. Raises IndexError when none is left."""
    def mark_text(self) -> None: ...
    def take(self) -> tuple[int, dict[int, tuple[bytearray, bytearray]], bytearray, bytearray]:
        """(rows, {column: (values, validity bits)}, text, payload); the next rows go to fresh buffers."""
