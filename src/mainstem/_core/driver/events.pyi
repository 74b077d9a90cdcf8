# Written from events.py by tools/write_core_stubs.py: edit that file, then run the tool.

ROOM: int

class EventBuffer:
    """What a compiled cycle could not decide by itself, for Python to drain afterwards in the same thread.

    ``lost`` counts events for which there was no room; the frame's sender sends it again.
    """

    count: int
    lost: int
    def __init__(self) -> None: ...
    def take(self) -> list[tuple[int, int, int, int, int, int, bytes, bytes]]:
        """All events, oldest first: (kind, endpoint, path, now_ns, value, transport index, packed source, frame)."""
