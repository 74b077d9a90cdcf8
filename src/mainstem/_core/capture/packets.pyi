# Written from packets.py by tools/write_core_stubs.py: edit that file, then run the tool.
from typing_extensions import Buffer

class Packet:
    """A captured packet, taken apart: ``kind`` is ``layout.PACKET_...``.

    UDP and TCP: ``payload`` is where the payload starts in the memory, ``available`` how much of it was captured, ``length``
    how long it was on the wire. PACKET_FRAGMENT: the same of an IP packet's part, with ``fragment_offset``,
    ``more_fragments``, ``fragment_id`` and the ``protocol`` inside. ``bucket`` (below FLOW_BUCKETS) is the same for both
    directions of a TCP connection, and for all fragments of one packet.
    """

    kind: int
    protocol: int
    payload: int
    available: int
    length: int
    source_port: int
    destination_port: int
    sequence: int
    acknowledged: int
    tcp_flags: int
    fragment_offset: int
    more_fragments: bool
    fragment_id: int
    bucket: int
    address_size: int
    def __init__(self) -> None: ...
    def read(self, source: Buffer, offset: int, captured: int, link: int) -> int:
        """Takes one packet apart. Raises IndexError when it lies outside the memory."""
    def addresses(self, source: Buffer) -> tuple[bytes, bytes]:
        """Sender and receiver, 16 bytes each."""
