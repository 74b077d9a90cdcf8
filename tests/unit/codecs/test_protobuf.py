from __future__ import annotations

import base64
import json
import pickle
import tracemalloc
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

import mainstem.codecs.protobuf_rows
from mainstem.codecs import find_codec
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.schema_registry import Registry

F = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "i32": F.TYPE_INT32, "s32": F.TYPE_SINT32, "x32": F.TYPE_SFIXED32, "i64": F.TYPE_INT64, "s64": F.TYPE_SINT64,
    "x64": F.TYPE_SFIXED64, "u32": F.TYPE_UINT32, "f32": F.TYPE_FIXED32, "u64": F.TYPE_UINT64, "f64": F.TYPE_FIXED64,
    "flt": F.TYPE_FLOAT, "dbl": F.TYPE_DOUBLE, "flag": F.TYPE_BOOL, "name": F.TYPE_STRING, "raw": F.TYPE_BYTES,
}  # fmt: skip


def add(message: Any, name: str, number: int, kind: int, type_name: str = "", **more: Any) -> Any:
    label = F.LABEL_REPEATED if more.pop("repeated", False) else F.LABEL_OPTIONAL
    if type_name:
        more["type_name"] = type_name
    return message.field.add(name=name, number=number, type=kind, label=label, **more)


