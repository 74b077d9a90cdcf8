"""Every value of a message is in its column with all digits, or the message is a problem."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.codecs import RowCodec, find_codec
from mainstem.codecs.exact import exact_array
from mainstem.codecs.json_lines import FEWEST_SCREENED
from mainstem.codecs.numerals import number_of
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DIGITS = st.text("0123456789", min_size=1, max_size=45)
EXPONENTS = st.sampled_from(
    ["", "", "e0", "E5", "e-5", "e+22", "e308", "e400", "e-308", "e-324", "e-400", "e37", "e-999999999"]
)


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """Draw numbers as JSON text: many digits, large exponents, and the neighbors of floats and of powers of two."""
    if draw(st.booleans()):
        value = draw(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 130), 1 << 130))
        with localcontext(prec=400):
            near = Decimal(value) + draw(st.integers(-2, 2)) * Decimal(
                draw(st.sampled_from(["1e-30", "1e-17", "1e-3", "1"]))
            )
        text = format(near, draw(st.sampled_from(["f", ".17g", ".20e", ".9f"])))
        return text[:600] if "e" not in text.lower() else text
    whole = draw(DIGITS).lstrip("0") or "0"
    fraction = "." + draw(DIGITS) if draw(st.booleans()) else ""
    return draw(st.sampled_from(["", "-"])) + whole + fraction + draw(EXPONENTS)


INTEGERS = [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()]
DECIMALS = [
    pa.decimal128(38, 0),
    pa.decimal128(38, 10),
    pa.decimal128(10, 3),
    pa.decimal128(38, 38),
    pa.decimal128(1, 0),
]
FLOATS = [pa.float64(), pa.float32()]
AROUND = 2 * FEWEST_SCREENED


def is_kept(text: str, value: Any) -> bool:
    """Return whether a column's value equals the text. A float does if it prints the text's digits."""
    said = Decimal(text)
    if not isinstance(value, float):
        return Decimal(value) == said
    if not math.isfinite(value):
        return False
    exact = Decimal(value)
    if not set(text) & set(".eE"):
        return exact == said
    digits = "".join(map(str, said.as_tuple().digits)).rstrip("0")
    with localcontext(prec=max(len(digits), 1)):
        return +exact == said


def decoded(name: str, messages: Sequence[bytes], kind: Any, field: str = "v", **options: str) -> list[Any]:
    """Return each message's value in a column of a type, or None for a problem."""
    result = find_codec(name, options).decode_batch(messages, pa.schema([(field, kind)]))
    values = dict(zip(result.origins, result.columns[0].to_pylist(), strict=True))
    assert set(values) | set(result.problems) == set(range(len(messages)))
    return [values.get(i) for i in range(len(messages))]


@settings(max_examples=150, deadline=None)
@given(texts=st.lists(numbers(), min_size=1, max_size=8), kind=st.sampled_from(INTEGERS + DECIMALS + FLOATS))
def test_a_number_of_json_and_csv_is_kept_or_a_problem(texts: list[str], kind: Any) -> None:
    for name, messages in (
        ("json", [f'{{"v": {text}}}'.encode() for text in texts]),
        ("csv", [text.encode() for text in texts]),
    ):
        for text, value in zip(texts, decoded(name, messages, kind), strict=True):
            assert value is None or is_kept(text, value), (name, text, value)


