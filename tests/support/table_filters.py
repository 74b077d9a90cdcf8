"""A table with a column of every type and different ranges in each file, and random filters in each reader's language."""

from __future__ import annotations

import string
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from math import inf, isinf, isnan, nan
from operator import and_, or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import random
    from collections.abc import Container, Iterator

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
BEGIN = datetime(2026, 1, 31, 12)
INNER = pa.struct(
    [
        ("a", pa.int64()),
        ("t", pa.string()),
        ("x", pa.float64()),
        ("deep", pa.struct([("z", pa.int32()), ("day", pa.date32())])),
    ]
)
SCHEMA = pa.schema(
    {
        "part": pa.string(),
        "flag": pa.bool_(),
        "tiny": pa.int8(),
        "small": pa.int16(),
        "i": pa.int32(),
        "n": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "price": pa.decimal128(9, 2),
        "fine": pa.decimal128(12, 6),
        "wide": pa.decimal128(38, 10),
        "word": pa.string(),
        "body": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "raw": pa.binary(),
        "void": pa.int64(),
        "inner": INNER,
        "tags": pa.list_(pa.string()),
        "dotted.name": pa.int64(),
        "tick`ed": pa.int64(),
        "comma,ed": pa.int64(),
    }
)
#: Readers disagree about NaN.
FLOATING = {("f",), ("d",), ("inner", "x")}
#: pyiceberg reads a dot as struct access, compares no null partition, and refuses long decimals.
NOT_IN_ICEBERG = {("part",), ("dotted.name",), ("wide",)}
#: The paths that filters compare.
PATHS = [
    *((name,) for name in SCHEMA.names if name not in ("inner", "tags")),
    ("inner", "a"), ("inner", "t"), ("inner", "x"), ("inner", "deep", "z"), ("inner", "deep", "day"),
]  # fmt: skip


def columns() -> Any:
    """Return the columns with Spark's types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(SCHEMA, prefer_timestamp_ntz=True)


def type_of(path: tuple[str, ...]) -> pa.DataType:
    """Return the type of a column, or of a member of a struct."""
    kind = SCHEMA.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind


def value(rng: random.Random, kind: pa.DataType, level: int) -> Any:
    """Return a value that is not null; files of different levels have different, overlapping ranges."""
    number = level * 40 + rng.randrange(-50, 50)
    if pa.types.is_boolean(kind):
        return bool(level % 2) if rng.random() < 0.8 else rng.random() < 0.5
    if pa.types.is_integer(kind):
        extreme = (1 << (kind.bit_width - 1)) - 1
        return rng.choice([extreme, ~extreme]) if rng.random() < 0.01 else max(min(number, extreme), ~extreme)
    if pa.types.is_floating(kind):
        return rng.choice([nan, inf, -inf, -0.0]) if rng.random() < 0.03 else number / 4
    if pa.types.is_decimal(kind):
        digits = number * rng.choice([1, 7, 10**3]) if kind.precision < 38 else number * 10**28 + rng.randrange(10**20)
        return Decimal(digits).scaleb(-kind.scale)
    if pa.types.is_string(kind):
        start = string.ascii_lowercase[max(min(number // 12 + 5, 25), 0)]
        start += rng.choice(["", "é", "\ud7ff", "\U0010ffff", "😀"])
        return start * rng.choice([0, 1, 1, 40, 1500]) + rng.choice(["", "\0", str(number % 5)])
    if pa.types.is_date(kind):
        return rng.choice([date.min, date.max]) if rng.random() < 0.01 else date(2026, 1, 1) + timedelta(number)
    if pa.types.is_timestamp(kind):
        moment = BEGIN + timedelta(microseconds=number * rng.choice([1, 333, 10**6]))
        moment = rng.choice([datetime.min, datetime.max]) if rng.random() < 0.01 else moment
        return moment.replace(tzinfo=UTC) if kind.tz else moment
    if pa.types.is_struct(kind):
        return {item.name: maybe(rng, item.type, level) for item in kind}
    if pa.types.is_list(kind):
        return [str(number)]
    return bytes([max(min(number % 256, 255), 0)]) * 20


def maybe(rng: random.Random, kind: pa.DataType, level: int) -> Any:
    """Return a value or null."""
    return None if rng.random() < 0.05 else value(rng, kind, level)


def batches(rng: random.Random, count: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of micro-batches; in each, some columns have no nulls and some have only nulls."""
    for level in range(count):
        columns = {item.name: [maybe(rng, item.type, level) for _ in range(rows)] for item in SCHEMA}
        for item in SCHEMA:
            if level % 3 == 1:
                columns[item.name] = [value(rng, item.type, level) for _ in range(rows)]
        columns["part"] = [rng.choice(["even", "odd", None]) for _ in range(rows)]
        for name in rng.sample(SCHEMA.names[1:], 3):
            columns[name] = [None] * rows
        columns["void"] = [None if level < count - 1 else number for number in range(rows)]
        yield pa.RecordBatch.from_pydict(columns, SCHEMA)


