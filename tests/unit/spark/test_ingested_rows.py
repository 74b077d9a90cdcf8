from __future__ import annotations

import json
import pickle
import random
import struct
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from tests.support.case_selection import long_after
from tests.support.sbe_orders import XML, order

from mainstem.codecs import RowCodec, codec_names, find_codec
from mainstem.codecs.json_lines import FEWEST_AT_ONCE
from mainstem.codecs.rows import DecodedRows
from mainstem.codecs.sbe import SbeSchema
from mainstem.errors import ConfigurationError, DecodeError
from mainstem.spark.ingest.options import META

if TYPE_CHECKING:
    from pathlib import Path


def messages(payloads: list[bytes]) -> pa.RecordBatch:
    """Return the batch that Spark passes to a task."""
    rows = len(payloads)
    columns: list[Any] = [
        pa.array([date(2026, 1, 1)] * rows),
        pa.array([1001] * rows, pa.int32()),
        pa.array([0] * rows, pa.int64()),
        pa.array([7] * rows, pa.int32()),
        pa.array(range(rows), pa.int64()),
        pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * rows, pa.timestamp("us", "UTC")),
        pa.array(payloads, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[*META[:-1], "payload"])


def parsed(name: str, payloads: list[bytes], schema: pa.Schema | None = None, **options: str) -> list[dict[str, Any]]:
    codec = pickle.loads(pickle.dumps(find_codec(name, options)))
    (batch,) = DecodedRows(codec, schema or codec.schema(payloads), META[:-1])(iter([messages(payloads)]))
    return sorted(batch.to_pylist(), key=lambda row: row["position"])


def arrow(values: list[int]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"n": pa.array(values, pa.int64()), "extra": values})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


