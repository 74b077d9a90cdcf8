# Written from table.py by tools/write_core_stubs.py: edit that file, then run the tool.

FIRST_ROOM: int
MOST_PATHS: int

class PathTable:
    """Open addressing with linear probing, at most half full.

    The indexes lead to ``entries``: borrowed references to what ``paths`` holds.

    Changed with the GIL by the thread that reads it. Removing rebuilds: it is rare, and so no tombstones are needed.
    """

    count: int
    def __init__(self) -> None: ...
    def key(self, session_id: int, stream_id: int) -> int: ...
    def __len__(self) -> int: ...
    def get(self, session_id: int, stream_id: int) -> object | None: ...
    def values(self) -> list[object]: ...
    def put(self, session_id: int, stream_id: int, path: object) -> None:
        """Adds or replaces. Raises OverflowError above 65,536 streams."""
    def remove(self, session_id: int, stream_id: int) -> object | None:
        """Takes one out and returns it, None when it was not there."""