@dataclass(frozen=True)
class Comparison:
    """A column, an operator (including ``is null`` and ``in``), and values."""

    path: tuple[str, ...]
    operator: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Combination:
    """Filters joined by ``and`` or ``or``, or one filter negated by ``not``."""

    operator: str
    parts: tuple[Any, ...]


Filter = Comparison | Combination


def filters(rng: random.Random, count: int, levels: int) -> list[Filter]:
    """Return random filters; the first ones compare each path with each operator once."""
    made: list[Filter] = [_comparison(rng, levels, path, rng.choice([*COMPARISONS, "in", "is null"])) for path in PATHS]
    while len(made) < count:
        made.append(_filter(rng, levels, 2))
    return made[:count]


def _filter(rng: random.Random, levels: int, depth: int) -> Filter:
    kind = rng.random()
    if not depth or kind < 0.4:
        return _comparison(rng, levels, rng.choice(PATHS), rng.choice([*COMPARISONS, "in", "is null"]))
    if kind < 0.5:
        return Combination("not", (_filter(rng, levels, depth - 1),))
    parts = tuple(_filter(rng, levels, depth - 1) for _ in range(rng.randrange(2, 4)))
    return Combination(rng.choice(["and", "or"]), parts)


def _comparison(rng: random.Random, levels: int, path: tuple[str, ...], operator: str) -> Comparison:
    count = {"is null": 0, "in": 3}.get(operator, 1)
    kind = type_of(path)
    if path == ("part",):
        return Comparison(path, operator, tuple(rng.choice(["even", "odd", "p"]) for _ in range(count)))
    return Comparison(path, operator, tuple(value(rng, kind, rng.randrange(levels)) for _ in range(count)))


def compares(each: Filter, paths: Container[tuple[str, ...]]) -> bool:
    """Return whether the filter compares one of these paths."""
    if isinstance(each, Comparison):
        return each.path in paths
    return any(compares(part, paths) for part in each.parts)


def as_arrow(each: Filter) -> Any:
    """Return the filter as a pyarrow expression."""
    import pyarrow.compute as pc

    if isinstance(each, Combination):
        parts = [as_arrow(part) for part in each.parts]
        return ~parts[0] if each.operator == "not" else reduce({"and": and_, "or": or_}[each.operator], parts)
    field, kind = pc.field(*each.path), type_of(each.path)
    if each.operator == "is null":
        return field.is_null()
    # Avoid isin, which treats null as a value that is not in the list.
    operator = "=" if each.operator == "in" else each.operator
    return reduce(or_, (_compared(field, operator, pa.scalar(each_value, kind)) for each_value in each.values))


def as_polars(each: Filter) -> Any:
    """Return the filter as a Polars expression."""
    import polars as pl

    if isinstance(each, Combination):
        parts = [as_polars(part) for part in each.parts]
        return ~parts[0] if each.operator == "not" else reduce({"and": and_, "or": or_}[each.operator], parts)
    column = pl.col(each.path[0])
    for name in each.path[1:]:
        column = column.struct.field(name)
    if each.operator == "is null":
        return column.is_null()
    literals: Any = pl.from_arrow(pa.array(each.values, type_of(each.path)))
    if each.operator == "in":
        return column.is_in(literals.implode())
    return _compared(column, each.operator, pl.lit(literals.first(), dtype=literals.dtype))