BAD = b"\xff\x00 no message"
N = pa.schema([("n", pa.int64())])
CASES: dict[str, tuple[list[bytes], pa.Schema, dict[str, str]]] = {
    "json": ([json.dumps({"n": n, "t": f"x{n}"}).encode() for n in range(20)], N, {}),
    "csv": ([f"{n};x{n}".encode() for n in range(20)], N.append(pa.field("t", pa.string())), {"delimiter": ";"}),
    "msgpack": ([msgspec.msgpack.encode({"n": n}) for n in range(20)], N, {}),
    "arrow": ([arrow([n]) for n in range(20)], N, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_format_becomes_typed_columns_and_other_messages_are_reported(name: str) -> None:
    payloads, schema, options = CASES[name]
    rows = parsed(name, [*payloads[:10], BAD, *payloads[10:]], schema, **options)
    assert [row["n"] for row in rows] == [*range(10), None, *range(10, 20)]
    assert [row["problem"] is not None for row in rows].index(True) == 10
    assert {(row["stream_id"], row["session_id"]) for row in rows} == {(1001, 7)}


def test_a_message_gives_any_number_of_rows() -> None:
    rows = parsed("json", [b'{"n": 1}\n\n{"n": 2}', b"", b'{"n": 3}'], N)
    assert [(row["position"], row["n"]) for row in rows] == [(0, 1), (0, 2), (1, None), (2, 3)]
    rows = parsed("arrow", [arrow([1, 2, 3]), arrow([])], N)
    assert [row["n"] for row in rows] == [1, 2, 3, None]


def test_a_value_that_does_not_fit_fails_its_own_message_only() -> None:
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    good = b'{"n": 1, "at": "2026-01-31T12:00:00Z"}'
    rows = parsed("json", [good, b'{"n": "one"}', b'{"at": "soon"}', good], schema)
    assert [row["n"] for row in rows] == [1, None, None, 1]
    assert rows[0]["at"] == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert rows[1]["problem"].startswith("n: ")
    assert rows[2]["problem"].startswith("at: ")


def test_columns_are_found_in_the_messages() -> None:
    assert find_codec("json", {}).schema([b'{"a": 1, "b": [1.5]}']) == pa.schema(
        [("a", pa.int64()), ("b", pa.list_(pa.float64()))]
    )
    csv = find_codec("csv", {"columns": "a, b"})
    assert csv.schema([b"1,x", b"2,y"]) == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert find_codec("arrow", {}).schema([arrow([1])]).names == ["n", "extra"]
    with pytest.raises(DecodeError, match="there is none"):
        find_codec("json", {}).schema([])


def test_sbe_is_decoded_by_its_schema(tmp_path: Path) -> None:
    (tmp_path / "schema.xml").write_text(XML)
    other = struct.pack("<HHHHB", 1, 10, 1, 0, 5)
    payloads = [order(1, 100), order(2, None), other, order(3, 7)[:-3], struct.pack("<HHHH", 0, 77, 1, 0)]
    first, second, another, cut, unknown = parsed("sbe", payloads, xml=str(tmp_path / "schema.xml"), message="Order")
    assert (int(first["id"]), first["side"], first["symbol"], first["price"]) == (1, "SELL", "TIDE", 100)
    assert (first["flags"], first["fills"], first["note"]) == (["odd", "big"], [{"quantity": 1}], b"note 1")
    assert (second["price"], second["fills"], second["note"]) == (None, [{"quantity": 2}, {"quantity": 3}], b"note 2")
    assert "announces 6 bytes, and 3 are left" in cut["problem"]
    assert "the message 'Other', not 'Order'" in another["problem"]
    assert "a message that the schema lacks, not 'Order'" in unknown["problem"]


@pytest.mark.parametrize("cut", range(0, 54, 3))
def test_a_truncated_sbe_message_is_reported_as_truncated(cut: int) -> None:
    whole = order(2, 5)
    assert len(whole) == 54
    with pytest.raises(ValueError, match=r"cut off|are left"):
        SbeSchema(XML).decode(whole[:cut])


def test_an_invalid_sbe_schema_is_refused() -> None:
    for xml, reason in (
        ("<a", "not XML"),
        ("<a/>", "root is 'a'"),
        (XML.replace('type="Side"', 'type="X"'), "no type 'X'"),
    ):
        with pytest.raises(ValueError, match=reason):
            SbeSchema(xml)


def test_the_error_for_an_unknown_codec_lists_the_known_ones() -> None:
    assert {"json", "csv", "msgpack", "arrow", "sbe"} <= set(codec_names())
    with pytest.raises(ConfigurationError, match="unknown codec 'morse'; choose one of arrow"):
        find_codec("morse", {})
    with pytest.raises(ConfigurationError, match="no option 'color'"):
        find_codec("json", {"color": "blue"})
    with pytest.raises(ConfigurationError, match="the option xml"):
        find_codec("sbe", {})


PRICE = pa.schema([("price", pa.int64())])
MANY = 3 * FEWEST_AT_ONCE
PACK = msgspec.msgpack.encode


@pytest.mark.parametrize("around", [0, MANY], ids=["one by one", "among many"])
@pytest.mark.parametrize("value", [2.99, "2.5", True, [2], {"a": 2}, 2**63, 1e30])
def test_an_integer_column_holds_whole_numbers_only(value: Any, around: int) -> None:
    for name, encode in (("json", lambda each: json.dumps(each).encode()), ("msgpack", PACK)):
        good = [encode({"price": 7})] * around
        payload = encode({"price": value})
        rows = parsed(name, [*good, payload, *good], PRICE)
        assert [row["price"] for row in rows] == [7] * around + [None] + [7] * around
        assert [row["payload"] for row in rows] == [None] * around + [payload] + [None] * around
        assert rows[around]["problem"].startswith("price: ")


def test_an_integer_may_be_written_with_a_decimal_point() -> None:
    assert [row["price"] for row in parsed("json", [b'{"price": 2.0}'] * MANY, PRICE)] == [2] * MANY


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), 5), (pa.bool_(), 1), (pa.float64(), True), (pa.float64(), "one"), (pa.float64(), 2**53 + 1),
        (pa.float32(), 1e300), (pa.timestamp("us", "UTC"), 5), (pa.list_(pa.int64()), [2.5]),
        (pa.struct([("a", pa.int64())]), {"a": 2.5}), (pa.decimal128(4, 2), "2.999"), (pa.int8(), 300),
    ],
)  # fmt: skip
def test_no_value_is_converted_to_the_type_of_its_column(kind: Any, value: Any) -> None:
    schema = pa.schema([("n", pa.int64()), ("v", kind)])
    for count in (1, MANY):
        rows = parsed("json", [json.dumps({"n": 1, "v": value}).encode()] * count, schema)
        assert [(row["n"], row["v"], row["problem"] is None) for row in rows] == [(None, None, False)] * count