def tides() -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor that protoc makes of a file with two messages and a nested one."""
    file = descriptor_pb2.FileDescriptorProto(name="tides.proto", package="tides", syntax="proto3")
    file.dependency.extend(
        f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers", "struct", "empty")
    )
    side = file.enum_type.add(name="Side")
    for number, name in enumerate(("NONE", "BUY", "SELL")):
        side.value.add(name=name, number=number)
    other = file.message_type.add(name="Other")
    add(other, "id", 1, F.TYPE_INT32)
    trade = file.message_type.add(name="Trade")
    for number, (name, kind) in enumerate(SCALARS.items(), 1):
        add(trade, name, number, kind)
    add(trade, "side", 20, F.TYPE_ENUM, ".tides.Side")
    add(trade, "tags", 21, F.TYPE_STRING, repeated=True)
    trade.oneof_decl.add(name="which")
    add(trade, "left", 22, F.TYPE_INT32, oneof_index=0)
    add(trade, "right", 23, F.TYPE_STRING, oneof_index=0)
    trade.oneof_decl.add(name="_maybe")
    add(trade, "maybe", 24, F.TYPE_INT32, oneof_index=1, proto3_optional=True)
    level = trade.nested_type.add(name="Level")
    add(level, "depth", 1, F.TYPE_DOUBLE)
    entry = trade.nested_type.add(name="LevelsEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, F.TYPE_STRING)
    add(entry, "value", 2, F.TYPE_MESSAGE, ".tides.Trade.Level")
    add(trade, "level", 25, F.TYPE_MESSAGE, ".tides.Trade.Level")
    add(trade, "levels", 26, F.TYPE_MESSAGE, ".tides.Trade.LevelsEntry", repeated=True)
    add(trade, "ladder", 27, F.TYPE_MESSAGE, ".tides.Trade.Level", repeated=True)
    for number, (name, kind) in enumerate(
        {"at": "Timestamp", "took": "Duration", "count": "UInt64Value", "more": "Struct", "mark": "Empty"}.items(), 28
    ):
        add(trade, name, number, F.TYPE_MESSAGE, f".google.protobuf.{kind}")
    return file


LEVEL = pa.struct([("depth", pa.float64())])
COLUMNS = pa.schema(
    [
        ("i32", pa.int32()), ("s32", pa.int32()), ("x32", pa.int32()), ("i64", pa.int64()), ("s64", pa.int64()),
        ("x64", pa.int64()), ("u32", pa.int64()), ("f32", pa.int64()), ("u64", pa.decimal128(20, 0)), ("f64", pa.decimal128(20, 0)),
        ("flt", pa.float32()), ("dbl", pa.float64()), ("flag", pa.bool_()), ("name", pa.string()), ("raw", pa.binary()),
        ("side", pa.string()), ("tags", pa.list_(pa.string())), ("left", pa.int32()), ("right", pa.string()), ("maybe", pa.int32()),
        ("level", LEVEL), ("levels", pa.map_(pa.string(), LEVEL)), ("ladder", pa.list_(LEVEL)), ("at", pa.timestamp("us", "UTC")),
        ("took", pa.duration("us")), ("count", pa.decimal128(20, 0)), ("more", pa.string()), ("mark", pa.bool_()),
    ]
)  # fmt: skip
ROW: dict[str, Any] = {
    "i32": -(1 << 31), "s32": -5, "x32": 7, "i64": -(1 << 63), "s64": 1 << 40, "x64": -1, "u32": (1 << 32) - 1, "f32": 1 << 31,
    "u64": Decimal((1 << 64) - 1), "f64": Decimal(1 << 63), "flt": 0.5, "dbl": 0.1, "flag": True, "name": "ebb", "raw": b"\xff",
    "side": "SELL", "tags": ["a", ""], "left": None, "right": "r", "maybe": 0, "level": {"depth": 1.5},
    "levels": {"x": {"depth": 2.5}}, "ladder": [{"depth": 0.0}, {"depth": 3.5}],
    "at": datetime(1960, 1, 31, 12, 0, 0, 123456, UTC), "took": timedelta(seconds=-1, microseconds=-500000),
    "count": Decimal(0), "more": '{"a":[1.0,"x"]}', "mark": True,
}  # fmt: skip


def write_set(path: Path, *files: descriptor_pb2.FileDescriptorProto) -> str:
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())
    return str(path)


def class_of(file: descriptor_pb2.FileDescriptorProto, name: str) -> Any:
    """Return protobuf's own class, from a separate pool."""
    pool = descriptor_pool.DescriptorPool()
    for dependency in file.dependency:
        pool.AddSerializedFile(descriptor_pool.Default().FindFileByName(dependency).serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {"descriptors": write_set(tmp_path / "tides.desc", tides()), "message": "tides.Trade"}


def filled() -> Any:
    message = class_of(tides(), "tides.Trade")()
    for name in SCALARS:
        setattr(message, name, int(ROW[name]) if isinstance(ROW[name], Decimal) else ROW[name])
    message.side, message.right, message.maybe = 2, "r", 0
    message.tags.extend(["a", ""])
    message.level.depth = 1.5
    message.levels["x"].depth = 2.5
    message.ladder.add()
    message.ladder.add(depth=3.5)
    message.at.FromDatetime(ROW["at"].replace(tzinfo=None))
    message.took.FromTimedelta(ROW["took"])
    message.count.value = 0
    message.more.update({"a": [1, "x"]})
    message.mark.SetInParent()
    return message


def test_every_type_becomes_its_column_and_the_bytes_of_protobuf_s_own_classes(options: dict[str, str]) -> None:
    codec = pickle.loads(pickle.dumps(find_codec("protobuf", options)))
    assert codec.schema([]) == COLUMNS
    payload = filled().SerializeToString(deterministic=True)
    assert codec.decode(payload) == [ROW]
    decoded = codec.decode_batch([payload, b"\x08", payload], COLUMNS)
    assert (decoded.origins, list(decoded.problems), decoded.rescued) == ([0, 2], [1], {})
    batch = pa.RecordBatch.from_arrays(decoded.columns, schema=COLUMNS)
    assert batch.to_pylist(maps_as_pydicts="strict") == [ROW] * 2
    assert codec.encode_batch(batch) == [payload] * 2


def test_unset_fields_are_null_with_presence_and_default_otherwise(options: dict[str, str]) -> None:
    (row,) = find_codec("protobuf", options).decode(b"")
    absent = {name for name, value in row.items() if value is None}
    assert absent == {"left", "right", "maybe", "level", "at", "took", "count", "more", "mark"}
    assert (row["i32"], row["side"], row["tags"], row["levels"], row["u64"]) == (0, "NONE", [], {}, Decimal(0))
    assert find_codec("protobuf", options).encode({}) == b""


def test_fields_that_the_descriptor_lacks_are_rescued_by_number(options: dict[str, str]) -> None:
    file = tides()
    add(file.message_type[1], "fresh", 500, F.TYPE_INT32)
    add(file.message_type[1], "many", 501, F.TYPE_STRING, repeated=True)
    add(file.message_type[1].nested_type[0], "inner", 9, F.TYPE_INT32)
    message = class_of(file, "tides.Trade")(fresh=7, many=["a", "b"], level={"depth": 1.5, "inner": 4}, side=9)
    decoded = find_codec("protobuf", options).decode_batch([message.SerializeToString()], COLUMNS)
    assert decoded.problems == {}
    assert json.loads(decoded.rescued[0]) == {"500": 7, "501": ["YQ==", "Yg=="], "level": {"9": 4}}
    assert decoded.columns[COLUMNS.names.index("side")].to_pylist() == ["9"]


def test_a_time_between_microseconds_is_a_problem_or_an_integer(options: dict[str, str]) -> None:
    payload = class_of(tides(), "tides.Trade")(at={"seconds": 5, "nanos": 7}).SerializeToString()
    with pytest.raises(ValueError, match="timestamps=ns keeps them"):
        find_codec("protobuf", options).decode(payload)
    codec = find_codec("protobuf", options | {"timestamps": "ns"})
    assert codec.schema([]).field("at").type == pa.int64()
    assert codec.decode(payload)[0]["at"] == 5_000_000_007
    assert codec.encode({"at": 5_000_000_007}) == payload


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"i32": 1 << 31}, "i32: "), ({"i32": True}, "i32: True"), ({"u64": Decimal("1.5")}, "u64: "), ({"u32": -1}, "u32: "),
        ({"side": "HOLD"}, "side: must be one of"), ({"left": 1, "right": "r"}, "right: left of the same oneof"),
        ({"other": 1}, "other: the message has no such field"), ({"at": datetime(2026, 1, 1)}, "at: .*offset from UTC"),
        ({"level": {"deep": 1}}, "level.deep: "), ({"name": b"x"}, "name: "),
        ({"flag": 1}, "flag: "), ({"tags": "ab"}, "not a list"),
    ],
)  # fmt: skip
def test_no_value_is_changed_by_writing(options: dict[str, str], change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        find_codec("protobuf", options).encode(change)


@settings(max_examples=40, deadline=None)
@given(
    row=st.fixed_dictionaries(
        {
            "i64": st.integers(-(1 << 63), (1 << 63) - 1),
            "u64": st.integers(0, (1 << 64) - 1).map(Decimal),
            "dbl": st.floats(allow_nan=False),
            "name": st.text(st.characters(exclude_categories=["Cs"])),
            "raw": st.binary(),
            "side": st.sampled_from(["NONE", "BUY", "SELL", "77"]),
            "maybe": st.none() | st.integers(-5, 5),
            "tags": st.lists(st.text("ab"), max_size=3),
            "levels": st.dictionaries(st.text("ab"), st.fixed_dictionaries({"depth": st.floats(allow_nan=False)})),
            "at": st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)),
            "took": st.none() | st.timedeltas(timedelta(days=-9999), timedelta(days=9999)),
            "count": st.none() | st.integers(0, 1 << 60).map(Decimal),
        }
    )
)
def test_encoding_round_trips(tmp_path_factory: pytest.TempPathFactory, row: dict[str, Any]) -> None:
    directory = tmp_path_factory.mktemp("protobuf")
    codec = find_codec("protobuf", {"descriptors": write_set(directory / "t.desc", tides()), "message": "tides.Trade"})
    assert codec.decode(codec.encode(row))[0] | row == codec.decode(codec.encode(row))[0]
    batch = pa.RecordBatch.from_pylist([row], schema=codec.schema([]))
    decoded = codec.decode_batch(codec.encode_batch(batch), codec.schema([]))
    assert decoded.problems == {}
    result = pa.RecordBatch.from_arrays(decoded.columns, schema=codec.schema([])).to_pylist(maps_as_pydicts="strict")[0]
    assert {name: result[name] for name in row} == row