@settings(max_examples=15, deadline=None)
@given(texts=st.lists(numbers(), min_size=30, max_size=60), kind=st.sampled_from(INTEGERS + DECIMALS + FLOATS))
def test_a_number_is_the_same_alone_and_in_a_batch(texts: list[str], kind: Any) -> None:
    for shape in (
        '{"v": %s}',
        '{"v": {"w": [%s, null]}}',
        '{"v": ["x.123456789012345678", 1]}\n{"v": %s}',
        '{"t": "%s"}',
    ):
        whole = kind if '"w"' not in shape else pa.struct([("w", pa.list_(kind))])
        schema = pa.schema([("v", whole)])
        messages = [b"{}"] * AROUND
        messages[:: AROUND // len(texts)] = [b"{}"] * len(messages[:: AROUND // len(texts)])
        for i, text in enumerate(texts):
            messages[i * 7] = (shape % text).encode()
        codec: Any = find_codec("json")
        fast, slow = codec.decode_batch(messages, schema), RowCodec.decode_batch(codec, messages, schema)
        assert (fast.origins, fast.problems, fast.rescued) == (slow.origins, slow.problems, slow.rescued)
        assert repr(fast.columns[0].to_pylist()) == repr(slow.columns[0].to_pylist())


def test_only_messages_with_doubtful_numbers_are_read_one_by_one() -> None:
    messages = [b'{"f": %r, "t": "e-1.2345678901234567890"}' % (i / 7) for i in range(AROUND)]
    doubtful = {
        5: b"0.12345678901234567890",
        70: b"1e-400",
        900: b"9007199254740993.0",
        901: b"1e400",
        902: b"0.%0400d" % 1,
    }
    for i, text in doubtful.items():
        messages[i] = b'{"f": %s}' % text
    codec: Any = find_codec("json")
    read, one_by_one = codec.decode, []
    codec.decode = lambda payload: (one_by_one.append(payload), read(payload))[1]
    result = codec.decode_batch(messages, pa.schema([("f", pa.float64()), ("t", pa.string())]))
    assert set(result.problems) == set(doubtful)
    assert one_by_one == [messages[i] for i in doubtful]


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("json", "123456789012345678901234567890123456789012", pa.decimal128(38, 0)),
        ("json", '"340282366920938463463374607431768211456"', pa.decimal128(38, 2)),
        ("json", "1e400", pa.float64()),
        ("json", "1e999999999", pa.int64()),
        ("json", "16777217", pa.float32()),
        ("json", "true", pa.int64()),
        ("json", '"2026-01-31T12:00:00.1234567Z"', pa.timestamp("us", "UTC")),
        ("json", '"2026-01-31T12:00:00"', pa.timestamp("us", "UTC")),
        ("json", '"12:00:00.1234567"', pa.time64("us")),
        ("json", '"12:00:00.123456789"', pa.time64("ns")),
        ("json", '"5.5"', pa.int64()),
        ("json", '""', pa.int64()),
        ("json", '"true"', pa.float64()),
        ("json", '"0000-01-01"', pa.date32()),
        ("json", '"0000-12-31T23:59:59Z"', pa.timestamp("us", "UTC")),
        ("json", '"9999-12-31T23:59:59-01:00"', pa.timestamp("us", "UTC")),
        ("csv", "0xFFFFFFFFFFFFFFFF", pa.int64()),
        ("csv", "0xFF", pa.int64()),
        ("csv", "16777217", pa.float32()),
        ("csv", "nan(123)", pa.float64()),
        ("csv", "1_000", pa.int64()),
        ("csv", "\u0663", pa.decimal128(38, 0)),
    ],
)
def test_a_value_out_of_range_is_a_problem_alone_and_in_a_batch(name: str, text: str, kind: Any) -> None:
    message = (f'{{"v": {text}}}' if name == "json" else text).encode()
    filler = b"{}" if name == "json" else b'""'
    assert decoded(name, [message], kind) == [None]
    assert decoded(name, [*[filler] * AROUND, message], kind)[-1] is None


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("9007199254740993.0", pa.int64(), 9007199254740993),
        ("12345678901234567890.0123456789", pa.decimal128(38, 10), Decimal("12345678901234567890.0123456789")),
        ("-0", pa.float64(), -0.0),
        ("0.10000000000000001", pa.float64(), 0.1),
        ('"1e5"', pa.decimal128(38, 2), Decimal(100000)),
        ("3.14992167145290700000e+16", pa.int64(), 31499216714529070),
        ('"5"', pa.int32(), 5),
        ('"-9007199254740993"', pa.int64(), -9007199254740993),
        ('"1.50"', pa.float64(), 1.5),
        (
            '"2026-01-31T12:00:00.123456000Z"',
            pa.timestamp("us", "UTC"),
            datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC),
        ),
        (
            '"2026-01-31T12:00:00.500000+01:00"',
            pa.timestamp("ms", "UTC"),
            datetime(2026, 1, 31, 11, 0, 0, 500000, tzinfo=UTC),
        ),
        ('"2026-01-31T12:00:00.000"', pa.timestamp("s"), datetime(2026, 1, 31, 12)),
        ('"12:00:00.5000000"', pa.time64("us"), time(12, 0, 0, 500000)),
        ("1e23", pa.float64(), 1e23),
    ],
)
def test_column_values_keep_every_digit(text: str, kind: Any, value: Any) -> None:
    message = f'{{"v": {text}}}'.encode()
    for around in (0, AROUND):
        assert repr(decoded("json", [b"{}"] * around + [message], kind)[-1]) == repr(
            pa.array([value], kind).to_pylist()[0]
        )