@pytest.mark.parametrize("count", [1, MANY])
def test_fields_that_the_schema_lacks_are_rescued(count: int) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
    payload = b'{"n": 1, "at": "2026-01-31", "s": {"a": 1, "b": [2.50]}, "none": null}'
    rows = parsed("json", [b'{"n": 0}', *[payload] * count], schema)
    assert [row["rescued"] for row in rows] == [None] + ['{"at":"2026-01-31","s":{"b":[2.5]}}'] * count
    assert rows[1]["s"] == {"a": 1}
    flat = parsed("json", [b'{"n": 0}', *[b'{"n": 1, "at": "2026-01-31"}'] * count], N)
    assert [row["rescued"] for row in flat] == [None] + ['{"at":"2026-01-31"}'] * count
    assert parsed("msgpack", [PACK({"n": 1, "b": b"x"})], N)[0]["rescued"] == '{"b":"eA=="}'
    assert parsed("arrow", [arrow([4, 5])], N)[1]["rescued"] == '{"extra":5}'


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_rows_do_not_depend_on_how_many_messages_are_read_at_once(seed: int) -> None:
    rng = random.Random(seed)
    schema = pa.schema([("n", pa.int64()), ("f", pa.float64()), ("t", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    kinds = [
        lambda: b'{"n": %d, "f": 2.5, "t": "a"}' % rng.randrange(9), lambda: b'{"f": 3}', lambda: b"",
        lambda: b'{"at": "2026-01-31T12:00:00Z"}', lambda: b'{"n": 1}\n{"n": 2}',
    ]  # fmt: skip
    odd = [
        b'{"n": 1.5}', b'{"n": 1}{"n": 2}', b'{"x": 1}', b'{"n": 1', b'[1]', b'{"n": 1, "n": 2}', b'{"t": "\xff"}',
        b'{"f": 9007199254740993}', b'{"at": "soon"}', b'{"f": NaN}', b'{"n": {}}', b'{"t": "\\ud800"}',
    ]  # fmt: skip
    payloads = [rng.choice(odd) if rng.random() < 0.01 else rng.choice(kinds)() for _ in range(2000)]
    together = parsed("json", payloads, schema)
    alone = [row | {"position": i} for i, payload in enumerate(payloads) for row in parsed("json", [payload], schema)]
    assert repr(together) == repr(alone)
    assert {row["position"] for row in together} == set(range(len(payloads)))


def test_columns_are_of_the_widest_type_of_all_messages() -> None:
    sample = [
        b'{"a": 2}',
        b"no JSON",
        b'{"a": 2.5, "b": null}',
        b'{"c": [{"d": 1}, {"e": "x"}], "f": 99999999999999999999}',
    ]
    assert find_codec("json", {}).schema(sample) == pa.schema(
        [
            ("a", pa.float64()),
            ("b", pa.string()),
            ("c", pa.list_(pa.struct([("d", pa.int64()), ("e", pa.string())]))),
            ("f", pa.decimal128(38, 0)),
        ]
    )


def test_most_values_of_a_field_decide_its_type() -> None:
    sample = [b'{"a": "x"}', b'{"a": 2}', b'{"a": {}}', b'{"a": 3}', b'{"o": {}, "l": [{}]}']
    assert find_codec("json", {}).schema(sample) == pa.schema([("a", pa.int64())])
    rows = parsed("json", sample)
    assert [row["a"] for row in rows] == [None, 2, None, 3, None]
    assert [row["problem"] is None for row in rows] == [False, True, False, True, True]
    assert rows[4]["rescued"] == '{"o":{},"l":[{}]}'


def test_a_column_of_arrow_is_widened_and_never_narrowed() -> None:
    wide = pa.schema([("n", pa.float64())])
    assert parsed("arrow", [arrow([1])], wide)[0]["n"] == 1.0
    assert parsed("arrow", [arrow([2**53 + 1])], wide)[0]["problem"] is not None
    assert parsed("arrow", [arrow([1])], pa.schema([("n", pa.string())]))[0]["problem"] is not None


# Problems that a JSON message can cause, and cases that only look like problems.
ODD = (
    b'{"n": "five"}',
    b'{"n": 5.5}',
    b'{"n": 5.0}',
    b'{"n": 1e3}',
    b'{"n": true}',
    b'{"n": [1]}',
    b'{"n": {"x": 1}}',
    b'{"n": null}',
    b'{"n": 9223372036854775807}',
    b'{"n": 9223372036854775808}',
    b'{"n": -1180591620717411303424}',
    b'{"n": 01}',
    b'{"n": -0}',
    b'{"n": NaN, "f": Infinity}',
    b'{"f": 9007199254740993}',
    b'{"f": 1e400}',
    b'{"f": 1e-7}',
    b'{"f": 3}',
    b'{"f": "3"}',
    b'{"n": 1, "n": 1}',
    b'{"n": 1, "\\u006e": 2}',
    b'{"extra": 1, "extra": 2}',
    b'{"s": {"x": 1, "x": 2}}',
    b'{"n": 1',
    b'{"n" 1}',
    b"{n: 1}",
    b"{'n': 1}",
    b'{"n": 1,}',
    b'{"n": 1}}',
    b'{"n": 1} {"n": 2}',
    b"[1]",
    b"5",
    b'"{}"',
    b"null",
    b"",
    b"  ",
    b"\n\n",
    b"{}",
    b"{ }",
    b"\xff\xfe",
    b'{"t": "\xff"}',
    b'{"t": "\xed\xa0\x80"}',
    b'{"t": "\\ud800"}',
    b'{"t": "\\ud83d\\ude00"}',
    '{"t": "h\u00e9"}'.encode(),
    b'{"t": "a\tb"}',
    b'{"t": "\\x"}',
    b'{"t": "n\\": 5"}',
    b'{"t": "\\"n\\": 5.5"}',
    b'{"t": 5}',
    b'{"t": "\x00"}',
    b'{"t": "\x7f"}',
    b'{"s": {"x": 1, "y": "z"}}',
    b'{"s": {"x": "1"}}',
    b'{"s": 5}',
    b'{"s": {}}',
    b'{"s": {"n": "text"}}',
    b'{"l": [1, 2]}',
    b'{"l": [1, "2"]}',
    b'{"l": []}',
    b'{"l": {}}',
    b'{"l": [[1]]}',
    b'{"other": {"deep": [[[{"a": 1}]]]}}',
    b'{"other": "text"}',
    b'{"other": [1]}',
    b'{"b": 1}',
    b'{"b": true}',
    b'{"d": "2026-02-30"}',
    b'{"d": "2026-02-28"}',
    b'{"d": "today"}',
    b'{"d": 5}',
    b'{"n": 1}\n{"n": 2}',
    b'{"n": 1}\r\n{"n": "x"}',
    b'{"n": 1}\n',
    b'\xef\xbb\xbf{"n": 1}',
    b'{"n": 1}\x0b',
    b'{"n":\t1 , "t" :"x" }',
    b'{"u": -1}',
    b'{"u": 4294967295}',
    b'{"u": 4294967296}',
    b'{"n": 1, "extra": {"a": 1, "a": 2}}',
    b'{"s": {"x": 1, "y": "z", "z": 1, "z": 2}}',
    b'{"n": 1, "extra": 1' + b"0" * 5000 + b"}",
    b'{"n": 1, "extra": 1e99999999999999999999}',
    b'{"n": 1, "extra": "\\ud800"}',
    b'{"n": 1, "extra": ' + b"[" * 100 + b"]" * 100 + b"}",
    b'{"n": 1, "extra": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"n": 1, "extra": "' + b"[" * 100 + b'"}',
    b'{"n": 1, "extra": NaN}',
    b'{"n": 1, "extra": 01}',
    b'{"n": 1' + b"0" * 5000 + b"}",
    b'{"t": {"a": 1, "a": 2}}',
)
WIDE = pa.schema(
    [
        ("n", pa.int64()), ("f", pa.float64()), ("t", pa.string()), ("b", pa.bool_()), ("d", pa.date32()), ("u", pa.uint32()),
        ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])), ("l", pa.list_(pa.int64())),
    ]
)  # fmt: skip


