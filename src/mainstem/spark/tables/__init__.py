"""Tables as DataFrame functions: typed, documented, the same in batch and streaming.

Each takes the frames of ``mainstem.capture`` (``messages`` and ``sessions`` also rows of ``mainstem.recording``). In batch a
row comes once. In streaming (output mode ``append``) a row of a stateful table comes again when it has changed, with a higher
``revision``; ``latest(rows, TABLES[name].identity)`` keeps the last form of each. ``TABLES`` says what the columns are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.tables.aqueduct_channels import AQUEDUCT_CHANNELS, aqueduct_channels
from mainstem.spark.tables.channels import CHANNELS, channels
from mainstem.spark.tables.credits import CREDITS, credits  # noqa: A004 - the protocol's own word
from mainstem.spark.tables.flow_control import FLOW_CONTROL, flow_control
from mainstem.spark.tables.frames import FRAMES, frames
from mainstem.spark.tables.gaps import GAPS, gaps
from mainstem.spark.tables.messages import MESSAGES, messages
from mainstem.spark.tables.mux_streams import MUX_STREAMS, mux_streams
from mainstem.spark.tables.naks import NAKS, naks
from mainstem.spark.tables.problems import PROBLEMS, problems
from mainstem.spark.tables.rations import RATIONS, rations
from mainstem.spark.tables.repeats import without_repeats
from mainstem.spark.tables.requests import REQUESTS, requests
from mainstem.spark.tables.retransmits import RETRANSMITS, retransmits
from mainstem.spark.tables.rtt import RTT, rtt
from mainstem.spark.tables.sessions import RECORDED_SESSIONS, SESSIONS, sessions
from mainstem.spark.tables.status_messages import STATUS_MESSAGES, status_messages
from mainstem.spark.tables.table import Table, latest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        MESSAGES, FRAMES, SESSIONS, RECORDED_SESSIONS, GAPS, NAKS, RETRANSMITS, STATUS_MESSAGES, RTT, FLOW_CONTROL,
        CHANNELS, CREDITS, RATIONS, MUX_STREAMS, REQUESTS, AQUEDUCT_CHANNELS, PROBLEMS,
    )
}  # fmt: skip
"""Every table by name."""

OF_FRAMES: dict[str, Callable[[DataFrame], DataFrame]] = {
    function.__name__: function
    for function in (
        frames, sessions, gaps, naks, retransmits, status_messages, rtt, flow_control, channels, credits, rations,
        mux_streams, requests, aqueduct_channels, problems,
    )
}  # fmt: skip
"""The functions that take what ``mainstem.capture`` reads."""

__all__ = [
    "OF_FRAMES",
    "TABLES",
    "Table",
    "aqueduct_channels",
    "channels",
    "credits",
    "flow_control",
    "frames",
    "gaps",
    "latest",
    "messages",
    "mux_streams",
    "naks",
    "problems",
    "rations",
    "requests",
    "retransmits",
    "rtt",
    "sessions",
    "status_messages",
    "without_repeats",
]