@pytest.mark.parametrize(
    ("name", "text", "kind", "reason"),
    [
        ("json", "300", pa.int8(), "300 is outside the range of int8, -128 to 127"),
        (
            "json",
            "99999999999999999999",
            pa.int32(),
            "99999999999999999999 is outside the range of int32, -2147483648 to 2147483647",
        ),
        ("json", '"-1"', pa.uint16(), "-1 is outside the range of uint16, 0 to 65535"),
        ("csv", "3000000000", pa.int32(), "3000000000 is outside the range of int32, -2147483648 to 2147483647"),
        (
            "json",
            "123456789.1",
            pa.decimal128(10, 2),
            "123456789.1 is not exactly a decimal128(10, 2), which has 10 digits, 2 of them after the point",
        ),
        ("json", "true", pa.int8(), "true is not of type int8"),
        ("json", "[1]", pa.map_(pa.string(), pa.int32()), "1 is not a key with a value"),
        (
            "json",
            "[1, 99999999999]",
            pa.list_(pa.int32()),
            "99999999999 is outside the range of int32, -2147483648 to 2147483647",
        ),
        (
            "json",
            '"2026-01-31T12:00:00.1234567Z"',
            pa.timestamp("us", "UTC"),
            "'2026-01-31T12:00:00.1234567Z' is not in whole microseconds, the unit of timestamp[us, tz=UTC]",
        ),
        (
            "csv",
            "2026-01-31T12:00:00.0001Z",
            pa.timestamp("ms", "UTC"),
            "'2026-01-31T12:00:00.0001Z' is not in whole milliseconds, the unit of timestamp[ms, tz=UTC]",
        ),
        (
            "json",
            '"2026-01-31T12:00:00"',
            pa.timestamp("us", "UTC"),
            "'2026-01-31T12:00:00' has no time zone, which timestamp[us, tz=UTC] needs",
        ),
        (
            "json",
            '"2026-01-31T12:00:00Z"',
            pa.timestamp("us"),
            "'2026-01-31T12:00:00Z' has a time zone, which timestamp[us] lacks",
        ),
        ("json", '"yesterday"', pa.date32(), "'yesterday' is not of type date32[day]"),
        ("csv", "25:00", pa.time64("us"), "'25:00' is not of type time64[us]"),
    ],
)
def test_a_problem_says_the_column_the_value_and_the_limit(name: str, text: str, kind: Any, reason: str) -> None:
    message = (f'{{"v": {text}}}' if name == "json" else text).encode()
    codec = find_codec(name, {"columns": "v"} if name == "csv" else {})
    schema = pa.schema([("v", kind)])
    good = b"{}" if name == "json" else b'""'
    for around in (0, AROUND):
        problems = codec.decode_batch([good] * around + [message], schema).problems
        assert problems == {around: f"v: {reason}"}


@pytest.mark.parametrize(
    ("name", "message", "reason"),
    [
        ("json", b"{", "the message is not JSON: "),
        ("json", b"\xff", "the message is not UTF-8: byte 0xff at 0"),
        ("json", b"[" * 100_000, "the message is nested too deeply"),
        ("json", b'{"v": %s}' % (b"9" * 5000), "has 5000 digits, more than any number column holds"),
        ("csv", b'"', "the message is not CSV: "),
        ("msgpack", b"\x81", "the message is not MessagePack: "),
        ("arrow", b"x" * 100, "the message is not an Arrow IPC stream: "),
    ],
)
def test_a_message_of_another_format_is_a_readable_problem(name: str, message: bytes, reason: str) -> None:
    codec = find_codec(name, {"columns": "v"} if name == "csv" else {})
    problems = codec.decode_batch([message], pa.schema([("v", pa.int64())])).problems
    assert reason in problems[0]


def test_json_numbers_beyond_a_float_are_decimals_in_a_program_too() -> None:
    text = b'{"a": 0.1, "b": 9007199254740993.5, "c": 1e400}'
    (row,) = find_codec("json").decode(text)
    assert row == {"a": 0.1, "b": Decimal("9007199254740993.5"), "c": Decimal("1e400")}
    assert type(row["a"]) is float
    assert number_of("0.1") == 0.1


def test_extra_fields_are_rescued_exactly_or_are_a_problem() -> None:
    schema = pa.schema([("a", pa.int64())])
    message = b'{"a":2,"zz":"\\ud800","n":9007199254740993.0,"l":[1e400,12345678901234567890123]}'
    fields = json.loads(message, parse_float=Decimal)
    del fields["a"]
    for around in (0, AROUND):
        result = find_codec("json").decode_batch([*[b'{"a":1}'] * around, message], schema)
        assert json.loads(result.rescued[around], parse_float=Decimal) == fields
        result.rescued[around].encode()
    pack = msgspec.msgpack.encode
    result = find_codec("msgpack").decode_batch(
        [pack({"a": 1, "x": msgspec.msgpack.Ext(5, b"x")}), pack({"a": 1, "x": {1: 2}}), pack({"a": 1, "x": b"x"})],
        schema,
    )
    assert set(result.problems) == {0, 1}
    assert result.rescued == {0: '{"x":"eA=="}'}


