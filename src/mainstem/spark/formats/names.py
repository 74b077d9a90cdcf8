"""Column names that a table cannot hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from pyspark.sql.types import StructType

Path = tuple[str, ...]
"""A column's name, then those of the members of structs; ``element``, ``key`` and ``value`` are parts of lists and maps."""


def split_by_name(
    columns: StructType, key: Callable[[Path], Hashable], before: StructType | None = None
) -> tuple[StructType, list[str]]:
    """The columns and members of structs that a table can hold by their names, and the paths of the others.

    Args:
        columns: The columns.
        key: What the format tells names apart by.
        before: The columns that the table has.

    Returns:
        The columns without those whose key another column has, or whose name has a NUL, which ends a name in Arrow's C interface.
    """
    seen: dict[Hashable, Path] = {}
    refused: list[str] = []

    def is_free(path: Path) -> bool:
        return "\0" not in path[-1] and seen.setdefault(key(path), path) == path

    def held(kind: Any, path: Path) -> Any:
        """The type without members that cannot be held; None if nothing of it can."""
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
