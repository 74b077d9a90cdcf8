"""Compares a table's columns with those being written, and merges them if the table may evolve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError
from mainstem.spark.codec_columns import folded

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from pyspark.sql.types import DataType, StructType


# -- names -------------------------------------------------------------------------------------------------------------


Path = tuple[str, ...]
"""The path of a column: its name, then the names of nested fields. Items of lists and maps are ``element``, ``key``, ``value``."""


def split_by_name(
    columns: StructType, key: Callable[[Path], Hashable], before: StructType | None = None
) -> tuple[StructType, list[str]]:
    """Split columns and their nested fields into those that a table can hold and the paths of the others.

    A name is refused if its ``key`` is taken by another column, either here or in the table (``before``), or if it contains a NUL,
    which ends a name in Arrow's C interface.
    """
    seen: dict[Hashable, Path] = {}
    refused: list[str] = []

    def is_free(path: Path) -> bool:
        return "\0" not in path[-1] and seen.setdefault(key(path), path) == path

    def held(kind: Any, path: Path) -> Any:
        """Return the type without refused fields, or None if no field remains."""
        from pyspark.sql.types import ArrayType, MapType, StructField, StructType

        if isinstance(kind, StructType):
            fields = []
            for item in kind.fields:
                place = (*path, item.name)
                member = held(item.dataType, place) if is_free(place) else None
                if member is None:
                    refused.append(".".join(place))
                else:
                    fields.append(StructField(item.name, member, item.nullable, item.metadata))
            return StructType(fields) if fields or not kind.fields else None
        if isinstance(kind, ArrayType):
            element = held(kind.elementType, (*path, "element")) if is_free((*path, "element")) else None
            return None if element is None else ArrayType(element, kind.containsNull)
        if isinstance(kind, MapType):
            if not is_free((*path, "key")) or not is_free((*path, "value")):
                return None
            value = held(kind.valueType, (*path, "value"))
            return None if value is None else MapType(kind.keyType, value, kind.valueContainsNull)
        return kind

    if before is not None:
        held(before, ())
        refused.clear()
    whole = held(columns, ())
    return type(columns)([]) if whole is None else whole, refused


# The Spark types that tables support, by their names without parameters.
TYPES = (
    "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
)  # fmt: skip


def check_types(columns: StructType, name_of_format: str) -> None:
    """Raise ConfigurationError, naming the column, if a format does not support a column's type."""

    def check(kind: Any, name: str) -> None:
        if isinstance(kind, dict):
            for member in kind.get("fields", ()):
                check(member["type"], f"{name}.{member['name']}" if name else member["name"])
            for part in ("elementType", "keyType", "valueType"):
                check(kind.get(part, "string"), name)
        elif kind.partition("(")[0] not in TYPES:
            raise ConfigurationError(
                f"the column {name!r} has the type {kind}, which {name_of_format} tables do not have"
            )

    check(columns.jsonValue(), "")


def check_names(columns: StructType, name_of_format: str, key: Callable[[Path], Hashable]) -> None:
    """Raise ConfigurationError if a format does not allow a column's name."""
    _, refused = split_by_name(columns, key)
    if refused:
        raise ConfigurationError(
            f"the column {refused[0]!r} cannot be in {name_of_format} tables: its name has a NUL, or another column or member "
            f"has the same name; rename it"
        )


def never(before: DataType, now: DataType) -> bool:  # noqa: ARG001
    return False


def difference(before: StructType, now: StructType) -> str:
    """Describe how two schemas differ. The text is empty if they do not."""
    old, new = ({item.name: item.dataType for item in kind.fields} for kind in (before, now))
    changes = [
        f"{name} is {old[name].simpleString()} in the table and {new[name].simpleString()} here"
        for name in old
        if name in new and plain(old[name]) != plain(new[name])
    ]
    changes += [f"{name} {old[name].simpleString()} is only in the table" for name in old if name not in new]
    changes += [f"{name} {new[name].simpleString()} is only here" for name in new if name not in old]
    return ", ".join(changes)


def united(
    before: StructType, now: StructType, widens: Callable[[DataType, DataType], bool] = never, *, strict: bool = True
) -> StructType:
    """Merge a table's columns with those being written, which come last. Merges nested fields too.

    ``widens`` tells whether the format can change a column from the first type to the second. Without ``strict``, a column whose
    type cannot change keeps the table's type. Raises ConfigurationError, naming the columns, if a type cannot change or a name
    differs only in case.
    """
    problems: list[str] = []
    whole = _united(before, now, widens, "", problems)
    if problems and strict:
        raise ConfigurationError(f"the table cannot change: {', '.join(problems)}")
    return whole


def _united(before: Any, now: Any, widens: Any, path: str, problems: list[str]) -> Any:
    from pyspark.sql.types import StructField, StructType

    new = {item.name: item for item in now.fields}
    fields = []
    for item in before.fields:
        kind = item.dataType
        if item.name in new:
            kind = _type(kind, new[item.name].dataType, widens, f"{path}{item.name}", problems)
        fields.append(StructField(item.name, kind, item.nullable, item.metadata))
    names = {folded(item.name): item.name for item in before.fields}
    for item in now.fields:
        other = names.setdefault(folded(item.name), item.name)
        if other != item.name:
            problems.append(f"{path}{item.name} differs only in case from {path}{other}")
        elif item.name not in {each.name for each in fields}:
            fields.append(StructField(item.name, item.dataType))
    return StructType(fields)


def _type(before: Any, now: Any, widens: Any, name: str, problems: list[str]) -> Any:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if plain(before) == plain(now):
        return before
    if isinstance(before, StructType) and isinstance(now, StructType):
        return _united(before, now, widens, f"{name}.", problems)
    if isinstance(before, ArrayType) and isinstance(now, ArrayType):
        element = _type(before.elementType, now.elementType, widens, f"{name}.element", problems)
        return ArrayType(element, before.containsNull)
    if isinstance(before, MapType) and isinstance(now, MapType):
        value = _type(before.valueType, now.valueType, widens, f"{name}.value", problems)
        key = _type(before.keyType, now.keyType, never, f"{name}.key", problems)
        return MapType(key, value, before.valueContainsNull)
    if widens(before, now):
        return now
    if not widens(now, before):
        problems.append(f"{name} is {before.simpleString()} in the table and {now.simpleString()} here")
    return before


def plain(kind: Any) -> Any:
    """Return a type as JSON, without nullability and metadata."""
    if isinstance(kind, str):
        return kind
    value = kind.jsonValue() if hasattr(kind, "jsonValue") else kind
    if isinstance(value, dict):
        ignored = ("nullable", "metadata", "containsNull", "valueContainsNull")
        return {name: plain(each) for name, each in value.items() if name not in ignored}
    return [plain(each) for each in value] if isinstance(value, list) else value