def as_iceberg(each: Filter) -> Any:
    """Return the filter as a pyiceberg expression."""
    from pyiceberg import expressions as e

    if isinstance(each, Combination):
        parts = [as_iceberg(part) for part in each.parts]
        return e.Not(parts[0]) if each.operator == "not" else reduce({"and": e.And, "or": e.Or}[each.operator], parts)
    name = e.Reference(".".join(each.path))
    if each.operator == "is null":
        return e.IsNull(name)
    kinds = {
        "=": e.EqualTo, "in": e.EqualTo, "!=": e.NotEqualTo, "<": e.LessThan, "<=": e.LessThanOrEqual,
        ">": e.GreaterThan, ">=": e.GreaterThanOrEqual,
    }  # fmt: skip
    return reduce(e.Or, (kinds[each.operator](name, each_value) for each_value in each.values))


def _compared(left: Any, operator: str, right: Any) -> Any:
    return {
        "=": left.__eq__, "!=": left.__ne__, "<": left.__lt__, "<=": left.__le__, ">": left.__gt__, ">=": left.__ge__,
    }[operator](right)  # fmt: skip


def as_sql(each: Filter, dialect: str) -> str:
    """Return the filter in the SQL of ``duckdb``, ``datafusion`` or ``spark``."""
    if isinstance(each, Combination):
        parts = [f"({as_sql(part, dialect)})" for part in each.parts]
        return f"not {parts[0]}" if each.operator == "not" else f" {each.operator} ".join(parts)
    quote = "`" if dialect == "spark" else '"'
    names = [quote + name.replace(quote, 2 * quote) + quote for name in each.path]
    column = names[0] + "".join(f"['{name}']" for name in each.path[1:]) if dialect == "datafusion" else ".".join(names)
    if each.operator == "is null":
        return f"{column} is null"
    literals = [_literal(each_value, type_of(each.path), dialect) for each_value in each.values]
    return (
        f"{column} in ({', '.join(literals)})" if each.operator == "in" else f"{column} {each.operator} {literals[0]}"
    )


def _literal(each: Any, kind: pa.DataType, dialect: str) -> str:
    if isinstance(each, bool):
        return str(each).lower()
    if isinstance(each, int):
        return f"cast({each} as bigint)" if each != -(1 << 63) else f"(cast({each + 1} as bigint) - 1)"
    if isinstance(each, float):
        text = "NaN" if isnan(each) else ("-" if each < 0 else "") + "Infinity" if isinf(each) else repr(each)
        name = "float" if pa.types.is_float32(kind) else "double"
        return f"cast('{text}' as {name})"
    if isinstance(each, Decimal):
        return f"cast('{each:f}' as decimal({kind.precision},{kind.scale}))"
    if isinstance(each, str):
        text = each.rstrip("\0")
        return f"concat('{text}', chr(0))" if text != each else f"'{text}'"
    if isinstance(each, bytes):
        return (
            f"X'{each.hex()}'" if dialect != "duckdb" else "'" + "".join(f"\\x{byte:02x}" for byte in each) + "'::blob"
        )
    if isinstance(each, datetime):
        text = each.replace(tzinfo=None).isoformat(" ", "microseconds")
        if dialect == "spark":
            return f"timestamp '{text}Z'" if kind.tz else f"timestamp_ntz '{text}'"
        if dialect == "duckdb":
            return f"timestamptz '{text}+00'" if kind.tz else f"timestamp '{text}'"
        zone = 'Some("UTC")' if kind.tz else "None"
        return f"arrow_cast('{text.replace(' ', 'T')}', 'Timestamp(Microsecond, {zone})')"
    assert isinstance(each, date)
    return f"date '{each.isoformat()}'" if dialect != "datafusion" else f"cast('{each.isoformat()}' as date)"