@pytest.mark.parametrize(
    "value",
    [
        b"\x82\xa1v\x01\xa1v\x02",
        b"\x81\xa1v\x82\xa1w\x01\xd9\x01w\x02",
        b"\x81\xa1v\xc7\x0c\xff" + struct.pack(">Iq", 123456789, 5),
        b"\x81\xa1v\xd7\xff" + ((999999999 << 34) | 5).to_bytes(8, "big"),
        b"\x82\xa1v\x01\x01\x02",
        b"\x81\xa1v\xc7\x01\x05x",
    ],
)
def test_message_pack_that_would_lose_data_is_a_problem(value: bytes) -> None:
    for kind in (pa.int64(), pa.timestamp("us", "UTC"), pa.struct([("w", pa.int64())]), pa.binary()):
        assert decoded("msgpack", [value], kind) == [None]


def test_message_pack_in_longer_forms_is_read() -> None:
    message = b"\xde\x00\x03\xd9\x01a\xcd\x00\x07\xa1f\xca" + struct.pack(">f", 0.5) + b"\xa1t\xd6\xff\x00\x00\x00\x05"
    assert find_codec("msgpack").decode(message) == [{"a": 7, "f": 0.5, "t": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)}]


BERLIN = timezone(timedelta(hours=1))
ODD: list[Any] = [
    0.1,
    2.5,
    2.0**53,
    1e39,
    math.nan,
    math.inf,
    -0.0,
    2**24 + 1,
    2**53 + 1,
    2**63,
    10**40,
    True,
    Decimal("0.1"),
    Decimal("1E+40"),
    Decimal("NaN"),
    Decimal("Infinity"),
    Decimal("1E+999999999"),
    Decimal("5E-999999999"),
    Decimal("5.0000000000"),
    "5",
    "\ud800",
    b"\xff",
    datetime(2026, 1, 1, 12, 0, 0, 5),
    date(2026, 1, 1),
    datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=BERLIN),
    time(1, 2, 3, 4),
    time(1, tzinfo=UTC),
    timedelta(microseconds=5),
    [1],
    {"x": 1.5},
    {"x": 2},
    [("k", 1)],
    {"k": 2},
    {1: 2},
    [(None, 1)],
    object(),
]
KINDS = [
    *INTEGERS, *DECIMALS, *FLOATS, pa.float16(), pa.string(), pa.large_string(), pa.binary(), pa.bool_(), pa.date32(), pa.date64(),
    pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.timestamp("ns", "UTC"), pa.time32("s"), pa.time64("us"),
    pa.duration("ms"), pa.list_(pa.int64()), pa.list_(pa.int64(), 2), pa.large_list(pa.int8()), pa.struct([("x", pa.int64())]),
    pa.struct([]), pa.map_(pa.string(), pa.int64()), pa.null(), pa.dictionary(pa.int8(), pa.string()),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_array_has_the_values_that_were_given_or_none(kind: Any) -> None:
    for value in ODD:
        try:
            array = exact_array([None, value], kind)
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            continue
        assert array.type == kind
        (null, back) = array.to_pylist()
        assert null is None
        if isinstance(value, str) and isinstance(back, bytes):
            assert back == value.encode()
        elif isinstance(value, dict) and isinstance(back, list):
            assert dict(back) == value
        elif pa.types.is_struct(kind):
            assert back == {name: value.get(name) for name in back}
        else:
            assert back == value or (value != value and back != back)
            assert type(value) is not bool or pa.types.is_boolean(kind)
            assert not isinstance(value, datetime) or (value.tzinfo is None) == (back.tzinfo is None)


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("json", {"m": {1: "a"}}, "m: a name in JSON is text"),
        ("json", {"t": "\ud800"}, "surrogate"),
        ("msgpack", {"m": {date(2026, 1, 1): 1}}, "no date as a name"),
        ("msgpack", {"n": 2**64}, "MessagePack: "),
        ("msgpack", {1: 2}, "no int as a name"),
        ("arrow", {"m": {1: "a"}}, "no column holds"),
        ("arrow", {"l": [1, "a"]}, "l: 'a' is not of type"),
        ("arrow", {"n": 10**40}, "n: "),
    ],
)
def test_ambiguous_values_are_not_encoded(name: str, row: dict[Any, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        find_codec(name).encode(row)


def sent(values: Any, kind: Any) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"v": pa.array(values, kind)})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        (Decimal("0.12345678901234567890"), pa.decimal128(38, 20), pa.float64()),
        (0.1, pa.float64(), pa.decimal128(38, 1)),
        ([0.1], pa.list_(pa.float64()), pa.list_(pa.float32())),
        ([1], pa.list_(pa.int64()), pa.list_(pa.string())),
        (datetime(2026, 1, 1), pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (5, pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")),
        (-(10**15), pa.int64(), pa.timestamp("us")),
    ],
)
def test_a_column_of_arrow_in_a_type_that_would_change_it_is_a_problem(value: Any, kind: Any, wanted: Any) -> None:
    assert decoded("arrow", [sent([value], kind)], wanted) == [None]


