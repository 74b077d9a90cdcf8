# Written from delay.py by tools/write_core_stubs.py: edit that file, then run the tool.
from random import Random

UNICAST_RETRY_RATIO: int
UNICAST_DELAY_NS: int

class DelayGenerator:
    """Two delays, in nanoseconds: before a gap is reported, and before it is reported again. This one never waits."""
    def first_ns(self) -> int: ...
    def retry_ns(self) -> int: ...

class StaticDelay(DelayGenerator):
    """Fixed delays: unicast, or none at all where gaps are filled instead of repaired."""
    def __init__(self, delay_ns: int, retry_ns: int) -> None: ...
    @classmethod
    def unicast(cls, delay_ns: int = ..., ratio: int = ...) -> StaticDelay:
        """``delay_ns`` is 1 µs at least; the retry comes ``ratio`` times later."""

class BackoffDelay(DelayGenerator):
    """Random delays, so that of a group of receivers few ask for what all of them miss (RFC 5401, 3.2.3.2).

    ``max_backoff_ns`` is the longest delay, ``group_size`` the receivers that are expected. ``random`` only gives the seed.
    """
    def __init__(self, random: Random, max_backoff_ns: int = 10000000, group_size: int = 10) -> None: ...
