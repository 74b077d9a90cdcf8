from __future__ import annotations

import io
import json
import pickle
import tracemalloc
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.codecs import find_codec
from mainstem.codecs.avro_schema import MAX_DEPTH
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

LONG = {"type": "long"}
TRADE: dict[str, Any] = {
    "type": "record", "name": "Trade", "namespace": "tides", "fields": [
        {"name": "id", "type": "long"}, {"name": "count", "type": "int"}, {"name": "flag", "type": "boolean"},
        {"name": "ratio", "type": "float"}, {"name": "price", "type": "double"}, {"name": "raw", "type": "bytes"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "levels", "type": {"type": "map", "values": {"type": "record", "name": "Level", "fields": [
            {"name": "depth", "type": ["int", "null"]}]}}},
        {"name": "at", "type": LONG | {"logicalType": "timestamp-micros"}},
        {"name": "at_ms", "type": LONG | {"logicalType": "timestamp-millis"}},
        {"name": "at_ns", "type": LONG | {"logicalType": "timestamp-nanos"}},
        {"name": "local", "type": LONG | {"logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": LONG | {"logicalType": "time-micros"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}},
        {"name": "fee", "type": {"type": "fixed", "name": "Fee", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "moment", "type": ["int", "float", LONG | {"logicalType": "timestamp-micros"}, "double", "Hash"]},
        {"name": "either", "type": ["null", "long", "string", "Level", "Side"]},
    ],
}  # fmt: skip
COLUMNS = pa.schema(
    [
        ("id", pa.int64()), ("count", pa.int32()), ("flag", pa.bool_()), ("ratio", pa.float32()), ("price", pa.float64()),
        ("raw", pa.binary()), ("name", pa.string()), ("side", pa.string()), ("hash", pa.binary()), ("tags", pa.list_(pa.string())),
        ("levels", pa.map_(pa.string(), pa.struct([("depth", pa.int32())]))),
        ("at", pa.timestamp("us", "UTC")), ("at_ms", pa.timestamp("us", "UTC")), ("at_ns", pa.int64()),
        ("local", pa.timestamp("us")), ("day", pa.date32()), ("clock", pa.int64()), ("amount", pa.decimal128(20, 3)),
        ("fee", pa.decimal128(9, 2)), ("key", pa.string()),
        ("moment", pa.struct([
            ("long", pa.int32()), ("double", pa.float64()), ("timestamp_micros", pa.timestamp("us", "UTC")), ("Hash", pa.binary()),
        ])),
        ("either", pa.struct([
            ("long", pa.int64()), ("string", pa.string()), ("Level", pa.struct([("depth", pa.int32())])), ("Side", pa.string()),
        ])),
    ]
)  # fmt: skip
KEY = "8c2f5a0e-5a55-4d2c-9df6-0d6f3a7b1c11"
ROW: dict[str, Any] = {
    "id": 1 << 40, "count": -7, "flag": True, "ratio": 0.5, "price": 2.25, "raw": b"\x00\xff", "name": None, "side": "SELL",
    "hash": b"abcd", "tags": ["a", "b"], "levels": {"x": {"depth": 3}, "y": {"depth": None}},
    "at": datetime(2026, 1, 31, 12, 0, 0, 123456, UTC), "at_ms": datetime(1960, 1, 1, 0, 0, 0, 5000, UTC),
    "at_ns": 1234567890123456789, "local": datetime(2026, 1, 31, 12, 0, 0, 5), "day": date(2026, 1, 31), "clock": 3_723_000_004,
    "amount": Decimal("-123456789.125"), "fee": Decimal("1.25"), "key": KEY, "either": None,
    "moment": {"timestamp_micros": datetime(2026, 1, 31, tzinfo=UTC)},
}  # fmt: skip


def file_of(directory: Path, schema: Any, name: str = "schema.avsc") -> str:
    (directory / name).write_text(json.dumps(schema))
    return str(directory / name)


def written(schema: Any, datum: Any) -> bytes:
    """Encode with fastavro itself and its own logical types."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields]}


def test_every_type_becomes_its_column_and_the_values_of_fastavro_s_own_writer(tmp_path: Path) -> None:
    codec = pickle.loads(pickle.dumps(find_codec("avro", {"schema": file_of(tmp_path, TRADE)})))
    assert codec.schema([]) == COLUMNS
    datum = ROW | {"either": ("tides.Level", {"depth": 5}), "key": uuid.UUID(KEY)}
    datum["clock"] = time(1, 2, 3, 4)
    datum["moment"] = datum["moment"]["timestamp_micros"]
    row = ROW | {"either": {"Level": {"depth": 5}}}
    assert codec.decode(written(TRADE, datum)) == [row]
    decoded = codec.decode_batch([written(TRADE, datum), b"\x01", written(TRADE, datum)], COLUMNS)
    assert decoded.origins == [0, 2]
    assert "cut off" in decoded.problems[1]
    batch = pa.RecordBatch.from_arrays(decoded.columns, schema=COLUMNS)
    whole = {"long": None, "string": None, "Level": {"depth": 5}, "Side": None}
    moment = {"long": None, "double": None, "Hash": None} | ROW["moment"]
    assert batch.to_pylist(maps_as_pydicts="strict") == [row | {"either": whole, "moment": moment}] * 2
    assert codec.encode_batch(batch) == [written(TRADE, datum)] * 2


@pytest.mark.parametrize("value", [None, {"long": 5}, {"string": "x"}, {"Level": {"depth": None}}, {"Side": "BUY"}])
def test_a_union_is_a_struct_of_its_branches(tmp_path: Path, value: Any) -> None:
    codec = find_codec("avro", {"schema": file_of(tmp_path, TRADE)})
    for moment in ({"long": 5}, {"double": 0.5}, {"Hash": b"abcd"}):
        assert codec.decode(codec.encode(ROW | {"moment": moment})) == [ROW | {"moment": moment}]
    assert codec.decode(codec.encode(ROW | {"either": value})) == [ROW | {"either": value}]


def test_a_schema_evolves(tmp_path: Path) -> None:
    writer = record(("id", "int"), ("gone", "string"))
    reader = record(("id", "long"))
    reader["fields"].append({"name": "venue", "type": ["null", "string"], "default": None})
    options = {"schema": file_of(tmp_path, reader), "writer": file_of(tmp_path, writer, "writer.avsc")}
    codec = find_codec("avro", options)
    assert codec.decode(written(writer, {"id": 5, "gone": "x"})) == [{"id": 5, "venue": None}]
    assert codec.encode({"id": 5, "gone": "x"}) == written(writer, {"id": 5, "gone": "x"})


def test_a_default_has_the_type_of_its_field(tmp_path: Path) -> None:
    """fastavro takes the default from the schema in its JSON form: text for bytes, a number for a time."""
    micros = LONG | {"logicalType": "timestamp-micros"}
    money = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    inner = {"type": "record", "name": "I", "fields": [{"name": "b", "type": "bytes", "default": "\u00ff"}]}
    reader = record(("id", "long"))
    reader["fields"] += [
        {"name": name, "type": kind, "default": default}
        for name, kind, default in (
            ("raw", "bytes", "\u00ff"), ("at", micros, 1_500_000), ("fee", money, "\u0001\u0000"),
            ("maybe", [micros, "null"], 0),
            ("day", {"type": "int", "logicalType": "date"}, 1), ("inner", inner, {}),
            ("all", {"type": "array", "items": "I"}, [{}]),
            ("d", "double", 1), ("none", ["null", "string"], None),
        )
    ]  # fmt: skip
    options = {"schema": file_of(tmp_path, reader), "writer": file_of(tmp_path, record(("id", "long")), "w.avsc")}
    codec = find_codec("avro", options)
    row = {
        "id": 5, "raw": b"\xff", "at": datetime(1970, 1, 1, 0, 0, 1, 500000, UTC), "fee": Decimal("2.56"),
        "maybe": datetime(1970, 1, 1, tzinfo=UTC), "day": date(1970, 1, 2), "inner": {"b": b"\xff"}, "all": [{"b": b"\xff"}],
        "d": 1.0, "none": None,
    }  # fmt: skip
    payload = written(record(("id", "long")), {"id": 5})
    assert codec.decode(payload) == [row]
    decoded = codec.decode_batch([payload], codec.schema([]))
    assert decoded.problems == {}
    whole = find_codec("avro", {"schema": options["schema"]})
    assert whole.decode(whole.encode({"id": 5})) == [row]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"count": 1 << 31}, "count: 2147483648 is not an Avro int"), ({"flag": 1}, "flag: 1 is not an Avro boolean"),
        ({"id": True}, "id: True is not an Avro long"), ({"side": "HOLD"}, "side: 'HOLD' is no"),
        ({"hash": b"abc"}, "hash: b'abc' is no"),
        ({"at": datetime(2026, 1, 1)}, "at: .* is not an Avro timestamp-micros"),
        ({"fee": Decimal("0.001")}, "fee: .* is not an Avro decimal"),
        ({"fee": Decimal(10) ** 8}, "fee: .* is not an Avro decimal"), ({"other": 1}, "other: the schema has no such field"),
        ({"id": None}, "id: None is not an Avro long"), ({"either": {"long": 1, "string": "x"}}, "either: one of long, string"),
        ({"at_ms": datetime(2026, 1, 1, 0, 0, 0, 1, UTC)}, "at_ms: .* is not an Avro timestamp-millis"),
        ({"price": (1 << 53) + 1}, "price: .* is not an Avro double"),
        ({"levels": {"x": {"depth": "3"}}}, "levels.x.depth: '3' is not an Avro int"),
    ],
)  # fmt: skip
def test_no_value_is_changed_by_writing(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        find_codec("avro", {"schema": file_of(tmp_path, TRADE)}).encode(ROW | change)


PLAIN = record(("n", "long"), ("t", ["null", "string"]), ("l", {"type": "array", "items": "double"}))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "n": st.integers(-(1 << 63), (1 << 63) - 1),
                "t": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
                "l": st.lists(st.floats(allow_nan=False), max_size=3),
            }
        ),
        min_size=1,
        max_size=4,
    )
)
def test_encoding_round_trips(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    codec = find_codec("avro", {"schema": file_of(tmp_path_factory.mktemp("avro"), PLAIN)})
    payloads = [codec.encode(row) for row in rows]
    assert [codec.decode(each) for each in payloads] == [[row] for row in rows]
    decoded = codec.decode_batch(payloads, codec.schema([]))
    assert pa.RecordBatch.from_arrays(decoded.columns, schema=codec.schema([])).to_pylist() == rows
    assert payloads == [written(PLAIN, row) for row in rows]


def serialized(client: Any, schema: Any, *rows: Any) -> list[bytes]:
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    serializer = AvroSerializer(client, json.dumps(schema))
    return [serializer(row, SerializationContext("tides", MessageField.VALUE)) for row in rows]


def test_messages_of_confluents_serializer_are_read_by_schema_number(tmp_path: Path) -> None:
    confluent = pytest.importorskip("confluent_kafka.schema_registry")
    client = confluent.SchemaRegistryClient.new_client({"url": "mock://avro"})
    old, new = record(("id", "int"), name="T"), record(("id", "int"), ("t", ["null", "string"]), name="T")
    new["fields"][1]["default"] = None
    payloads = serialized(client, old, {"id": 1}) + serialized(client, new, {"id": 2, "t": "x"})
    for payload in payloads:
        number = int.from_bytes(payload[1:5], "big")
        (tmp_path / f"{number}.avsc").write_text(client.get_schema(number).schema_str)
    options = {"framing": "confluent", "schemas": str(tmp_path)}
    rows = [{"id": 1, "t": None}, {"id": 2, "t": "x"}]
    for more in ({"schema": file_of(tmp_path, new, "reader.avsc")}, {}):
        codec = pickle.loads(pickle.dumps(find_codec("avro", options | more)))
        schema = codec.schema(payloads)
        decoded = codec.decode_batch([*payloads, b"\0\0\0\x09\x09\x02", b"plain"], schema)
        assert pa.RecordBatch.from_arrays(decoded.columns, schema=schema).to_pylist() == rows
        assert "has no schema 2313.avsc" in decoded.problems[2]
        assert "no Confluent framing" in decoded.problems[3]
    number = int.from_bytes(payloads[1][1:5], "big")
    assert find_codec("avro", options | {"id": str(number)}).encode(rows[1]) == payloads[1]


def test_a_single_object_names_its_schema_by_fingerprint(tmp_path: Path) -> None:
    old, new = record(("id", "int"), name="T"), record(("id", "long"), name="T")
    options = {"schema": file_of(tmp_path, new, "n.avsc"), "framing": "single-object"}
    payload = find_codec("avro", {"schema": file_of(tmp_path, old, "o.avsc"), "framing": "single-object"}).encode(
        {"id": 3}
    )
    assert payload[:2] == b"\xc3\x01"
    assert payload[10:] == written(old, {"id": 3})
    with pytest.raises(ValueError, match="no schema with the fingerprint"):
        find_codec("avro", options).decode(payload)
    assert find_codec("avro", options | {"schemas": str(tmp_path)}).decode(payload) == [{"id": 3}]


def test_the_fingerprint_is_that_of_the_specification(tmp_path: Path) -> None:
    """Compute CRC-64-AVRO as the specification defines it, bit by bit, little-endian."""
    canonical = b'{"name":"T","type":"record","fields":[{"name":"id","type":"int"}]}'
    fingerprint = empty = 0xC15D213AA4D7A795
    table = []
    for i in range(256):
        value = i
        for _ in range(8):
            value = (value >> 1) ^ (empty & -(value & 1))
        table.append(value)
    for byte in canonical:
        fingerprint = (fingerprint >> 8) ^ table[(fingerprint ^ byte) & 0xFF]
    schema = file_of(tmp_path, record(("id", "int"), name="T"))
    payload = find_codec("avro", {"schema": schema, "framing": "single-object"}).encode({"id": 1})
    assert payload[2:10] == fingerprint.to_bytes(8, "little")


def varint(value: int) -> bytes:
    value, out = (value << 1) ^ (value >> 63), b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


WIDE = record(*((f"f{i}", ["null", "long"]) for i in range(500)), name="Wide")
SLIM = record(("b", "boolean"), *((f"f{i}", "null") for i in range(500)), name="Slim")


@pytest.mark.parametrize(
    ("items", "payload", "reason"),
    [
        ("long", varint(1 << 60) + b"\x02" * 10, "cut off"),
        ("long", varint(-(1 << 60)) + varint(1 << 61) + b"\x02" * 10, "cut off"),
        ("string", varint(1 << 40) + varint(1 << 50) + b"x", "cut off"),
        (SLIM, varint(1 << 20) + b"\x01" * (1 << 20), "may have more than"),
        ("long", b"\xff" * 40, "cut off"),
        ("long", varint(3) + b"\x02\x02\x02\x00rest", "4 bytes are left"),
    ],
    ids=["count", "sized block", "length", "few bytes, many values", "endless number", "rest"],
)  # fmt: skip
def test_a_hostile_message_is_a_problem_and_takes_little_memory(
    tmp_path: Path, items: Any, payload: bytes, reason: str
) -> None:
    codec = find_codec(
        "avro", {"schema": file_of(tmp_path, record(("l", {"type": "array", "items": items}), name="Outer"))}
    )
    schema = codec.schema([])
    tracemalloc.start()
    try:
        problem = codec.decode_batch([payload], schema).problems[0]
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert reason in problem


def nested(depth: int) -> Any:
    return "long" if depth == 0 else {"type": "array", "items": nested(depth - 1)}


def doubled(depth: int) -> Any:
    """Return a small schema that expands to 2**depth types."""
    kind: Any = record(("x", "long"), name="D0")
    for i in range(1, depth):
        kind = {
            "type": "record",
            "name": f"D{i}",
            "fields": [{"name": "a", "type": kind}, {"name": "b", "type": f"D{i - 1}"}],
        }
    return kind


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (record(("next", ["null", "R"])), "R contains itself"),
        (record(("l", {"type": "array", "items": "null"})), "l.*: items of no bytes"),
        (record(("m", nested(MAX_DEPTH + 1))), "deeper than"),
        (doubled(40), "more than"),
        ("long", "a message is a record"),
        (record(("x", "nothing")), "UnknownType"),
        (record(("x", {"type": "bytes", "logicalType": "decimal", "precision": 50})), "50 digits"),
    ],
)  # fmt: skip
def test_an_unsupported_schema_is_rejected(tmp_path: Path, schema: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        find_codec("avro", {"schema": file_of(tmp_path, schema)})


def test_a_too_deeply_nested_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.avsc").write_text('{"type":' * 100_000 + '"long"' + "}" * 100_000)
    with pytest.raises(ConfigurationError, match="deeper than"):
        find_codec("avro", {"schema": str(tmp_path / "deep.avsc")})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "the option schema names"), ({"framing": "kafka"}, "one of .*'kafka'"), ({"schema": "/nowhere"}, "No such file"),
        ({"framing": "confluent", "schemas": "/nowhere"}, "is not a directory"), ({"color": "blue"}, "no option 'color'"),
        ({"framing": "confluent", "registry": "ftp://x"}, "not an http"), ({"registry": "http://x"}, "is for framing=confluent"),
        ({"framing": "confluent", "registry": "http://a:b@x"}, "ends up in logs"),
        ({"framing": "confluent", "registry": "http://x", "registry_user": "a:b"}, "unencrypted"),
        ({"framing": "confluent", "registry": "http://x", "id": "x"}, "'x' is not a schema id"),
    ],
)  # fmt: skip
def test_invalid_options_are_rejected(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        find_codec("avro", options)