@pytest.mark.parametrize("seed", long_after(6, range(12)))
def test_json_in_bulk_and_row_by_row_give_the_same_rows(seed: int) -> None:
    rng = random.Random(seed)
    good = [
        json.dumps(
            {"n": i, "f": i / 8, "t": f"text {i}", "b": i % 2 == 0, "d": "2026-01-31", "u": i, "s": {"x": i, "y": "y"}}
        ).encode()
        for i in range(1500)
    ]
    part = rng.choice((0.002, 0.01, 0.05, 0.3, 0.7))
    payloads = [rng.choice(ODD) if rng.random() < part else each for each in good]
    codec: Any = find_codec("json")
    fast, slow = codec.decode_batch(payloads, WIDE), RowCodec.decode_batch(codec, payloads, WIDE)
    assert fast.origins == slow.origins
    assert fast.problems == slow.problems
    assert fast.rescued == slow.rescued
    for item, ours, theirs in zip(WIDE, fast.columns, slow.columns, strict=True):
        assert ours.type == theirs.type == item.type
        assert ours.to_pylist() == theirs.to_pylist(), item.name


def by_message(codec: Any, payloads: list[bytes]) -> tuple[list[Any], dict[int, str]]:
    """Return the rows of messages that are read one at a time, and the problems."""
    rows: list[Any] = []
    problems: dict[int, str] = {}
    for i, payload in enumerate(payloads):
        decoded = codec.decode_batch([payload], WIDE)
        assert not decoded.rescued or codec.rescues
        if decoded.problems:
            problems[i] = decoded.problems[0]
        rows += [(i, *values) for values in zip(*(each.to_pylist() for each in decoded.columns), strict=True)]
    return rows, problems


