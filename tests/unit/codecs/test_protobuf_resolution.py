"""Protobuf messages whose writer has other types than the reader: the value stays the same, or the message has a problem."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from mainstem.codecs import find_codec

if TYPE_CHECKING:
    from pathlib import Path

F = descriptor_pb2.FieldDescriptorProto
INTEGERS = {
    F.TYPE_INT32: (-(1 << 31), (1 << 31) - 1), F.TYPE_INT64: (-(1 << 63), (1 << 63) - 1), F.TYPE_UINT32: (0, (1 << 32) - 1),
    F.TYPE_UINT64: (0, (1 << 64) - 1), F.TYPE_SINT32: (-(1 << 31), (1 << 31) - 1), F.TYPE_SINT64: (-(1 << 63), (1 << 63) - 1),
    F.TYPE_FIXED32: (0, (1 << 32) - 1), F.TYPE_FIXED64: (0, (1 << 64) - 1), F.TYPE_SFIXED32: (-(1 << 31), (1 << 31) - 1),
    F.TYPE_SFIXED64: (-(1 << 63), (1 << 63) - 1),
}  # fmt: skip
OTHERS: dict[Any, list[Any]] = {
    F.TYPE_BOOL: [True], F.TYPE_DOUBLE: [1.5], F.TYPE_FLOAT: [1.5], F.TYPE_STRING: ["tide"], F.TYPE_BYTES: [b"tide"],
}  # fmt: skip
VALUES = {
    kind: [value for value in (5, -1, (1 << 31) + 5, (1 << 32) + 5, (1 << 63) + 5) if low <= value <= high]
    for kind, (low, high) in INTEGERS.items()
} | OTHERS


def descriptors(path: Path, kind: Any, shape: str) -> Any:
    """Write the descriptor set of a message whose field ``a`` has this type, and return its class."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="t", syntax="proto3")
    message = file.message_type.add(name="M")
    holder = message
    if shape == "in a list of messages":
        message.field.add(name="items", number=1, type=F.TYPE_MESSAGE, type_name=".t.Item", label=F.LABEL_REPEATED)
        holder = file.message_type.add(name="Item")
    label = F.LABEL_REPEATED if shape == "repeated" else F.LABEL_OPTIONAL
    holder.field.add(name="a", number=1, type=kind, label=label)
    whole = descriptor_pb2.FileDescriptorSet(file=[file])
    path.write_bytes(whole.SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.M"))


def read(directory: Path, written: Any, wanted: Any, value: Any, shapes: tuple[str, str]) -> tuple[list[Any], Any]:
    """Return the values of the column, and the decoded batch, of a message in Confluent's framing."""
    message = descriptors(directory / "1.desc", written, shapes[0])()
    descriptors(directory / "reader.desc", wanted, shapes[1])
    if shapes[0] == "in a list of messages":
        message.items.add().a = value
    elif shapes[0] == "repeated":
        message.a.extend(value)
    else:
        message.a = value
    options = {"schemas": str(directory), "descriptors": str(directory / "reader.desc"), "message": "t.M"}
    codec = find_codec("protobuf", options | {"framing": "confluent"})
    payload = b"\0\0\0\0\1\0" + message.SerializeToString()
    decoded = codec.decode_batch([payload], codec.schema([payload]))
    return decoded.columns[0].to_pylist(), decoded


@pytest.mark.parametrize("shape", ["alone", "in a list of messages"])
def test_a_value_is_never_changed_by_a_reader_with_another_type(tmp_path: Path, shape: str) -> None:
    kept = 0
    for written, wanted in product(VALUES, VALUES):
        for value in VALUES[written]:
            rows, decoded = read(tmp_path, written, wanted, value, (shape, shape))
            if decoded.problems or decoded.rescued:
                # A value that was refused, or one of another wire type, which is kept by number.
                continue
            got = rows[0] if shape == "alone" else rows[0][0]["a"]
            kept += 1
            same = got == value or (isinstance(value, str) and got == value.encode())
            same = same or (isinstance(value, bytes) and got == value.decode())
            assert same, f"{value!r} of type {written} is {got!r} as type {wanted}"
    assert kept >= 80


def test_the_last_of_several_values_does_not_stand_for_all(tmp_path: Path) -> None:
    shapes = ("repeated", "alone")
    assert read(tmp_path, F.TYPE_INT32, F.TYPE_INT32, [7], shapes)[0] == [7]
    rows, decoded = read(tmp_path, F.TYPE_INT32, F.TYPE_INT32, [7, 8], shapes)
    assert rows == []
    assert decoded.problems[0].startswith("a: ")


def test_a_value_that_does_not_fit_names_its_field_and_its_range(tmp_path: Path) -> None:
    rows, decoded = read(tmp_path, F.TYPE_INT64, F.TYPE_INT32, (1 << 32) + 5, ("alone", "alone"))
    assert rows == []
    assert decoded.problems == {0: "a: 4294967301 is outside the range of int32, -2147483648 to 2147483647"}