def serialized(client: Any, message: Any) -> bytes:
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    serializer = ProtobufSerializer(type(message), client, {"use.deprecated.format": False})
    result: bytes = serializer(message, SerializationContext("tides", MessageField.VALUE))
    return result


def test_messages_of_confluents_serializer_are_read(options: dict[str, str]) -> None:
    confluent = pytest.importorskip("confluent_kafka.schema_registry")
    client = confluent.SchemaRegistryClient.new_client({"url": "mock://protobuf"})
    first = descriptor_pb2.FileDescriptorSet(file=[{"name": "x"}])
    nested = descriptor_pb2.DescriptorProto.ExtensionRange(start=3)
    own = write_set_of(options, descriptor_pb2.DESCRIPTOR)
    for message, name in ((nested, "google.protobuf.DescriptorProto.ExtensionRange"),):
        payload = serialized(client, message)
        codec = find_codec("protobuf", own | {"message": name, "framing": "confluent", "id": str(number_of(payload))})
        row = codec.decode(payload)[0]
        assert row["start"] == 3
        assert codec.encode({"start": 3}) == payload
        assert payload[5:6] != b"\0"
        with pytest.raises(ValueError, match=r"'google\.protobuf\.FileDescriptorSet', not"):
            codec.decode(serialized(client, first))
    time = timestamp_pb2.Timestamp(seconds=5, nanos=9)
    codec = find_codec("protobuf", {"module": "google.protobuf.timestamp_pb2:Timestamp", "framing": "confluent"})
    assert codec.decode(serialized(client, time)) == [{"seconds": 5, "nanos": 9}]
    assert serialized(client, time)[5:6] == b"\0"


