"""Reading a Protobuf writer's values as a reader's types.

A parser knows only the reader's schema. It reads any field of the same wire type: an int64 read as an int32 loses half of its
bits, and a sint32 becomes twice its value. ``differences`` finds such fields by number, and ``restore`` puts the writer's value
into the reader's row. The column then holds that value exactly, or refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mainstem.codecs import protobuf_rows as kinds
from mainstem.codecs.protobuf_rows import is_map, is_repeated

# The types of each wire type. A parser reads a field of another wire type as an unknown one, which is rescued.
WIRE_TYPES = {
    **dict.fromkeys(
        (kinds.INT32, kinds.INT64, kinds.UINT32, kinds.UINT64, kinds.SINT32, kinds.SINT64, kinds.BOOL, kinds.ENUM), 0
    ),
    **dict.fromkeys((kinds.DOUBLE, kinds.FIXED64, kinds.SFIXED64), 1),
    **dict.fromkeys((kinds.STRING, kinds.BYTES, kinds.MESSAGE), 2),
    **dict.fromkeys((kinds.FLOAT, kinds.FIXED32, kinds.SFIXED32), 5),
    kinds.GROUP: 3,
}
# The types that a parser reads as another one without changing any value.
UNCHANGED = {
    kinds.INT32: {kinds.INT64, kinds.ENUM},
    kinds.UINT32: {kinds.UINT64, kinds.INT64},
    kinds.ENUM: {kinds.INT32, kinds.INT64},
    kinds.BOOL: {kinds.INT32, kinds.INT64, kinds.UINT32, kinds.UINT64},
    kinds.STRING: {kinds.BYTES},
    kinds.BYTES: {kinds.STRING},
}
_SPECIAL = {*kinds.TIMES, *kinds.WRAPPERS, *kinds.JSON}


@dataclass(frozen=True)
class Difference:
    """A field whose value the reader's schema changes: all of it, or the fields ``inner`` of its messages."""

    source: str
    target: str
    is_map: bool
    inner: tuple[Difference, ...] = ()


def differences(writer: Any, reader: Any) -> tuple[Difference, ...]:
    """Return the fields of two message descriptors whose values a parser with the reader's schema would change."""
    found = []
    for target in reader.fields:
        source = writer.fields_by_number.get(target.number)
        if source is None:
            continue
        own, other = source.message_type, target.message_type
        is_whole = _is_changed(source, target)
        if not is_whole and is_map(target):
            entries = [(own.fields_by_name[each], other.fields_by_name[each]) for each in ("key", "value")]
            is_whole = any(_is_changed(*entry) for entry in entries)
            own, other = (each.message_type for each in entries[1])
        is_message = own is not None and other is not None and other.full_name not in _SPECIAL
        inner = differences(own, other) if is_message and not is_whole else ()
        if is_whole or inner:
            found.append(Difference(source.name, target.name, is_map(target), inner))
    return tuple(found)


def restore(row: dict[str, Any], written: dict[str, Any], found: tuple[Difference, ...]) -> None:
    """Put the writer's values, from the row of the same message by the writer's schema, into the reader's row."""
    for each in found:
        value, mine = written[each.source], row[each.target]
        if not each.inner:
            is_one_of_many = isinstance(value, list) and len(value) == 1 and not isinstance(mine, list)
            row[each.target] = value[0] if is_one_of_many else value
        elif each.is_map:
            for key in value:
                restore(mine[key], value[key], each.inner)
        else:
            several = isinstance(value, list)
            for part, its in zip(mine if several else [mine], value if several else [value], strict=True):
                if its is not None:
                    restore(part, its, each.inner)


def _is_changed(source: Any, target: Any) -> bool:
    if is_repeated(source) and not is_repeated(target):
        # A parser keeps the last value.
        return True
    if source.type == target.type:
        names = {each.message_type.full_name for each in (source, target) if each.message_type is not None}
        return is_map(source) != is_map(target) or (len(names) > 1 and not names.isdisjoint(_SPECIAL))
    return WIRE_TYPES[source.type] == WIRE_TYPES[target.type] and target.type not in UNCHANGED.get(source.type, ())
