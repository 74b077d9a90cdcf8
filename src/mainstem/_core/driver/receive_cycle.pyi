# Written from receive_cycle.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.events import EventBuffer
from mainstem._core.driver.loop import Cycle
from mainstem._core.driver.receive_path import ReceiveEndpointCore, ReceivePath
from mainstem._core.memory.buffer import AtomicBuffer

class ReceiverCycle(Cycle):
    """All sockets and images of one receiver agent."""

    events: EventBuffer
    def __init__(self, counters: AtomicBuffer) -> None: ...
    def add_endpoint(self, endpoint: ReceiveEndpointCore) -> None: ...
    def remove_endpoint(self, endpoint: ReceiveEndpointCore) -> None: ...
    def add_path(self, path: ReceivePath, endpoint: ReceiveEndpointCore) -> None: ...
    def remove_from_dispatch(self, path: ReceivePath, endpoint: ReceiveEndpointCore) -> None:
        """Its datagrams are not its any more; its status messages go on."""
    def remove_path(self, path: ReceivePath) -> None: ...
