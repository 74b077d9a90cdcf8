# Written from destinations.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.datagram import Address

FIRST_DESTINATIONS: int
ROW_LENGTH: int

class DestinationList:
    """Where the datagrams of a channel with many destinations go, and when each was last heard of.

    See docs/protocols/aeron.md, 19.3. ``entries`` are borrowed references to ``addresses``.
    """

    count: int
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add(self, address: Address, receiver_id: int, now_ns: int) -> None:
        """One more."""
    def remove(self, index: int) -> None: ...
    def touch(self, index: int, receiver_id: int, now_ns: int) -> None:
        """Heard of: remembers the receiver and the time."""
    def rows(self) -> list[tuple[bytes, int, int]]:
        """(packed address, receiver id, last heard of) of each."""
