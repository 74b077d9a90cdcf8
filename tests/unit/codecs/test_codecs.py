from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.metadata import EntryPoint
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mainstem.codecs.lookup
from mainstem.codecs import Decoded, RowCodec, codec_names, find_codec
from mainstem.codecs.rows import DecodedRows
from mainstem.errors import ConfigurationError, DecodeError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
VALUES = {
    "n": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "f": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "t": (pa.string(), TEXT),
    "b": (pa.bool_(), st.booleans()),
    "at": (pa.timestamp("us", "UTC"), st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))),
}
WITH_TEXT = {
    "d": (pa.date32(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    "x": (pa.decimal128(10, 3), st.decimals(-999999, 999999, places=3)),
}
NESTED = {
    "l": (pa.list_(pa.int64()), st.lists(st.integers(-5, 5))),
    "s": (pa.struct([("y", pa.string())]), st.fixed_dictionaries({"y": TEXT})),
}
BINARY = {"raw": (pa.binary(), st.binary())}
CASES: dict[str, dict[str, Any]] = {
    "json": VALUES | WITH_TEXT | NESTED,
    "csv": VALUES | WITH_TEXT,
    "msgpack": VALUES | NESTED | BINARY,
    "arrow": VALUES | WITH_TEXT | NESTED | BINARY,
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_encoding_round_trips_values(name: str, data: Any) -> None:
    fields = CASES[name]
    schema = pa.schema([(field, kind) for field, (kind, _) in fields.items()])
    row = st.fixed_dictionaries({field: st.none() | values for field, (_, values) in fields.items()})
    batch = pa.RecordBatch.from_pylist(data.draw(st.lists(row, min_size=1, max_size=5)), schema=schema)
    codec = pickle.loads(pickle.dumps(find_codec(name)))
    decoded = codec.decode_batch(codec.encode_batch(batch), schema)
    assert (decoded.problems, decoded.rescued, decoded.origins) == ({}, {}, list(range(batch.num_rows)))
    assert pa.RecordBatch.from_arrays(decoded.columns, schema=schema).to_pylist() == batch.to_pylist()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("json", {}, b"{"),
        ("csv", {"columns": "id,name"}, b"1"),
        ("csv", {"columns": "id,name"}, b"\xff"),
        ("msgpack", {}, b"\xc1"),
        ("arrow", {}, b"arrow"),
    ],
)
def test_an_unreadable_message_raises_one_kind_of_error(name: str, options: dict[str, str], message: bytes) -> None:
    codec = find_codec(name, options)
    with pytest.raises(DecodeError) as caught:
        codec.decode(message)
    schema = pa.schema([("id", pa.int64())])
    assert codec.decode_batch([message], schema).problems == {0: str(caught.value)}
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("name", ["json", "msgpack", "arrow"])
def test_one_message_is_encoded_and_decoded_without_a_schema(name: str) -> None:
    row = {"id": 1, "name": "ebb", "depths": [1.5, 2.5]}
    codec = find_codec(name)
    assert codec.decode(codec.encode(row)) == [row]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("json", b"\xff", "v: JSON has no bytes"),
        ("json", math.nan, "not JSON compliant"),
        ("csv", "", "v: an empty text is null in CSV"),
        ("csv", [1], "v: CSV has no list"),
        ("msgpack", Decimal("1.5"), "v: MessagePack has no Decimal"),
        ("msgpack", datetime(2026, 1, 1), "v: MessagePack has no time without an offset"),
    ],
)
def test_a_value_that_would_change_is_rejected_by_name(name: str, value: Any, reason: str) -> None:
    batch = pa.record_batch({"v": pa.array([None, value])})
    with pytest.raises(ConfigurationError, match=f"row 1: .*{reason}"):
        find_codec(name).encode_batch(batch)


def test_encoding_with_a_decode_only_codec_raises() -> None:
    with pytest.raises(ConfigurationError, match="Words only decodes"):
        find_codec("tests.unit.codecs.test_codecs:Words").encode({"word": "ebb"})


