# Written from send_cycle.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.events import EventBuffer
from mainstem._core.driver.loop import Cycle
from mainstem._core.driver.send_path import SendEndpointCore, SendPath
from mainstem._core.memory.buffer import AtomicBuffer

class SenderCycle(Cycle):
    """All publications and control sockets of one sender agent (docs/protocols/aeron.md, 14.1 and 14.2)."""

    events: EventBuffer
    status_poll_ratio: int
    status_poll_interval_ns: int
    def __init__(
        self, counters: AtomicBuffer, status_poll_ratio: int = 6, status_poll_interval_ns: int = 100000000
    ) -> None: ...
    def add_endpoint(self, endpoint: SendEndpointCore) -> None: ...
    def remove_endpoint(self, endpoint: SendEndpointCore) -> None: ...
    def add_path(self, path: SendPath, endpoint: SendEndpointCore) -> None: ...
    def remove_path(self, path: SendPath) -> None: ...
