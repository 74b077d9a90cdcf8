"""Payloads decoded in the tasks that read them: the same rows as ``decode``, and only the requested columns are built."""

from __future__ import annotations

import json
import pickle
import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tests.support.ingesting import log
from tests.support.sbe_orders import XML, order

from mainstem.codecs import find_codec
from mainstem.codecs.rows import DecodedRows
from mainstem.errors import ConfigurationError
from mainstem.spark.codec_columns import inferred_columns
from mainstem.spark.sources.features import arrow_schema
from mainstem.spark.sources.live import LiveSource
from mainstem.spark.sources.recording import RecordingSource
from mainstem.spark.sources.sql_tables import is_secret, read_options

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = ["recording_id", "stream_id", "session_id", "position"]
PLACE = StructType([StructField("lat", DoubleType(), nullable=False), StructField("name", StringType())])
COLUMNS = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("price", DoubleType()),
        StructField("name", StringType()),
        StructField("is_open", BooleanType()),
        StructField("at", TimestampType()),
        StructField("fee", DecimalType(9, 2)),
        StructField("place", PLACE),
        StructField("tags", ArrayType(StringType())),
    ]
)
AVRO = {"type": "record", "name": "T", "fields": [
    {"name": "id", "type": "long"}, {"name": "price", "type": ["null", "double"]}, {"name": "name", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "fee", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
]}  # fmt: skip
NOISE = (b"", b"\xff\x00 no message", b"{", b"[]", b'{"id": "one"}', b'{"id": 1, "place": {}}', b"1;2;3", b"\0" * 30)


def fields_of(rng: random.Random) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": rng.choice((1, -5, 2**53 + 1, 2**63 - 1)),
        "price": rng.choice((0.5, -1.0, 3, 1e300, None)),
        "name": rng.choice(("ebb", "", "h\u00e9", None)),
        "is_open": rng.random() < 0.5,
        "place": {"lat": 53.5, "name": "quay", "depth": 3},
        "tags": rng.choice(([], ["a", "b"], None)),
        "extra": rng.choice((1, "x", [1])),
    }
    for name in [*fields]:
        if rng.random() < 0.15:
            del fields[name]
    return fields


def text_messages(rng: random.Random) -> list[bytes]:
    messages = []
    for _ in range(rng.choice((5, 300))):
        lines = [
            json.dumps(fields_of(rng) | {"at": "2026-01-31T12:00:00.5Z", "fee": "1.25"})
            for _ in range(rng.choice((1, 1, 1, 2)))
        ]
        messages.append("\n".join(lines).encode())
    return messages


def proto() -> str:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    message = file.message_type.add(name="T")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate(
        {"id": kinds.TYPE_INT64, "price": kinds.TYPE_DOUBLE, "name": kinds.TYPE_STRING}.items(), 1
    ):
        message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString().hex()


def case(name: str, rng: random.Random, directory: Path) -> tuple[list[bytes], StructType, dict[str, str]]:
    """Return messages of a codec, its columns and its options."""
    rows = [fields_of(rng) for _ in range(40)]
    if name == "json":
        return text_messages(rng), COLUMNS, {}
    if name == "csv":
        lines = [f"{n};{n / 2};ebb\n{n};x;flow".encode() if n % 3 else f"{n};1.5;".encode() for n in range(40)]
        return lines, StructType(COLUMNS.fields[:3]), {"delimiter": ";", "columns": "id,price,name"}
    if name == "msgpack":
        return [msgspec.msgpack.encode(row) for row in rows], StructType([*COLUMNS.fields[:4], *COLUMNS.fields[6:]]), {}
    if name == "arrow":
        messages = [find_codec("arrow").encode_batch(pa.RecordBatch.from_pylist([row | {"id": 1}]))[0] for row in rows]
        return messages, StructType(COLUMNS.fields[:3]), {}
    if name == "sbe":
        (directory / "sbe.xml").write_text(XML)
        options = {"xml": str(directory / "sbe.xml"), "message": "Order"}
        messages = [order(n % 4, None if n % 3 else n) for n in range(40)]
        return messages, inferred_columns(find_codec("sbe", options), messages, []), options
    if name == "protobuf":
        (directory / "t.desc").write_bytes(bytes.fromhex(proto()))
        options = {"descriptors": str(directory / "t.desc"), "message": "t.T"}
        codec = find_codec("protobuf", options)
        messages = [codec.encode({"id": n, "price": n / 3, "name": "ebb"}) for n in range(40)]
        return messages, StructType(COLUMNS.fields[:3]), options
    (directory / "7.avsc").write_text(json.dumps(AVRO))
    options = {"framing": "confluent", "schemas": str(directory), "schema": str(directory / "7.avsc"), "id": "7"}
    codec = find_codec("avro", options)
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    messages = [
        codec.encode({"id": n, "price": None, "name": "x", "at": at, "fee": Decimal("1.25")}) for n in range(40)
    ]
    return (
        [*messages, messages[0][:-1], b"\0\0\0\0\x08x"],
        StructType([COLUMNS[name] for name in ("id", "at", "fee")]),
        options,
    )


