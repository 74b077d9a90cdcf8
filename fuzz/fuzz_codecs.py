"""Messages in every format that needs no schema: each becomes rows or a problem, with inferred columns and with others.

The first byte selects the codec. The second is the byte at which to split the messages.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pyarrow as pa

from mainstem.codecs import find_codec
from mainstem.codecs.rows import DecodedRows

CODECS = [find_codec("json"), find_codec("csv", {"columns": "n,t"}), find_codec("msgpack"), find_codec("arrow")]
STRUCT = pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.list_(pa.decimal128(10, 3)))])
SCHEMA = pa.schema(
    [
        ("n", pa.int64()), pa.field("t", pa.string(), nullable=False), ("f", pa.float64()), ("g", pa.float32()), ("s", STRUCT),
        ("d", pa.decimal128(38, 10)), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()),
        ("m", pa.map_(pa.string(), pa.int8())),
    ]
)  # fmt: skip


def _arrow() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"n": [1, None], "t": ["ebb", "flow"], "s": [{"x": 1, "y": None}, None], "more": [[1.5], []]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


JSON = (
    b'{"n": 9007199254740993.0, "t": "\\ud800", "o": {}}', b'{"t": "x", "s": {"x": 1, "y": [1.5, "2.5"]}, "T": [[]], "": 1}',
    b'{"f": 0.12345678901234567890, "g": 0.1, "d": "123.5", "at": "2026-01-31T12:00:00Z", "day": "0000-01-01"}',
)  # fmt: skip
PACKED = msgspec.msgpack.encode(
    {"n": 1, "t": "x", "f": 1.5, "s": {"x": 2}, "x": msgspec.msgpack.Ext(5, b"x"), "m": {"k": 1}}
)
SEEDS = [b"\0;" + b";".join(JSON), b"\1;5,x;0x5,y;1e400,", b"\2\xff" + PACKED, b"\3\xfe" + _arrow()]


def target(data: bytes) -> None:
    """Process one input."""
    if len(data) < 2:
        return
    codec, messages = CODECS[data[0] % len(CODECS)], data[2:].split(data[1:2])
    schemas = [SCHEMA]
    with suppress(ValueError):
        schemas.append(codec.schema(messages))
    batch = pa.record_batch({"message": messages, "id": range(len(messages))})
    for schema in schemas:
        (rows,) = DecodedRows(codec, schema, ["id"], "message")(iter([batch]))
        rows.validate(full=True)
        assert set(rows.column("id").to_pylist()) == set(range(len(messages)))
        for problem, payload in zip(
            rows.column("problem").to_pylist(), rows.column("payload").to_pylist(), strict=True
        ):
            assert (problem is None) == (payload is None)