def at_once(codec: Any, payloads: list[bytes]) -> tuple[list[Any], dict[int, str]]:
    decoded = codec.decode_array(pa.array(payloads), WIDE)
    values = [each.to_pylist() for each in decoded.columns]
    return list(zip(decoded.origins, *values, strict=True)), decoded.problems


@pytest.mark.long
@pytest.mark.parametrize("rescues", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_an_array_of_json_has_the_rows_of_its_messages_read_alone(seed: int, rescues: bool) -> None:
    rng = random.Random(seed)
    odd = [rng.choice(ODD) for _ in range(rng.choice((0, 1, 60)))]
    good = [b'{"n": %d, "f": %d.25, "t": "x", "extra": [1, {"a": 2}]}' % (i, i) for i in range(1100)]
    payloads = odd + good
    rng.shuffle(payloads)
    codec: Any = find_codec("json")
    codec.rescues = rescues
    assert at_once(codec, payloads) == by_message(codec, payloads)


@pytest.mark.parametrize("odd", ODD)
def test_unselected_fields_are_never_a_problem(odd: bytes) -> None:
    strict, lenient = (find_codec("json") for _ in range(2))
    lenient.rescues = False  # type: ignore[attr-defined]
    around = [b'{"n": %d}' % i for i in range(1100)]
    rows, problems = at_once(lenient, [odd, *around])
    assert (rows[: -len(around)], problems) == by_message(lenient, [odd])
    expected, reasons = by_message(strict, [odd])
    if not reasons:
        assert rows[: -len(around)] == expected
    else:
        assert problems or b"extra" in odd or b'"z": 2' in odd


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_json_message_is_read_in_a_batch_as_it_is_alone(odd: bytes) -> None:
    payloads = [b'{"n": %d, "t": "x"}' % i for i in range(1100)]
    payloads[77] = odd
    payloads[150] = b"{"
    codec: Any = find_codec("json")
    fast, slow = codec.decode_batch(payloads, WIDE), RowCodec.decode_batch(codec, payloads, WIDE)
    assert (fast.origins, fast.problems, fast.rescued) == (slow.origins, slow.problems, slow.rescued)
    assert [each.to_pylist() for each in fast.columns] == [each.to_pylist() for each in slow.columns]


@pytest.mark.parametrize("every", [100, 20], ids=["1 in 100", "1 in 20"])
def test_few_messages_are_read_one_by_one_where_bad_ones_are_spread_evenly(every: int) -> None:
    bad = (b'{"id": "wrong"}', b'{"id": 1', b"\xff\xfe", b'{"id": 1.5, "name": "x"}', b'{"name": 5}')
    payloads = [
        bad[i // every % 5] if i % every == 0 else b'{"id": %d, "name": "flight %d", "delay": %f}' % (i, i, i / 2)
        for i in range(4000)
    ]
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("delay", pa.float64())])
    codec: Any = find_codec("json")
    one_by_one: list[bytes] = []
    read = codec.decode
    codec.decode = lambda payload: (one_by_one.append(payload), read(payload))[1]
    assert len(codec.decode_batch(payloads, schema).problems) == 4000 // every
    assert len(one_by_one) == 4000 // every
