"""Reads JSON lines into columns with Arrow's parser, and finds the rows in which it may have lost digits.

Arrow silently reads 9007199254740993.0 as a double that is one less, 1e400 as infinity, and large decimals modulo 2^128.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem.codecs.numerals import inexact_lines, is_held, places_of, times_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


# -- lines that Arrow's parser accepts ---------------------------------------------------------------------------------
#
# Arrow reads many lines eight times faster than Python reads them one by one, but refuses all of them because of one bad line. If
# it does, two regular expressions are applied to the lines, in linear time (RE2). The first matches a line that is a JSON object.
# The second matches a known field whose value has the wrong type.  The filter is conservative: lines that it rejects are read one
# by one, which is slower but never wrong. Arrow may still refuse lines that pass. The rows do not depend on the filter.


# Nesting depth that the expression covers. Each level makes it four times as long. Deeper lines are read one by one.
DEPTH = 2
SPACE = r"[ \t]*"
# Strings in well-formed UTF-8, byte by byte, without lone surrogates, which no string column can hold.
TEXT = (
    r'"(?:[\x20\x21\x23-\x5b\x5d-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}'
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
    r'|\\(?:["\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})))*"'
)
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"


def _object(value: str) -> str:
    pair = f"{TEXT}{SPACE}:{SPACE}{value}{SPACE}"
    return rf"\{{{SPACE}(?:{pair}(?:,{SPACE}{pair})*)?\}}"


def _line() -> str:
    scalar = value = f"{TEXT}|{NUMBER}|true|false|null"
    for _ in range(DEPTH):
        item = f"(?:{value}){SPACE}"
        items = rf"\[{SPACE}(?:{item}(?:,{SPACE}{item})*)?\]"
        value = f"{scalar}|{_object(f'(?:{value})')}|{items}"
    return f"^{_object(f'(?:{value})')}$"


LINE = _line()


class Prefilter:
    """A filter for the lines that Arrow accepts for a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        patterns: dict[str, set[str]] = {}
        for name, kind in _fields(schema):
            patterns.setdefault(name, set()).add(_misfit(kind))
        # If a name has different types at different depths, it is ambiguous.
        known = [(name, each) for name, misfits in patterns.items() for each in misfits if each and len(misfits) == 1]
        self._misfits = "|".join(f'"{re.escape(name)}"{SPACE}:{SPACE}(?:{each})' for name, each in known)

    def accepts(self, lines: Sequence[bytes]) -> list[bool]:
        import pyarrow as pa
        import pyarrow.compute as pc

        column = pa.array(lines, pa.binary())
        good = pc.match_substring_regex(column, LINE)
        if self._misfits:
            good = pc.and_not(good, pc.match_substring_regex(column, self._misfits))
        return good.to_pylist()  # type: ignore[no-any-return]


def _fields(fields: Any) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa

    for item in fields:
        kind = item.type
        yield item.name, kind
        while pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            yield from _fields(kind)


def _misfit(kind: Any) -> str:
    """Return a pattern for the start of values that this type cannot have; empty if unknown."""
    import pyarrow.types as is_

    if is_.is_integer(kind):
        digits = len(str(2 ** (kind.bit_width - 1))) - 1
        sign = "" if is_.is_unsigned_integer(kind) else "-"
        return rf"[^{sign}0-9n \t]|-?[0-9]+[.eE]|-?[0-9]{{{digits + 1}}}"
    if is_.is_floating(kind):
        # Reject numbers that Arrow may round, so that they are read one by one.
        return r"[^-0-9n \t]|-?[0-9]{16}|-?[0-9.]+[eE]\+?[0-9]"
    if is_.is_boolean(kind):
        return r"[^tfn \t]"
    if is_.is_date(kind):
        return r'[^"n \t]|"(?:[^0-9]|[0-9]{0,3}[^0-9]|[0-9]{4}[^-])'
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_temporal(kind) or is_.is_decimal(kind):
        return r'[^"n \t]'
    if is_.is_struct(kind):
        return r"[^{n \t]"
    return r"[^\[n \t]" if is_.is_list(kind) else ""


