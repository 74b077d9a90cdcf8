# Written from udp.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.datagram import Transport
from mainstem._core.driver.loss_generator import LossGenerator

COALESCED_SLOTS: int

class UdpTransport(Transport):
    """Datagrams over the non-blocking UDP socket ``fd``, which stays its opener's to close, after this transport.

    Batches go through sendmmsg and recvmmsg, equal datagrams in one call with segmentation offload and coalesced where the
    kernel has them; ``offload=False`` does without. ``timestamps`` asks the kernel when each datagram arrived. ``coalesces`` is
    what was found for receiving, ``max_segments`` for sending; ``slots`` is how many datagrams or runs come at once, 0 for
    as many as is usual.
    """

    coalesces: bool
    timestamps: bool
    def __init__(
        self,
        fd: int,
        incoming: LossGenerator | None = None,
        outgoing: LossGenerator | None = None,
        offload: bool = True,
        timestamps: bool = False,
        slots: int = 0,
    ) -> None: ...
