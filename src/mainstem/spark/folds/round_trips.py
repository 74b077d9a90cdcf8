"""What a row of ``rtt`` is, whichever protocol it comes from."""

from __future__ import annotations

from mainstem.capture.schema import Column
from mainstem.spark.folds.fold import Kind

RTT = Kind(
    "rtt",
    (
        Column("protocol", "string", "aeron, bymux or jmux"),
        Column("time_ns", "bigint", "when the answer passed"),
        Column("packet", "bigint", "number of its packet in its file"),
        Column("frame_index", "int", "which frame of that packet"),
        Column(
            "method", "string",
            "'RTTM' (question to answer), 'NAK' (first NAK to the data sent again), 'PING' (bymux, Jmux: ping to pong)",
        ),
        Column("rtt_ns", "bigint", "as the capture saw it: the way between capture and answerer, there and back"),
    ),
    "time_ns",
    ("time_ns", "packet", "frame_index", "method"),
)  # fmt: skip
