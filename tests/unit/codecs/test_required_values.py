"""A message that lacks the value of a non-null column is a problem; the codec never makes up a value."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from mainstem.codecs import Decoded, RowCodec, find_codec
from mainstem.codecs.json_lines import FEWEST_SCREENED
from mainstem.codecs.limits import as_nullable
from mainstem.codecs.rows import DecodedRows


def required(name: str, kind: Any) -> Any:
    return pa.field(name, kind, nullable=False)


INNER = pa.struct([required("x", pa.int64()), pa.field("y", pa.string())])
SCHEMA = pa.schema(
    [required("n", pa.int64()), pa.field("s", INNER), pa.field("l", pa.list_(required("item", INNER)))],
)
GOOD = [{"n": 1}, {"n": 2, "s": None, "l": None}, {"n": 3, "s": {"x": 1}, "l": [{"x": 2, "y": "z"}]}]
BAD = [{}, {"n": None}, {"s": {"x": 1}}, {"n": 4, "s": {}}, {"n": 4, "s": {"x": None}}, {"n": 4, "l": [{"x": 1}, None]}]
BAD += [{"n": 4, "l": [{"x": None}]}, {"n": "text"}]


@pytest.mark.parametrize("around", [0, 2 * FEWEST_SCREENED], ids=["alone", "among many"])
@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_a_message_without_a_required_value_is_a_problem(name: str, around: int) -> None:
    encode = find_codec(name).encode
    messages = [*[encode({"n": 9})] * around, *map(encode, [*GOOD, *BAD])]
    rows = DecodedRows(find_codec(name), SCHEMA, ["id"])
    batch = pa.record_batch({"id": range(len(messages)), "payload": messages})
    result = next(rows(iter([batch])))
    result.validate(full=True)
    assert result.schema == rows.schema(batch.schema)
    assert all(item.nullable for item in result.schema)
    found = result.to_pylist()[around:]
    assert [row["problem"] is None for row in found] == [True] * len(GOOD) + [False] * len(BAD)
    assert [row["n"] for row in found] == [1, 2, 3] + [None] * len(BAD)
    assert found[2]["s"] == {"x": 1, "y": None}
    assert [row["payload"] for row in found[len(GOOD) :]] == messages[-len(BAD) :]


def test_the_reason_names_the_column() -> None:
    result = find_codec("json").decode_batch([b'{"n": 1, "s": {}}', b"{}"], SCHEMA)
    assert result.problems == {
        0: "s.x: the value is missing, and the column is not null",
        1: "n: the value is missing, and the column is not null",
    }
    assert result.origins == []


def test_a_message_with_several_rows_is_one_problem() -> None:
    result = find_codec("json").decode_batch([b'{"n": 1}\n{}', b'{"n": 2, "z": 1}'], SCHEMA)
    assert (result.origins, list(result.problems), result.rescued) == ([1], [0], {0: '{"z":1}'})


def test_a_csv_value_that_is_empty_is_a_problem_in_a_required_column() -> None:
    schema = pa.schema([required("a", pa.int32()), ("b", pa.string())])
    assert list(find_codec("csv").decode_batch([b"1,x", b",x"], schema).problems) == [1]


def test_required_arrow_fields_are_not_required_in_the_table() -> None:
    sink = pa.BufferOutputStream()
    schema = pa.schema([required("n", pa.int64())])
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.table({"n": [1]}, schema=schema))
    codec = find_codec("arrow")
    inferred = codec.schema([sink.getvalue().to_pybytes()])
    assert inferred == as_nullable(schema)
    assert codec.decode_batch([sink.getvalue().to_pybytes()], schema).columns[0].to_pylist() == [1]


class Careless(RowCodec):
    """A codec that checks nothing."""

    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        return [msgspec.msgpack.decode(payload)]

    def decode_batch(self, payloads: Any, schema: Any) -> Decoded:
        return Decoded([pa.array([None] * len(payloads), item.type) for item in schema], list(range(len(payloads))))


def test_a_custom_codec_that_checks_nothing_makes_problems_as_well() -> None:
    batch = pa.record_batch({"payload": [b"x", b"y"]})
    (row, _) = next(DecodedRows(Careless(), pa.schema([required("n", pa.int64())]), [])(iter([batch]))).to_pylist()
    assert row == {
        "problem": "n: the value is missing, and the column is not null",
        "n": None,
        "rescued": None,
        "payload": b"x",
    }
