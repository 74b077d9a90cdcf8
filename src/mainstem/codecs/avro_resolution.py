"""Reading an Avro writer's values as a reader's logical types.

fastavro resolves a writer's schema with a reader's, but it applies a logical type to the other schema's plain number or bytes: a
decimal of scale 2 read with scale 4 is a hundredth of what was written. ``resolved`` finds each pair of types and gives the
reader's type a conversion from the writer's value, which is exact or raises ValueError.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.codecs.avro_schema import logical_value, to_decimal, to_scale

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from mainstem.codecs.avro_schema import Type

# What a logical type's number counts from, and how many of its units are in a second.
UNITS = {
    "time-millis": ("midnight", 10**3), "time-micros": ("midnight", 10**6),
    "timestamp-millis": ("1970 in UTC", 10**3), "timestamp-micros": ("1970 in UTC", 10**6),
    "timestamp-nanos": ("1970 in UTC", 10**9),
    "local-timestamp-millis": ("1970 in local time", 10**3), "local-timestamp-micros": ("1970 in local time", 10**6),
    "local-timestamp-nanos": ("1970 in local time", 10**9),
}  # fmt: skip
# The plain types that a reader may read as another type, without a change of the value.
PROMOTIONS = {
    "int": {"long", "float", "double"}, "long": {"float", "double"}, "float": {"double"}, "string": {"bytes"}, "bytes": {"string"},
}  # fmt: skip


def agree(writer: Type, reader: Type) -> bool:
    """Return whether all pairs of a writer's and a reader's types have the same logical types."""
    if "union" in (writer.kind, reader.kind):
        return all(agree(each, match) for each, match in _branches(writer, reader))
    if writer.kind == reader.kind == "record":
        return all(agree(each, match) for each, match in _fields(writer, reader).values())
    if writer.items is not None and reader.items is not None:
        return agree(writer.items, reader.items)
    return _meaning(writer) == _meaning(reader) and not _is_text_and_decimal(writer, reader)


def resolved(writer: Type | None, reader: Type, path: str = "") -> Type:
    """Return the reader's type for values that were written with the writer's, and read without any logical type.

    ``writer`` is None for a part that the writer lacks, which has the reader's default.
    """
    if reader.kind == "union":
        return _resolved_union(writer, reader, path)
    if writer is not None and writer.kind == "union":
        present = writer.present
        if len(present) > 1 and not all(agree(each, reader) for each in present):
            return replace(reader, convert=_refusal(f"{path[:-1]}: the writer's union has other logical types"))
        return resolved(present[0] if len(present) == 1 else None, reader, path)
    if reader.kind == "record":
        pairs = _fields(writer, reader) if writer is not None and writer.kind == "record" else {}
        fields = [
            (name, resolved(pairs[name][0] if name in pairs else None, each, f"{path}{name}."), has_default)
            for name, each, has_default in reader.fields
        ]
        return replace(reader, fields=fields)
    if reader.items is not None:
        return replace(reader, items=resolved(writer.items if writer is not None else None, reader.items, path))
    return replace(reader, convert=_conversion(writer or reader, reader, path[:-1]))


def _resolved_union(writer: Type | None, reader: Type, path: str) -> Type:
    present = reader.present
    if len(present) == 1:
        # A single branch needs no choice, so its pair is known.
        inner = resolved(writer, present[0], path)
        return replace(reader, branches=[inner if each is present[0] else each for each in reader.branches])
    if writer is not None and not agree(writer, reader):
        return replace(
            reader, convert=_refusal(f"{path[:-1]}: the writer's type has other logical types than the union")
        )
    return replace(reader, branches=[resolved(None, each, path) for each in reader.branches])


def _conversion(writer: Type, reader: Type, path: str) -> Callable[[Any], Any] | None:
    """Return the function from a plain value of the writer's to the reader's value; None if no logical type is involved."""
    written, wanted = writer.annotation, reader.annotation
    if _is_text_and_decimal(writer, reader):
        return _refusal(f"{path}: {_named(writer)} is not {_named(reader)}")
    if not wanted:
        return None
    if wanted == "decimal":
        if written not in ("", "decimal"):
            return _refusal(f"{path}: {_named(writer)} is not {_named(reader)}")
        source = writer if written else reader
        return partial(_with_scale, source=source, reader=reader, path=path)
    if not written or written == wanted:
        return lambda value: logical_value(value, reader)
    if written not in UNITS or wanted not in UNITS or UNITS[written][0] != UNITS[wanted][0]:
        return _refusal(f"{path}: {_named(writer)} is not {_named(reader)}")
    return _rescaled(written, reader, path)


def _with_scale(value: bytes, source: Type, reader: Type, path: str) -> Decimal:
    number = to_decimal(value, source)
    try:
        to_scale(number, reader)
    except ValueError as error:
        raise ValueError(f"{path}: {number} is not exactly a {_named(reader)}") from error
    return number


def _rescaled(written: str, reader: Type, path: str) -> Callable[[int], Any]:
    # A column holds microseconds whichever its type, except nanoseconds as they are.
    per_second = UNITS[written][1]
    wanted = 10**9 if reader.annotation.endswith("nanos") else 10**6
    column = replace(reader, logical=reader.logical.replace("millis", "micros"))

    def convert(value: int) -> Any:
        number, rest = divmod(value * wanted, per_second)
        if rest:
            raise ValueError(f"{path}: {value} of a {written} is not a whole number of microseconds")
        return logical_value(number, column)

    return convert


def _refusal(reason: str) -> Callable[[Any], Any]:
    def refuse(_value: Any) -> Any:
        raise ValueError(reason)

    return refuse


def _meaning(kind: Type) -> tuple[str, int, int]:
    return kind.annotation, kind.precision, kind.scale


def _is_text_and_decimal(writer: Type, reader: Type) -> bool:
    """Return whether one is a string and the other a decimal, whose bytes Avro would exchange."""
    kinds = {(each.kind, each.annotation) for each in (writer, reader)}
    return ("string", "") in kinds and ("bytes", "decimal") in kinds


def _named(kind: Type) -> str:
    if kind.annotation == "decimal":
        return f"decimal({kind.precision}, {kind.scale})"
    return kind.annotation or kind.kind


def _fields(writer: Type, reader: Type) -> dict[str, tuple[Type, Type]]:
    """Return the pairs of types of the fields that both records have, by the reader's name."""
    own = {name: each for name, each, _ in reader.fields}
    pairs: dict[str, tuple[Type, Type]] = {}
    for name, each, _ in writer.fields:
        target = name if name in own else reader.field_aliases.get(name)
        if target is not None:
            pairs[target] = (each, own[target])
    return pairs


def _branches(writer: Type, reader: Type) -> list[tuple[Type, Type]]:
    """Return each branch of the writer's with the one of the reader's that fastavro reads it as: the first that it may be."""
    wanted = reader.branches if reader.kind == "union" else [reader]
    pairs = []
    for each in writer.branches if writer.kind == "union" else [writer]:
        pairs += [(each, branch) for branch in wanted if _may_be(each, branch)][:1]
    return pairs


def _may_be(writer: Type, reader: Type) -> bool:
    if writer.kind == reader.kind and writer.name and reader.name:
        short = writer.name.rpartition(".")[2]
        return short == reader.name.rpartition(".")[2] or short in reader.aliases
    return writer.kind == reader.kind or reader.kind in PROMOTIONS.get(writer.kind, ())