def read(directory: Path, schema: StructType, **options: str) -> list[pa.RecordBatch]:
    """Read as Spark's workers do: through pickle, and with the schema compared."""
    source = RecordingSource({"path": str(directory), "rowsperbatch": "150", **options})
    reader = source.reader(schema=schema)
    batches = [
        batch
        for partition in pickle.loads(pickle.dumps(reader.partitions()))
        for batch in pickle.loads(pickle.dumps(reader)).read(partition)
    ]
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(schema))
    return batches


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def options_of(name: str, columns: StructType | None, options: dict[str, str]) -> dict[str, str]:
    declared = {} if columns is None else {"codecschema": columns.json()}
    return {"codec": name} | declared | {f"codec.{key}": value for key, value in options.items()}


CODECS = ("json", "csv", "msgpack", "arrow", "sbe", "protobuf", "avro")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CODECS)
def test_the_rows_are_those_of_decoding_afterwards(name: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    messages, columns, options = case(name, rng, tmp_path)
    messages += rng.sample(NOISE, 4)
    rng.shuffle(messages)
    log(tmp_path / "recordings", messages)
    given = options_of(name, columns, options)
    whole: Any = RecordingSource({"path": str(tmp_path / "recordings"), **given}).schema()
    known = [item.name for item in whole.fields if item.name not in (*columns.names, "problem", "rescued", "payload")]
    assert set(KNOWN) < set(known)
    found = rows_of(read(tmp_path / "recordings", whole, **given))

    plain = StructType([item for item in whole.fields if item.name in known])
    undecoded = read(tmp_path / "recordings", StructType([*plain.fields, StructField("payload", BinaryType())]))
    decode = DecodedRows(find_codec(name, options), arrow_schema(columns, timezone="Asia/Tokyo"), known)
    expected = rows_of(list(decode(iter(undecoded))))
    assert found == expected
    assert {row["problem"] is None for row in expected} == {True, False}
    assert len({row["position"] for row in found}) == len(messages)

    # Fewer columns in another order give the same rows with the same values.
    names = ["problem", *rng.sample(columns.names, 2), "position", "mainstem.message_row"]
    narrow = StructType(
        [StructField(each, IntegerType(), nullable=False) if "." in each else whole[each] for each in names]
    )
    fewer = rows_of(read(tmp_path / "recordings", narrow, **given))
    numbers = [row.pop("mainstem.message_row") for row in fewer]
    assert fewer == [{each: row[each] for each in names[:-1]} for row in expected]
    positions = [row["position"] for row in expected]
    assert numbers == [i - positions.index(position) for i, position in enumerate(positions)]


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_without_declared_columns_the_codec_has_those_of_the_schema(name: str, tmp_path: Path) -> None:
    encode = find_codec(name).encode
    log(tmp_path, [encode({"id": 1, "position": "bow", "price": 0.5}), encode({"id": "x"}), encode({"price": "x"})])
    columns = [StructField("position", LongType()), StructField("id", LongType()), StructField("problem", StringType())]
    rows = rows_of(read(tmp_path, StructType(columns), codec=name))
    assert [row["id"] for row in rows] == [1, None, None]
    # Columns missing from the schema are not decoded, so they cause no problems either.
    assert [row["problem"] is None for row in rows] == [True, False, True]
    assert all(row["position"] > 0 for row in rows)


def test_a_codec_column_hides_the_source_column_of_the_same_name(tmp_path: Path) -> None:
    log(tmp_path, [b'{"length": "long", "position": 5}'])
    declared = StructType([StructField("length", StringType()), StructField("position", LongType())])
    given = options_of("json", declared, {})
    whole: Any = RecordingSource({"path": str(tmp_path), **given}).schema()
    assert whole.names.count("length") == whole.names.count("position") == 1
    asked = StructType(
        [
            *declared.fields,
            StructField("mainstem.length", IntegerType()),
            StructField("mainstem.position", LongType()),
            StructField("mainstem.payload", BinaryType()),
        ]
    )
    ((row,),) = (rows_of(read(tmp_path, asked, **given)),)
    assert (row["length"], row["position"], row["mainstem.length"]) == ("long", 5, 33)
    assert row["mainstem.payload"] == b'{"length": "long", "position": 5}'
    assert row["mainstem.position"] > 0


@pytest.mark.parametrize(
    ("options", "columns", "sentence"),
    [
        ({"codec": "jason"}, [], "unknown codec 'jason'"),
        ({"codec.delimiter": ";"}, [], "codec.delimiter is an option of the codec, but codec is not set"),
        ({"codecschema": '{"type": "struct", "fields": []}'}, [], "codecSchema lists the columns of the codec"),
        ({"codec": "json", "codecschema": "id bigint"}, [], "codecSchema: id bigint is not a schema in JSON"),
        ({"codec": "json", "rows": "problems"}, [], "codec cannot be used with rows=problems"),
        ({"codec": "json", "codec.x": "1"}, [], "codec 'json': JsonLines has no option 'x'"),
        ({"codec": "json"}, [("id", LongType(), False)], "'id' must be bigint and nullable at every depth.* use codecSchema"),
        ({"codec": "json"}, [("problem", LongType(), True)], "'problem' is of type string, not bigint"),
        ({"codec": "json"}, [("problem", StringType(), False)], "'problem' must be nullable"),
        ({"codec": "json"}, [("position", StringType(), True)], "'position' is of type bigint, not string"),
        ({"codec": "json"}, [("mainstem.x", LongType(), True)], "no column 'x'"),
        ({"codec": "json"}, [("id", LongType(), True), ("ID", LongType(), True)], "have the same name in Spark"),
        ({"codec": "json", "codecschema": COLUMNS.json()}, [("id", ShortType(), True)], "'id' must be bigint and nullable"),
    ],
)  # fmt: skip
def test_a_wrong_option_or_column_is_named(
    options: dict[str, str], columns: list[tuple[str, Any, bool]], sentence: str
) -> None:
    schema = StructType([StructField(name, kind, nullable) for name, kind, nullable in columns])
    with pytest.raises(ConfigurationError, match=sentence):
        RecordingSource({"path": "/data", **options}).reader(schema=schema)


def test_columns_must_be_named_where_the_codec_has_none(tmp_path: Path) -> None:
    # The directory may well have messages.
    for codec in ("json", "arrow"):
        with pytest.raises(ConfigurationError) as raised:
            RecordingSource({"path": "/data", "codec": codec}).schema()
        assert str(raised.value) == (
            f"codec '{codec}': its columns are in the messages, and a source does not infer columns; name them, as in"
            " schema('position bigint, id bigint, problem string') or with codecSchema, or leave out codec and call"
            f" mainstem.spark.decode(df, '{codec}'), which infers them from the first messages of a batch"
        )
    for messages, reason in (([], "there is none"), ([b"{", b"]"], "none of 2 can be decoded")):
        with pytest.raises(ConfigurationError, match=f"its columns are in the messages, and {reason}"):
            inferred_columns(find_codec("json"), messages, [])
    (tmp_path / "t.avsc").write_text(json.dumps(AVRO))
    own = {"codec": "avro", "codec.schema": str(tmp_path / "t.avsc")}
    found: Any = RecordingSource({"path": "/data", **own}).schema()
    assert found.names[found.names.index("problem") :] == [
        "problem", "id", "price", "name", "at", "fee", "rescued", "payload",
    ]  # fmt: skip
    live: Any = LiveSource({"channel": "aeron:ipc", "streamId": "1", **own}).schema()
    assert live == found


def test_a_table_keeps_the_codec_and_none_of_its_passwords() -> None:
    given = {"option.codec": "json", "option.codecSchema": COLUMNS.json(), "location": "/data"}
    columns: Any = RecordingSource(given | {"provider": "mainstem.recording"}).schema()
    assert read_options("mainstem.recording", {}, columns) == {
        "codec": "json", "codecSchema": COLUMNS.json(), "path": "/data",
    }  # fmt: skip
    assert is_secret("codec.registry_user")
