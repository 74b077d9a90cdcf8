"""Avro messages whose writer's logical types differ from the reader's: the value stays the same, or the message is a problem."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from mainstem.codecs import find_codec

if TYPE_CHECKING:
    from pathlib import Path


def logical(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


def decimal(precision: int, scale: int, **other: Any) -> dict[str, Any]:
    return {"type": "bytes", **other, "logicalType": "decimal", "precision": precision, "scale": scale}


MORNING = datetime(2026, 1, 31, 1, 2, 3, 4000, UTC)
MICROS = 1_769_821_323_004_000
# For each type: the schema, what fastavro writes, the plain value below the logical type, and what is counted from where.
TYPES: dict[str, tuple[Any, Any, Any, str]] = {
    "int": ("int", 7, 7, ""),
    "long": ("long", 7, 7, ""),
    "double": ("double", 7.0, 7.0, ""),
    "string": ("string", "{", "{", ""),
    "bytes": ("bytes", b"{", b"{", ""),
    "decimal(10, 2)": (decimal(10, 2), Decimal("1.23"), b"{", "decimal"),
    "decimal(10, 4)": (decimal(10, 4), Decimal("1.2300"), b"\x30\x0c", "decimal"),
    "decimal(4, 4)": (decimal(4, 4), Decimal("0.0123"), b"{", "decimal"),
    "date": (logical("int", "date"), date(2026, 1, 31), 20484, "day"),
    "time-millis": (logical("int", "time-millis"), time(1, 2, 3, 4000), 3_723_004, "midnight"),
    "time-micros": (logical("long", "time-micros"), time(1, 2, 3, 4000), 3_723_004_000, "midnight"),
    "timestamp-millis": (logical("long", "timestamp-millis"), MORNING, MICROS // 1000, "instant"),
    "timestamp-micros": (logical("long", "timestamp-micros"), MORNING, MICROS, "instant"),
    "timestamp-nanos": (logical("long", "timestamp-nanos"), MICROS * 1000, MICROS * 1000, "instant"),
    "local-timestamp-millis": (logical("long", "local-timestamp-millis"), MORNING.replace(tzinfo=None), MICROS // 1000, "local"),
    "local-timestamp-micros": (logical("long", "local-timestamp-micros"), MORNING.replace(tzinfo=None), MICROS, "local"),
}  # fmt: skip
# What a plain value becomes where only the reader has a logical type.
OF_A_PLAIN_VALUE: dict[str, Any] = {
    "decimal(10, 2)": Decimal("1.23"), "decimal(10, 4)": Decimal("0.0123"), "decimal(4, 4)": Decimal("0.0123"),
    "date": date(1970, 1, 8), "time-millis": 7000, "time-micros": 7, "timestamp-millis": datetime(1970, 1, 1, 0, 0, 0, 7000, UTC),
    "timestamp-micros": datetime(1970, 1, 1, 0, 0, 0, 7, UTC), "timestamp-nanos": 7,
    "local-timestamp-millis": datetime(1970, 1, 1, 0, 0, 0, 7000), "local-timestamp-micros": datetime(1970, 1, 1, 0, 0, 0, 7),
}  # fmt: skip
# The column's value of each type.
IN_COLUMN = {
    name: time_in_micros if counts == "midnight" else value
    for name, (_, value, _, counts) in TYPES.items()
    for time_in_micros in [3_723_004_000]
}


def record(kind: Any, **other: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, **other}]}


def decode(directory: Path, written: Any, wanted: Any, value: Any) -> tuple[list[Any], dict[int, str]]:
    """Return the values of the column and the problems of a message that was written with one schema and read with another."""
    for name, schema in (("written", written), ("wanted", wanted)):
        (directory / f"{name}.avsc").write_text(json.dumps(schema))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(written), {"a": value})
    codec = find_codec("avro", {"schema": str(directory / "wanted.avsc"), "writer": str(directory / "written.avsc")})
    schema = codec.schema([])
    decoded = codec.decode_batch([out.getvalue()], schema)
    return decoded.columns[-1].to_pylist(), dict(decoded.problems)


def expected(written: str, wanted: str) -> Any:
    """Return the right value, or None for two types without a common value."""
    written_kind, _, plain, written_counts = TYPES[written]
    _, _, _, wanted_counts = TYPES[wanted]
    if wanted_counts == "":
        return plain
    if written_counts == "":
        return OF_A_PLAIN_VALUE[wanted] if written_kind != "string" else None
    if written_counts != wanted_counts:
        return None
    return IN_COLUMN[written] if written_counts == "decimal" else IN_COLUMN[wanted]


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_value_is_never_changed_by_a_reader_with_another_logical_type(tmp_path: Path, is_nested: bool) -> None:
    wrong, read = [], 0
    for written, wanted in product(TYPES, TYPES):
        value = TYPES[written][1]
        kinds = [TYPES[name][0] for name in (written, wanted)]
        if is_nested:
            kinds = [{"type": "map", "values": {"type": "array", "items": ["null", kind]}} for kind in kinds]
            value = {"k": [value]}
        rows, problems = decode(tmp_path, record(kinds[0]), record(kinds[1]), value)
        if problems:
            continue
        read += 1
        got = dict(rows[0])["k"][0] if is_nested else rows[0]
        right = expected(written, wanted)
        as_text = {each: each.decode() for each in (got, right) if isinstance(each, bytes)}
        if right is None or as_text.get(got, got) != as_text.get(right, right):
            wrong.append(f"{written} read as {wanted}: {got!r}, not {right!r}")
    assert not wrong
    assert read >= 60


@pytest.mark.parametrize(
    ("written", "wanted", "value", "reason"),
    [
        (decimal(10, 4), decimal(10, 2), Decimal("1.2345"), "a: 1.2345 is not exactly a decimal(10, 2)"),
        (decimal(10, 2), decimal(4, 4), Decimal("1.23"), "a: 1.23 is not exactly a decimal(4, 4)"),
        ("string", decimal(10, 2), "12345678", "a: string is not decimal(10, 2)"),
        (logical("long", "timestamp-micros"), logical("long", "local-timestamp-micros"), MORNING, "a: timestamp-micros is not"),
        (logical("long", "timestamp-nanos"), logical("long", "timestamp-micros"), 1001, "a: 1001 of a timestamp-nanos is not"),
        (["null", "string", "bytes"], ["null", "long", decimal(9, 2)], "x", "a: the writer's type has other logical types"),
    ],
)  # fmt: skip
def test_a_value_that_the_reader_s_type_cannot_hold_is_a_problem(
    tmp_path: Path, written: Any, wanted: Any, value: Any, reason: str
) -> None:
    rows, problems = decode(tmp_path, record(written), record(wanted), value)
    assert rows == []
    assert problems[0].startswith(reason)


def test_a_fixed_decimal_keeps_its_value_at_another_scale(tmp_path: Path) -> None:
    kinds = [decimal(10, scale, type="fixed", name="F", size=8) for scale in (2, 4)]
    assert decode(tmp_path, record(kinds[0]), record(kinds[1]), Decimal("1.23")) == ([Decimal("1.23")], {})


def test_renamed_fields_and_defaults_keep_their_values_beside_another_scale(tmp_path: Path) -> None:
    wanted = record(decimal(10, 4), aliases=["b"])
    wanted["fields"][0]["name"] = "amount"
    micros = logical("long", "timestamp-micros")
    wanted["fields"] += [
        {"name": "since", "type": micros, "default": 1_500_000},
        {"name": "rate", "type": ["null", decimal(9, 3)], "default": None},
        {"name": "fee", "type": decimal(9, 2), "default": "\u0001\u0000"},
    ]
    written = record(decimal(10, 2))
    written["fields"][0]["name"] = "b"
    (tmp_path / "written.avsc").write_text(json.dumps(written))
    (tmp_path / "wanted.avsc").write_text(json.dumps(wanted))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(written), {"b": Decimal("1.23")})
    codec = find_codec("avro", {"schema": str(tmp_path / "wanted.avsc"), "writer": str(tmp_path / "written.avsc")})
    since = datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert codec.decode(out.getvalue()) == [
        {"amount": Decimal("1.23"), "since": since, "rate": None, "fee": Decimal("2.56")}
    ]


def test_times_of_day_are_microseconds_whichever_their_unit(tmp_path: Path) -> None:
    kind = logical("int", "time-millis")
    assert decode(tmp_path, record(kind), record(kind), time(1, 2, 3)) == ([3_723_000_000], {})
    codec = find_codec("avro", {"schema": str(tmp_path / "wanted.avsc")})
    assert codec.decode(codec.encode({"a": 3_723_000_000})) == [{"a": 3_723_000_000}]
    with pytest.raises(Exception, match="a: 5 is not an Avro time-millis"):
        codec.encode({"a": 5})
