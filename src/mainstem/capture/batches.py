"""Rows written by compiled code, as Arrow record batches. Needs pyarrow and numpy."""

from __future__ import annotations

from functools import cache, lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any

from mainstem._core.capture import layout as layout
from mainstem.capture.problem_text import REASONS
from mainstem.capture.schema import (
    AERON_TYPES,
    BYMUX_TYPES,
    COLUMNS,
    JMUX_TYPES,
    KINDS,
    PROBLEMS,
    TCP_EVENTS,
    arrow_schema,
    arrow_types,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from mainstem._core.capture.frame_rows import FrameRows

PROTOCOLS = ("aeron", "bymux", "jmux", "aqueduct", "tcp", "problem")
TRANSPORTS = ("udp", "tcp", "quic")
_INDEXES = {
    column.name: getattr(layout, f"ROW_{column.name.upper()}")
    for column in COLUMNS
    if column.name not in ("file", "time")
} | {"payload": layout.ROW_PAYLOAD}


def column_mask(names: Sequence[str]) -> int:
    bits = 0
    for name in names:
        if name == "time":
            bits |= 1 << layout.ROW_TIME_NS
        elif name == "text":
            bits |= 1 << layout.ROW_TEXT | 1 << layout.ROW_REASON
        elif name != "file":
            bits |= 1 << _INDEXES[name]
    return bits


@cache
def kind_names() -> tuple[str, ...]:
    """Return ``frame_type`` by code (``layout.KIND_...``)."""
    names = [""] * 128
    groups = (
        (layout.KIND_AERON, list(AERON_TYPES.values())),
        (layout.KIND_BYMUX, list(BYMUX_TYPES.values())),
        (
            layout.KIND_BYMUX_GLOBAL,
            [f"GLOBAL_{name}" if name != "WRITE" else "CREATE" for name in BYMUX_TYPES.values()],
        ),
        (layout.KIND_JMUX, list(JMUX_TYPES.values())),
        (layout.KIND_TCP, list(TCP_EVENTS)),
        (layout.KIND_PROBLEM, list(PROBLEMS)),
        (layout.KIND_AQUEDUCT, list(KINDS["aqueduct"])),
    )
    for base, group in groups:
        names[base : base + len(group)] = group
    return tuple(names)


@cache
def _table(names: tuple[str, ...]) -> Any:
    import pyarrow as pa

    return pa.array(names, pa.string())


@lru_cache(maxsize=65536)
def address_text(packed: bytes) -> str:
    """Format an address. A capture has few different addresses, so the results are cached."""
    if packed.startswith(b"\0" * 10 + b"\xff\xff"):
        return str(IPv4Address(packed[12:]))
    return str(IPv6Address(packed))


def take_batch(rows: FrameRows, names: Sequence[str], file: str) -> pa.RecordBatch:
    """Move the written rows into a batch of these columns, and empty ``rows``."""
    import pyarrow as pa

    count, buffers, text, payload = rows.take()
    columns = [_column(name, count, buffers, text, payload, file) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(names))


def _column(name: str, count: int, rows: Any, text: bytearray, payload: bytearray, file: str) -> Any:
    import pyarrow as pa

    if name == "file":
        return _repeat(file, count)
    if name == "time":
        return _times(count, *rows[layout.ROW_TIME_NS])
    if name == "text":
        return _texts(count, rows, text)
    values, validity = rows[_INDEXES[name]]
    valid: Any = pa.py_buffer(validity)
    if name == "payload":
        buffers = [valid, pa.py_buffer(values), pa.py_buffer(payload)]
        return pa.Array.from_buffers(pa.binary(), count, buffers)
    if name in ("protocol", "transport", "frame_type"):
        codes = pa.Array.from_buffers(pa.int8(), count, [valid, pa.py_buffer(values)])
        table = {"protocol": PROTOCOLS, "transport": TRANSPORTS}.get(name) or kind_names()
        return _table(table).take(codes)
    if name in ("src", "dst"):
        addresses = pa.Array.from_buffers(pa.binary(16), count, [valid, pa.py_buffer(values)]).dictionary_encode()
        texts: Any = pa.array([address_text(packed) for packed in addresses.dictionary.to_pylist()], pa.string())
        return texts.take(addresses.indices)
    if name == "from_client":
        flags: Any = pa.Array.from_buffers(pa.int8(), count, [valid, pa.py_buffer(values)])
        return flags.cast(pa.bool_())
    return pa.Array.from_buffers(arrow_types()[name], count, [valid, pa.py_buffer(values)])


def _repeat(text: str, count: int) -> Any:
    import pyarrow as pa

    scalar: Any = pa.scalar(text, pa.string())
    return pa.repeat(scalar, count)


def _times(count: int, values: bytearray, validity: bytearray) -> Any:
    import numpy as np
    import pyarrow as pa

    times: Any = np.frombuffer(values, np.int64, count) // 1000
    return pa.Array.from_buffers(arrow_types()["time"], count, [pa.py_buffer(validity), pa.py_buffer(times)])


def _texts(count: int, rows: Any, text: bytearray) -> Any:
    """Return the text of each row, or the reason if the row is a problem."""
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets, validity = rows[layout.ROW_TEXT]
    own: Any = pa.Array.from_buffers(
        pa.binary(), count, [pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(text)]
    )
    values, valid = rows[layout.ROW_REASON]
    reasons = pa.Array.from_buffers(pa.int8(), count, [pa.py_buffer(valid), pa.py_buffer(values)])
    if own.null_count == count:
        return _table(REASONS).take(reasons)
    # Text from a network may not be UTF-8, but Spark's strings must be.
    pieces = [None if piece is None else piece.decode("utf-8", "replace") for piece in own.to_pylist()]
    return pc.coalesce(pa.array(pieces, pa.string()), _table(REASONS).take(reasons))
