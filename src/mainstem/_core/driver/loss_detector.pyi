# Written from loss_detector.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Iterable

from mainstem._core.driver.delay import DelayGenerator

class LossDetector:
    """Keeps a timer for each gap, a (position, length), that a scan of an image's log has found (docs/protocols/aeron.md, 16.1).

    What was missing before keeps its timer, however its gap changes; what was not is new. Sixty-four are tracked at once.
    ``deadline_ns`` is when ``due`` has something to say, 2**63 - 1 while nothing is missing. ``response_ns`` is the usual time
    from a request to its response, 0 before one was measured. In a ``group`` gaps are filled by what others requested, too.
    """

    delay: DelayGenerator
    group: bool
    deadline_ns: int
    response_ns: int
    deviation_ns: int
    request_length: int
    def __init__(self, delay: DelayGenerator, group: bool = False) -> None: ...
    @property
    def gaps(self) -> list[tuple[int, int]]:
        """What is known to be missing, in order."""
    def on_scan(self, gaps: Iterable[tuple[int, int]], now_ns: int) -> int:
        """Takes in what a scan found, in order. Returns the bytes that were never reported missing before."""
    def due(self, now_ns: int) -> list[tuple[int, int]]:
        """The gaps whose time has come; their timers start again."""