def number_of(payload: bytes) -> int:
    return int.from_bytes(payload[1:5], "big")


def write_set_of(options: dict[str, str], descriptor: Any) -> dict[str, str]:
    file = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(file)
    with open(options["descriptors"], "wb") as out:
        out.write(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return {"descriptors": options["descriptors"]}


def framed(number: int, indexes: bytes, message: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes + message


@pytest.mark.parametrize("source", ["registry", "schemas"])
def test_the_types_of_messages_come_from_a_source_by_number(registry: Registry, tmp_path: Path, source: str) -> None:
    old, new = tides(), tides()
    add(new.message_type[0], "fresh", 2, F.TYPE_STRING)
    for number, file in ((21, old), (22, new)):
        text = base64.b64encode(file.SerializeToString()).decode()
        references = [{"name": name, "subject": name, "version": 1} for name in file.dependency]
        body = json.dumps({"schema": text, "schemaType": "PROTOBUF", "references": references}).encode()
        registry.responses[f"/schemas/ids/{number}?format=serialized"] = (200, body)
        write_set(tmp_path / f"{number}.desc", file)
    location = str(tmp_path) if source == "schemas" else f"http://127.0.0.1:{registry.server_port}"
    payloads = [framed(21, b"\0", b"\x08\x05"), framed(22, b"\x02\x00", b"\x08\x06\x12\x01x"), framed(23, b"\0", b"")]
    codec = pickle.loads(
        pickle.dumps(find_codec("protobuf", {"framing": "confluent", source: location, "message": "tides.Other"}))
    )
    schema = codec.schema(payloads)
    decoded = codec.decode_batch([*payloads, framed(21, b"\x02\x02", b"")], schema)
    rows = pa.RecordBatch.from_arrays(decoded.columns, schema=schema).to_pylist()
    assert rows == [{"id": 5, "fresh": None}, {"id": 6, "fresh": "x"}]
    assert "has no schema 23" in decoded.problems[2]
    assert "'tides.Trade', not 'tides.Other'" in decoded.problems[3]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x01\0\0\0\x01\0", "no Confluent framing"), (b"\0\0\0\0\x01", "indexes .* cut off"),
        (framed(1, b"\x80" * 9, b""), "cut off"),
        (framed(1, b"\xfe\x01", b""), "127 indexes"), (framed(1, b"\x02\x20", b""), "no message at the indexes"),
        (framed(1, b"\x01", b""), "-1 indexes"), (framed(1, b"\x02\x01", b""), "no message at the indexes"),
    ],
)  # fmt: skip
def test_a_framing_that_names_no_message_is_a_problem(options: dict[str, str], payload: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        find_codec("protobuf", options | {"framing": "confluent"}).decode(payload)


def test_a_message_of_many_values_is_a_problem(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mainstem.codecs.protobuf_rows, "MAX_VALUES", 10_000)
    codec = find_codec("protobuf", options)
    # An empty level of the ladder takes three bytes.
    payload = b"\xda\x01\x00" * 200_000
    tracemalloc.start()
    try:
        decoded = codec.decode_batch([payload, b""], COLUMNS)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
    assert "more than 10000 values" in decoded.problems[0]
    assert decoded.origins == [1]


def recursive() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="r", syntax="proto3")
    node = file.message_type.add(name="Node")
    add(node, "next", 1, F.TYPE_MESSAGE, ".r.Node")
    file.message_type.add(name="Nothing")
    return file


