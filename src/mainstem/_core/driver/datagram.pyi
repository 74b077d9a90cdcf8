# Written from datagram.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections import deque

from typing_extensions import Buffer

from mainstem._core.driver.loss_generator import LossGenerator
from mainstem._core.memory.buffer import AtomicBuffer

SLOT_STRIDE: int

class Address:
    """A packed socket address, as ``sockaddr_in`` or ``sockaddr_in6``; empty where there is none."""

    memory: AtomicBuffer
    length: int
    def __init__(self, packed: Buffer = b"") -> None: ...
    def put(self, packed: Buffer) -> None:
        """Becomes another address. Raises ValueError above 32 bytes."""
    def __bytes__(self) -> bytes: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Transport:
    """Sends and receives datagrams in batches; the compiled cycles call it without the GIL.

    ``incoming`` and ``outgoing`` drop datagrams on purpose, on their way in and out. ``max_segments`` is how many equal
    datagrams go as one run (1 where the kernel has no segmentation offload). ``last_error`` is the errno of the last failed call.
    ``fd`` is the socket's, -1 where there is none.
    """

    fd: int
    outgoing: LossGenerator | None
    incoming: LossGenerator | None
    max_segments: int
    error_count: int
    last_error: int
    closed: bool
    def __init__(
        self, slots: int = ..., incoming: LossGenerator | None = None, outgoing: LossGenerator | None = None
    ) -> None: ...
    def close(self) -> None:
        """Ends it: nothing is sent or received from now on."""
    @property
    def dropped_data(self) -> int:
        """Datagrams of data dropped on purpose, both directions."""
    @property
    def dropped_control(self) -> int:
        """Datagrams of control frames dropped on purpose, both directions."""
    @property
    def arrived_ns(self) -> int:
        """When the kernel received the first datagram of the last batch, in epoch nanoseconds; 0 where it does not report that."""
    def send(self, datagram: Buffer, to: Address | None = None) -> bool:
        """Sends one datagram to ``to``, or to where the socket is connected; False when the network did not take it."""
    def read(self) -> list[tuple[bytes, bytes]]:
        """Receives what is there, one batch of it: (datagram, packed source address)."""

class MemoryTransport(Transport):
    """A transport without a network. Its owner moves datagrams from ``sent`` of one to ``deliver`` of another.

    ``send_limit`` is None, or how many more runs are accepted: a full socket buffer for tests. ``epoch_offset_ns`` is what the time
    of day is ahead of ``now_ns``, for timestamps in messages.
    """

    inbox: deque[tuple[bytes, bytes]]
    sent: deque[tuple[bytes | None, bytes]]
    send_limit: int | None
    epoch_offset_ns: int
    def __init__(
        self,
        slots: int = 16,
        incoming: LossGenerator | None = None,
        outgoing: LossGenerator | None = None,
        max_segments: int = 64,
    ) -> None: ...
    def deliver(self, datagram: Buffer, source: Buffer) -> None:
        """Puts a datagram where the next receive finds it. Raises ValueError when it is longer than UDP carries."""
    def take(self) -> list[tuple[bytes | None, bytes]]:
        """What was sent since the last call: (packed destination or None where connected, datagram)."""