# Maximum nesting depth. Arrow's inference recurs at each level, and crashes the process when it runs out of stack.
MAX_NESTING = 64
STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
BRACKETS = re.compile(rb"[\[\]{}]")
# Up to these values, integers are exact in floating point with that many bits.
EXACT = {16: 2.0**11, 32: 2.0**24, 64: 2.0**53}


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of JSON in a buffer, without line ends.

    Attributes:
        data: The text of all lines.
        bounds: The offset at which each line starts, and the end of the last one.
        origins: For each line, the index of its message.
    """

    data: pa.Buffer
    bounds: Any
    origins: Sequence[int]

    @classmethod
    def of(cls, lines: Sequence[bytes], origins: Sequence[int]) -> Lines:
        """Join lines into one buffer."""
        import numpy as np
        import pyarrow as pa

        bounds = np.zeros(len(lines) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)), out=bounds[1:])
        return cls(pa.py_buffer(b"".join(lines)), bounds, origins)

    @classmethod
    def of_array(cls, messages: pa.Array) -> Lines:
        """Use each value of an array of bytes as a line, without copying. The array must not have nulls."""
        import numpy as np

        _, offsets, data = messages.buffers()
        bounds = np.frombuffer(offsets, np.int32)[messages.offset : messages.offset + len(messages) + 1]
        start, end = int(bounds[0]), int(bounds[-1])
        return cls(data.slice(start, end - start), bounds.astype(np.int64) - start, range(len(messages)))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> bytes:
        start, end = int(self.bounds[index]), int(self.bounds[index + 1])
        line: bytes = self.data.slice(start, end - start).to_pybytes()
        return line

    def __iter__(self) -> Iterator[bytes]:
        return map(self.__getitem__, range(len(self)))

    def are_objects(self) -> bool:
        """Return whether each line starts and ends like an object. If there are also as many objects as lines, each line is one."""
        import numpy as np

        if not self.data.size or not (self.bounds[1:] > self.bounds[:-1]).all():
            return False
        raw = np.frombuffer(self.data, np.uint8)
        return bool((raw[self.bounds[:-1]] == ord("{")).all() and (raw[self.bounds[1:] - 1] == ord("}")).all())

    def has_control_characters(self) -> bool:
        """Return whether there are control characters, such as line ends."""
        import numpy as np

        return bool(np.frombuffer(self.data, np.uint8).min() < ord(" "))


def read_exactly(lines: Lines, schema: pa.Schema, *, rescues: bool) -> tuple[pa.Table, set[int]]:
    """Read all lines at once.

    Returns the table and the rows that must be read again. If ``rescues``, columns for fields that ``schema`` lacks follow its own
    columns. The fields of ``schema`` must be nullable. Raises ValueError or ArrowException if the lines must be read in another
    way.
    """
    import pyarrow as pa

    table = _read(lines, pa.schema([(item.name, _read_as(item.type)) for item in schema]), rescues=rescues)
    if table.num_rows != len(lines):
        raise ValueError("a line has several objects")
    doubtful: set[int] = set()
    floats = [kind for item in schema for kind in _leaves(item.type) if pa.types.is_floating(kind)]
    if floats:
        doubtful = inexact_lines(lines.bounds, lines.data, narrow=any(kind.bit_width < 64 for kind in floats))
    columns = []
    for item in schema:
        column = whole(table.column(item.name))
        # If a struct has fields that the schema lacks, the column's type differs.
        if column.type != _read_as(item.type):
            raise ValueError(f"{item.name} has other members")
        column, mask = _converted(column, item.type)
        columns.append(column)
        if mask is not None and mask.any():
            doubtful.update(mask.nonzero()[0].tolist())
    extra = table.column_names[len(schema) :]
    return pa.table([*columns, *(table.column(name) for name in extra)], names=[*schema.names, *extra]), doubtful


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return the chunks of a column as one array. A single chunk is not copied."""
    import pyarrow as pa

    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.combine_chunks().chunks)


def _read(lines: Lines, schema: pa.Schema, *, rescues: bool) -> pa.Table:
    import pyarrow as pa
    from pyarrow import json as arrow_json

    reading = arrow_json.ReadOptions(use_threads=False, block_size=lines.data.size + 1)

    def read(unexpected: str) -> pa.Table:
        parsing = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
        return arrow_json.read_json(pa.BufferReader(lines.data), reading, parsing)

    if rescues:
        try:
            return read("error")
        except pa.ArrowInvalid as error:
            if "unexpected field" not in str(error):
                raise
    if _is_any_deep(lines):
        raise ValueError(f"a line has more than {MAX_NESTING} values inside each other")
    return read("infer" if rescues else "ignore")