def test_unsupported_types_are_refused(tmp_path: Path) -> None:
    location = write_set(tmp_path / "r.desc", recursive())
    for name, reason in (
        ("r.Node", "r.Node contains itself"),
        ("r.Nothing", "no fields"),
        ("r.Other", "one of r.Node"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            find_codec("protobuf", {"descriptors": location, "message": name})


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "name the type of the messages"), ({"module": "nowhere:X"}, "is not a Protobuf class"),
        ({"framing": "x"}, "one of none"),
        ({"module": "json:dumps"}, "is not a Protobuf class"), ({"timestamps": "ms"}, "must be us or ns"),
        ({"color": "x"}, "no option"),
        ({"schemas": "/tmp"}, "is for framing=confluent"), ({"descriptors": "/nowhere"}, "No such file"),
    ],
)  # fmt: skip
def test_invalid_options_are_rejected(more: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        find_codec("protobuf", more)


def test_incomplete_or_invalid_descriptors_are_refused(tmp_path: Path) -> None:
    file = tides()
    file.dependency.append("elsewhere.proto")
    with pytest.raises(ConfigurationError, match="--include_imports"):
        find_codec("protobuf", {"descriptors": write_set(tmp_path / "a.desc", file), "message": "tides.Trade"})
    for data in (b"\xff\xff", b""):
        (tmp_path / "b.desc").write_bytes(data)
        with pytest.raises(ConfigurationError, match="Protobuf descriptors"):
            find_codec("protobuf", {"descriptors": str(tmp_path / "b.desc"), "message": "tides.Trade"})


def delimited(tag: bytes, data: bytes) -> bytes:
    return tag + (bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 0x7F | 0x80, len(data) >> 7])) + data


@pytest.mark.parametrize(("depth", "is_read"), [(10, True), (1000, False)])
def test_a_struct_of_any_depth_is_a_string_or_a_problem(options: dict[str, str], depth: int, is_read: bool) -> None:
    value = struct_pb2.Value(string_value="x").SerializeToString()
    for _ in range(depth):
        value = delimited(b"\x32", delimited(b"\x0a", value))
    payload = delimited(b"\xfa\x01", delimited(b"\x0a", delimited(b"\x0a", b"a") + delimited(b"\x12", value)))
    decoded = find_codec("protobuf", options).decode_batch([payload, b""], COLUMNS)
    assert decoded.origins == ([0, 1] if is_read else [1])
