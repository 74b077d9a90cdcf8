# Written from receivers.py by tools/write_core_stubs.py: edit that file, then run the tool.

FIRST_RECEIVERS: int
COLUMNS: int

class ReceiverTable:
    """The receivers that one publication knows: MAX_RECEIVERS at most. ``SendPath`` keeps one; use its methods.

    ``sources`` is where the last status message came from (Transport.source_key); 0 before that.
    """

    count: int
    def __init__(self) -> None: ...
    def put(self, receiver_id: int, edge: int, counts: bool) -> int:
        """Adds a receiver or changes whether it counts; its row, -1 where there is no room."""
    def remove(self, receiver_id: int) -> bool:
        """Forgets a receiver; false when it was not known."""
    def discount(self, receiver_id: int) -> bool:
        """Keeps a receiver without counting it; false when it was not known."""
    def rows(self) -> list[tuple[int, int, int, bool]]:
        """(receiver id, edge, last heard of, counts) of each."""
