# Written from table.py by tools/write_core_stubs.py: edit that file, then run the tool.

FIRST_ROOM: int

class PathTable:
    """Paths by (session id, stream id), read once for each datagram, and changed by the thread that reads it.

    Open addressing with linear probing, at most half full. ``find`` returns an index into ``entries``, which are borrowed
    references to what ``paths`` holds: the cycle runs without the GIL and cannot count references. A path is called on where it
    stands, ``cython.cast(SendPath, table.entries[index]).work(now_ns)``, and valid until the table is changed. Removing rebuilds:
    it is rare, and so no tombstones are needed.
    """

    count: int
    def __init__(self) -> None: ...
    def key(self, session_id: int, stream_id: int) -> int: ...
    def __len__(self) -> int: ...
    def get(self, session_id: int, stream_id: int) -> object | None: ...
    def values(self) -> list[object]: ...
    def put(self, session_id: int, stream_id: int, path: object) -> None:
        """Adds or replaces."""
    def remove(self, session_id: int, stream_id: int) -> object | None:
        """Takes one out and returns it, None when it was not there."""