class Words(RowCodec):
    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        return [{"word": word} for word in payload.decode().split()]


PAYLOADS = [b"ebb flow", b"", b"tide"]


def test_a_custom_codec_is_found_by_module_and_class() -> None:
    codec = pickle.loads(pickle.dumps(find_codec("tests.unit.codecs.test_codecs:Words")))
    schema = codec.schema(PAYLOADS)
    decoded = codec.decode_batch(PAYLOADS, schema)
    assert decoded.columns[0].to_pylist()[0] == "ebb"
    assert decoded.origins == [0, 0, 2]
    assert codec.decode(b"ebb") == [{"word": "ebb"}]
    rows = DecodedRows(codec, schema, ["id"])
    batch = pa.record_batch({"id": [1, 2, 3], "payload": PAYLOADS})
    assert next(rows(iter([batch]))).column("id").to_pylist() == [1, 1, 2, 3]


def test_a_codec_of_an_entry_point_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"mainstem.codecs": [EntryPoint("words", "tests.unit.codecs.test_codecs:Words", "mainstem.codecs")]}
    monkeypatch.setattr(mainstem.codecs.lookup, "entry_points", lambda group: points.get(group, []))
    assert "words" in codec_names()
    assert find_codec("words").decode(b"ebb") == [{"word": "ebb"}]


class Lengths(Words):
    """A codec with one row for every payload, also for an empty one."""

    def decode_batch(self, payloads: Any, schema: pa.Schema) -> Decoded:
        return Decoded([pa.array([str(len(each)) for each in payloads])], range(len(payloads)))


@pytest.mark.parametrize("reasons", [["", "cut"], [None, "cut"], ["cut", ""], [None, None], ["", ""]])
def test_a_skipped_message_has_one_row_without_values(reasons: list[str | None]) -> None:
    batch = pa.record_batch({"payload": [b"ebb", b"flow"], "why": pa.array(reasons, pa.string())})
    schema = pa.schema([("word", pa.string())])
    (rows,) = DecodedRows(Lengths(), schema, [], skips="why")(iter([batch]))
    assert [(row["word"], row["problem"]) for row in rows.to_pylist()] == [
        (length if reason is None else None, reason or None) for length, reason in zip("34", reasons, strict=True)
    ]


def test_rows_are_in_the_order_of_the_messages_and_a_null_is_a_problem() -> None:
    schema = pa.schema([("n", pa.int64())])
    batch = pa.record_batch({"id": [0, 1, 2, 3], "payload": pa.array([b"{", b'{"n": 1, "x": 2}', None, b'{"n": 3}'])})
    rows = next(DecodedRows(find_codec("json"), schema, ["id"])(iter([batch]))).to_pylist()
    assert [(row["id"], row["n"], row["problem"] is None, row["rescued"], row["payload"]) for row in rows] == [
        (0, None, False, None, b"{"),
        (1, 1, True, '{"x":2}', None),
        (2, None, False, None, None),
        (3, 3, True, None, None),
    ]
    assert rows[2]["problem"] == "there is no message"


def test_duplicate_column_names_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'id' has a reserved name"):
        DecodedRows(find_codec("json"), pa.schema([("id", pa.int64())]), ["id"])


def test_a_csv_codec_without_columns_follows_the_schema_of_each_call() -> None:
    codec = find_codec("csv")
    for name in ("a", "b"):
        decoded = codec.decode_batch([b"1"], pa.schema([(name, pa.int64())]))
        assert ([column.to_pylist() for column in decoded.columns], decoded.problems) == ([[1]], {})


def test_a_csv_value_may_contain_line_breaks() -> None:
    codec = find_codec("csv", {"columns": "a,b"})
    assert codec.decode(b'1,"x\ny"\r\n2,z\xc2\x85\n') == [{"a": "1", "b": "x\ny"}, {"a": "2", "b": "z\x85"}]
