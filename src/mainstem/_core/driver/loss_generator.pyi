# Written from loss_generator.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.memory.buffer import AtomicBuffer

EVERY_TYPE: int

class LossGenerator:
    """Decides which datagrams a transport drops on purpose; this one drops none.

    ``mask`` has a bit for each frame type that may be dropped, by the type of a datagram's first frame. ``then`` decides
    about what this generator lets through. One generator serves one thread.
    """

    dropped_data: int
    dropped_control: int
    then: LossGenerator | None
    def __init__(self, mask: int = ..., then: LossGenerator | None = None) -> None: ...
    def asks(self, datagram: AtomicBuffer) -> bool:
        """Whether this datagram is dropped; counts it."""

class RandomLoss(LossGenerator):
    """Drops with probability ``rate``; the sequence follows from ``seed``. Raises ValueError for a rate outside [0, 1]."""

    rate: float
    def __init__(self, rate: float, seed: int = 1, mask: int = ..., then: LossGenerator | None = None) -> None: ...

class GapLoss(LossGenerator):
    """Drops the data that overlaps [first + i·radix, first + i·radix + gap_length), 0 ≤ i < total, of one term, once a stream.

    ``total=1`` is the fixed loss of the reference's interceptors, more is its multi-gap loss. Raises ValueError for regions
    that overlap one another.
    """
    def __init__(
        self,
        term_id: int,
        first: int,
        gap_length: int,
        radix: int = 0,
        total: int = 1,
        mask: int = ...,
        then: LossGenerator | None = None,
    ) -> None: ...
