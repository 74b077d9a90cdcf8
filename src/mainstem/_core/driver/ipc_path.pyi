# Written from ipc_path.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.backing import Backing
from mainstem._core.driver.loop import Cycle
from mainstem._core.driver.positions import PositionSet
from mainstem._core.memory.buffer import AtomicBuffer

class IpcPath:
    """One IPC publication's limit, cleaning and position counters (docs/protocols/aeron.md, 11.6).

    ``publisher_limit`` and ``publisher_position`` of the constructor are counter ids. The log's tails and the counters must hold
    the start position. ``connected`` is written into the log's metadata when set. While ``draining`` the limit stays.
    """

    log: AtomicBuffer
    subscribers: PositionSet
    backing: Backing | None
    initial_term_id: int
    term_length: int
    window_length: int
    publisher_limit: int
    consumer_position: int
    clean_position: int
    key: int
    draining: bool
    def __init__(
        self,
        log: AtomicBuffer,
        counters: AtomicBuffer,
        initial_term_id: int,
        term_length: int,
        window_length: int,
        publisher_limit: int,
        publisher_position: int,
    ) -> None: ...
    @property
    def connected(self) -> bool:
        """Whether producers are told that someone reads."""
    @connected.setter
    def connected(self, value: bool) -> None: ...
    def producer_position(self) -> int:
        """Where the producers are, from the tail."""
    def clamp_limit(self, position: int) -> None:
        """Pulls the publishers' limit down to ``position`` if it is above."""
    def do_work(self, now_ns: int = 0) -> int:
        """One duty cycle of this publication alone."""

class IpcCycle(Cycle):
    """All IPC publications of a driver. Add and remove in the thread that runs it."""
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add(self, path: IpcPath) -> None: ...
    def remove(self, path: IpcPath) -> None: ...
    def do_work(self, now_ns: int) -> int: ...
