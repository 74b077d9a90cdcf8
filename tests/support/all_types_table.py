"""A table with a column of every type, each with values that are hard to handle."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa

ODD = pa.table(
    {
        "whole": pa.array([1, None, -(2**62)], pa.int64()),
        "tiny": pa.array([1, 2, None], pa.uint8()),
        "huge": pa.array([2**64 - 1, None, 0], pa.uint64()),
        "real": pa.array([0.1, float("nan"), None]),
        "text": ['say "hi"\n\\ ☃', None, ""],
        "yes": [True, False, None],
        "day": [date(2020, 2, 29), None, date(1969, 1, 1)],
        "moment": pa.array([datetime(2020, 1, 1, 12, 30, 1, 250, UTC), None, None], pa.timestamp("ns", "UTC")),
        "clock": [time(1, 2, 3), None, None],
        "price": pa.array([Decimal("1.10"), None, Decimal("-0.05")], pa.decimal128(9, 2)),
        "bytes": [b"\x00\xff", None, b""],
        "list": [[1, 2], None, []],
        "kind": pa.array(["a", None, "b"]).dictionary_encode(),
        "odd `name'": [1, 2, 3],
    }
)
