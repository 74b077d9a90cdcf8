"""No message stops the others: it becomes rows or a problem, and its fields are columns, rescued or part of the problem."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hostile_messages import MESSAGES, NAMES, RESERVED, VALUES

from mainstem.codecs import RowCodec, find_codec
from mainstem.codecs.inference import MAX_FIELDS, distinct
from mainstem.codecs.json_lines import FEWEST_SCREENED
from mainstem.codecs.rows import PROBLEM, RESCUE_COLUMNS, DecodedRows
from mainstem.spark.codec_columns import folded, inferred_columns
from mainstem.spark.formats.columns import united
from mainstem.spark.ingest.options import META

if TYPE_CHECKING:
    from collections.abc import Sequence

TAKEN = ("id", PROBLEM, *RESCUE_COLUMNS)


def rows_of(name: str, messages: Sequence[bytes], schema: pa.Schema) -> list[dict[str, Any]]:
    """Return the rows of messages; each message has at least one."""
    batch = pa.record_batch({"id": range(len(messages)), "payload": list(messages)})
    (result,) = DecodedRows(find_codec(name), schema, ["id"])(iter([batch]))
    result.validate(full=True)
    rows = result.to_pylist()
    assert {row["id"] for row in rows} == set(range(len(messages)))
    for row in rows:
        assert row["payload"] == (None if row["problem"] is None else messages[row["id"]])
        assert row["rescued"] is None or isinstance(json.loads(row["rescued"]), dict)
    return rows


def test_each_message_becomes_rows_or_a_problem_with_its_own_columns() -> None:
    codec = find_codec("json")
    for messages in (MESSAGES, *([each] for each in MESSAGES)):
        schema = pa.schema([("a", pa.int64())])
        # Without any row there are no columns.
        with suppress(ValueError):
            schema = distinct(codec.schema(messages), TAKEN)
        rows_of("json", messages, schema)


def test_hostile_messages_are_read_alike_alone_and_in_a_batch() -> None:
    usual = [
        b'{"a": %d, "f": %r, "o": {"x": %d}, "l": [{"x": "y"}]}' % (i, i / 7, i) for i in range(2 * FEWEST_SCREENED)
    ]
    messages = list(usual)
    messages[: 3 * len(MESSAGES) : 3] = MESSAGES
    codec: Any = find_codec("json")
    schema = codec.schema([*usual[:200], *(each for each in MESSAGES if len(each) < 1000)])
    fast, slow = codec.decode_batch(messages, schema), RowCodec.decode_batch(codec, messages, schema)
    assert fast.origins == slow.origins
    assert fast.rescued == slow.rescued
    # The recursion limit is reached at different depths, depending on the caller.
    assert {i: text[:12] for i, text in fast.problems.items()} == {i: text[:12] for i, text in slow.problems.items()}
    assert [repr(each.to_pylist()) for each in fast.columns] == [repr(each.to_pylist()) for each in slow.columns]


SCALARS = st.sampled_from(VALUES) | st.text(max_size=3) | st.integers() | st.floats() | st.booleans()
KEYS = st.sampled_from([*NAMES[:20], *RESERVED, "a", "A", "o", "O", "x", "X", "\ud800"]) | st.text(max_size=2)
DOCUMENTS = st.dictionaries(
    KEYS, st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6),
    max_size=4,
)  # fmt: skip


def binary(value: Any) -> bytes:
    """Encode as MessagePack; return b"" for values that it cannot hold."""
    try:
        return msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return b""


@settings(max_examples=40, deadline=None)
@given(before=st.lists(DOCUMENTS, max_size=3), after=st.lists(DOCUMENTS, min_size=1, max_size=4))
def test_inferred_columns_are_valid_in_spark_and_in_tables(before: list[Any], after: list[Any]) -> None:
    for name, encode in (("json", lambda each: json.dumps(each).encode()), ("msgpack", binary)):
        codec = find_codec(name)
        first, second = [encode(each) for each in before], [encode(each) for each in after]
        rows_of(name, first + second, pa.schema([("a", pa.int64()), ("o", pa.struct([("x", pa.string())]))]))
        try:
            table = inferred_columns(codec, first, (*META, *RESCUE_COLUMNS))
            evolved = united(table, inferred_columns(codec, second, (*META, *RESCUE_COLUMNS)), strict=False)
        except ValueError:
            continue
        assert evolved.fields[: len(table.fields)] == [evolved[each] for each in table.names]
        check_names(evolved.jsonValue())


def check_names(kind: Any) -> None:
    """Check that Spark can tell the names of each struct apart, and that none is empty."""
    if isinstance(kind, dict):
        names = [folded(item["name"]) for item in kind.get("fields", ())]
        assert len(set(names)) == len(names)
        assert all(names)
        for each in kind.values():
            check_names(each)
    elif isinstance(kind, list):
        for each in kind:
            check_names(each)


def test_fields_without_a_column_are_rescued() -> None:
    messages = [b'{"a":1,"A":2,"Date":3,"o":{"x":1,"X":2,"e":{}},"":4,"l":[{}]}'] * 3
    columns = inferred_columns(find_codec("json"), messages, META)
    assert [item.name for item in columns.fields] == ["a", "o"]
    assert columns["o"].dataType.names == ["x"]
    schema = pa.schema([("a", pa.int64()), ("o", pa.struct([("x", pa.int64())]))])
    assert json.loads(rows_of("json", messages, schema)[0]["rescued"]) == {
        "A": 2, "Date": 3, "o": {"X": 2, "e": {}}, "": 4, "l": [{}],
    }  # fmt: skip


def test_one_message_with_many_fields_takes_no_columns_from_the_others() -> None:
    many = json.dumps({f"field {i}": {"x": i} for i in range(2 * MAX_FIELDS)}).encode()
    schema = find_codec("json").schema([many, b'{"a":1,"b":2}', b'{"a":1,"b":2}'])
    assert {"a", "b"} <= set(schema.names)
    assert len(schema) <= MAX_FIELDS
    rows = rows_of("json", [many, b'{"a":1,"b":2}'], schema)
    assert [row["problem"] for row in rows] == [None, None]


def test_a_malformed_line_of_csv_does_not_decide_the_columns() -> None:
    sample = [b"1,x,2026-01-31,0.5", b'"', b"1,2", b"2,,2026-02-28,1e400"]
    schema = find_codec("csv", {"columns": "a,b,c,d"}).schema(sample)
    assert schema == pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.date32()), ("d", pa.string())])


def test_arrow_messages_of_different_types_have_the_columns_of_the_first() -> None:
    def message(values: Any) -> bytes:
        sink = pa.BufferOutputStream()
        table = pa.table({"v": values, "w": pa.array([None], pa.null()), "u": pa.array([1], pa.uint64())})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()

    messages = [message([1]), message(["x"]), message([{"y": 1}]), message([2])]
    codec = find_codec("arrow")
    assert codec.schema(messages).field("v").type == pa.int64()
    assert [row["v"] for row in rows_of("arrow", messages, codec.schema(messages))] == [1, None, None, 2]
    columns = inferred_columns(codec, messages, ())
    assert [(item.name, item.dataType.simpleString()) for item in columns.fields] == [
        ("v", "bigint"),
        ("u", "decimal(20,0)"),
    ]


def test_a_type_of_arrow_that_crashes_arrow_is_a_problem() -> None:
    numbers = pa.array([1], pa.decimal128(38, 0))
    kind = pa.decimal128(38, 2**31 - 1)
    batch = pa.record_batch({"v": pa.Array.from_buffers(kind, 1, numbers.buffers())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    message = sink.getvalue().to_pybytes()
    assert find_codec("arrow").schema([message]) == pa.schema([])
    for wanted in (pa.decimal128(38, 10), pa.int64(), pa.string()):
        assert rows_of("arrow", [message], pa.schema([("v", wanted)]))[0]["problem"] is not None


def test_views_and_zones_of_arrow_become_types_that_every_reader_has() -> None:
    table = pa.table(
        {
            "t": pa.array(["x" * 40, None], pa.string_view()),
            "b": pa.array([b"y" * 40, None], pa.binary_view()),
            "at": pa.array([0, None], pa.timestamp("us", "Nowhere/Land")),
            "k": pa.array(["a", "a"]).dictionary_encode(),
            "r": pa.array([{"x": [1]}, None]),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    message = sink.getvalue().to_pybytes()
    schema = find_codec("arrow").schema([message])
    assert schema.types[:4] == [pa.string(), pa.binary(), pa.timestamp("us", "UTC"), pa.string()]
    first, _ = rows_of("arrow", [message], schema)
    assert (first["t"], first["b"], first["k"], first["r"]) == ("x" * 40, b"y" * 40, "a", {"x": [1]})
    assert first["at"].timestamp() == 0


def test_a_csv_number_beyond_every_integer_has_a_column_that_holds_it() -> None:
    for number in (b"9223372036854775808", b"-9223372036854775809", b"9" * 40, b"9" * 5000):
        messages = [b"1,x", number + b",y"]
        codec = find_codec("csv", {"columns": "n,t"})
        batch = pa.record_batch({"id": range(2), "payload": messages})
        schema = codec.schema(messages)
        (result,) = DecodedRows(codec, schema, ["id"])(iter([batch]))
        assert [row["problem"] for row in result.to_pylist()] == [None, None]
        value = result.column("n").to_pylist()[1]
        assert value == number.decode() or int(value) == int(number)