def test_members_of_an_arrow_struct_are_found_by_name_and_others_are_rescued() -> None:
    sent_type = pa.struct([("b", pa.string()), ("a", pa.int32()), ("z", pa.int64())])
    wanted = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    values = [{"b": "x", "a": 1, "z": 5}, None, {"b": None, "a": 3, "z": None}]
    right = [{"a": 1, "b": "x", "c": None}, None, {"a": 3, "b": None, "c": None}]
    for kind, column, rows, expected in (
        (sent_type, wanted, values, right),
        (pa.list_(sent_type), pa.list_(wanted), [values, None, []], [right, None, []]),
        (pa.struct([("s", sent_type)]), pa.struct([("s", wanted)]), [{"s": values[0]}], [{"s": right[0]}]),
    ):
        for first in range(len(rows)):
            table = pa.table({"v": pa.array(rows, kind)}).slice(first)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            result = find_codec("arrow").decode_batch([sink.getvalue().to_pybytes()], pa.schema([("v", column)]))
            assert result.problems == {}
            assert result.columns[0].to_pylist() == expected[first:]
            assert bool(result.rescued) == (first == 0)
            assert all("5" in text for text in result.rescued.values())


def test_a_message_of_several_arrow_streams_has_the_rows_of_all() -> None:
    both = sent([1, 2], pa.int64()) + sent([3], pa.int64())
    schema = pa.schema([("v", pa.int64())])
    result = find_codec("arrow").decode_batch(
        [both, sent([4], pa.int64()) + b"junk", sent([5], pa.int32()) + both], schema
    )
    assert result.columns[0].to_pylist() == [1, 2, 3]
    assert "not an Arrow IPC stream" in result.problems[1]
    assert result.problems[2] == "the message is 3 Arrow IPC streams with different schemas"


def test_missing_arrow_columns_are_null_and_times_out_of_range_are_problems() -> None:
    schema = pa.schema([("v", pa.int64()), ("w", pa.string())])
    result = find_codec("arrow").decode_batch([sent([1, 2], pa.int32())], schema)
    assert [column.to_pylist() for column in result.columns] == [[1, 2], [None, None]]
    far = pa.array([253402300800000000], pa.int64()).view(pa.timestamp("us"))
    assert decoded("arrow", [sent(far, far.type)], pa.timestamp("us")) == [None]


def test_avro_keeps_every_digit_of_decimals_and_of_promoted_numbers(tmp_path: Path) -> None:
    def schema(name: str, kind: Any) -> str:
        path = tmp_path / name
        path.write_text(json.dumps({"type": "record", "name": "r", "fields": [{"name": "v", "type": kind}]}))
        return str(path)

    wide = schema("wide.avsc", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2})
    codec = find_codec("avro", {"schema": wide})
    value = Decimal("123456789012345678901234567890123456.78")
    assert codec.decode(codec.encode({"v": value})) == [{"v": value}]
    single = find_codec("avro", {"schema": schema("float.avsc", "float")})
    for wrong in (0.1, 16777217, 10**400, 1e39):
        with pytest.raises(ConfigurationError, match="v: "):
            single.encode({"v": wrong})
    for written, wanted in (("long", "double"), ("int", "float"), (["null", "long"], ["null", "double"])):
        writer, reader = schema("writer.avsc", written), schema("reader.avsc", wanted)
        plain, promoted = (
            find_codec("avro", {"schema": writer}),
            find_codec("avro", {"schema": reader, "writer": writer}),
        )
        assert promoted.decode(plain.encode({"v": 7})) == [{"v": 7.0}]
        odd = plain.encode({"v": 2**24 + 1 if "int" in written else 2**53 + 1})
        with pytest.raises(ValueError, match="is not exactly a"):
            promoted.decode(odd)