def _is_any_deep(lines: Lines) -> bool:
    """Return whether a line is nested more deeply than the limit."""
    import numpy as np

    # The bytes of the two opening brackets differ only in this bit.
    opening = places_of(np.frombuffer(lines.data, np.uint8), lambda part: (part | np.uint8(0x20)) == ord("{"))
    counts = np.diff(np.searchsorted(opening, lines.bounds))
    return any(_is_deep(lines[row]) for row in np.flatnonzero(counts > MAX_NESTING).tolist())


def _is_deep(line: bytes) -> bool:
    depth = 0
    for bracket in BRACKETS.findall(STRINGS.sub(b"", line)):
        depth += 1 if bracket in (b"[", b"{") else -1
        if depth > MAX_NESTING:
            return True
    return False


def _read_as(kind: Any) -> Any:
    """Return the type to read a field as: string for times and decimals, double for narrower floats."""
    import pyarrow as pa
    import pyarrow.types as is_

    if is_.is_temporal(kind) or is_.is_decimal(kind):
        return pa.string()
    if is_.is_floating(kind):
        return pa.float64()
    if is_.is_struct(kind):
        return pa.struct([item.with_type(_read_as(item.type)) for item in kind])
    return pa.list_(kind.value_field.with_type(_read_as(kind.value_type))) if is_.is_list(kind) else kind


def _leaves(kind: Any) -> list[Any]:
    import pyarrow.types as is_

    if is_.is_struct(kind):
        return [leaf for item in kind for leaf in _leaves(item.type)]
    return _leaves(kind.value_type) if is_.is_list(kind) else [kind]


def _converted(column: Any, kind: Any) -> tuple[Any, Any]:
    """Convert a column to its type. Also returns the rows that may have lost the original value, or None."""
    import pyarrow.types as is_

    if is_.is_struct(kind) and kind.num_fields:
        return _converted_struct(column, kind)
    if is_.is_list(kind):
        return _converted_list(column, kind)
    if is_.is_temporal(kind):
        return times_of(column, kind), None
    if is_.is_decimal(kind):
        return _decimals(column, kind)
    return _floats(column, kind) if is_.is_floating(kind) else (column, None)


def _converted_struct(column: Any, kind: Any) -> tuple[Any, Any]:
    import pyarrow as pa

    fields = list(kind)
    parts = [_converted(member, item.type) for member, item in zip(column.flatten(), fields, strict=True)]
    masks = [mask for _, mask in parts if mask is not None]
    whole = column
    if column.type != kind:
        whole = pa.StructArray.from_arrays([part for part, _ in parts], fields=fields, mask=column.is_null())
    return whole, sum(masks[1:], masks[0]) if masks else None


def _converted_list(column: Any, kind: Any) -> tuple[Any, Any]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    items, mask = _converted(column.flatten(), kind.value_type)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    if column.type != kind:
        offsets = pa.array(np.cumsum([0, *lengths], dtype=np.int32))
        column = pa.ListArray.from_arrays(offsets, items, type=kind, mask=column.is_null())
    if mask is None or not mask.any():
        return column, None
    rows = np.zeros(len(column), bool)
    rows[np.repeat(np.arange(len(column)), lengths)[mask]] = True
    return column, rows


def _decimals(column: Any, kind: Any) -> tuple[Any, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    digits = kind.precision - kind.scale
    plain = (
        rf"^-?[0-9]{{1,{max(digits, 1)}}}(\.[0-9]{{1,{kind.scale}}})?$"
        if kind.scale > 0
        else rf"^-?[0-9]{{1,{digits}}}$"
    )
    is_plain = pc.match_substring_regex(column, plain)
    doubtful = pc.fill_null(pc.invert(is_plain), False)
    if not pc.any(doubtful).as_py():
        return column.cast(kind), None
    return pc.if_else(is_plain, column, pa.scalar(None, pa.string())).cast(kind), doubtful.to_numpy(False)


def _floats(column: Any, kind: Any) -> tuple[Any, Any]:
    import numpy as np

    values = column.to_numpy(zero_copy_only=False)
    size = np.abs(values)
    with np.errstate(invalid="ignore", over="ignore"):
        doubtful = size >= EXACT[kind.bit_width]
        if kind.bit_width == 64:
            return column, doubtful
        narrow = column.cast(kind, safe=False)
        numbers = narrow.cast(column.type).to_numpy(zero_copy_only=False)
        for i in np.flatnonzero((numbers != values) & ~np.isnan(values) & ~doubtful).tolist():
            doubtful[i] = not is_held(repr(float(values[i])), float(numbers[i]))
    return narrow, doubtful
