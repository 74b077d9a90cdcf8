"""Finds the lines that Arrow's parser of JSON will accept, for all of them at once.

Arrow reads many lines eight times faster than Python reads them singly, but refuses all of them for one bad line. After that,
two regular expressions go over the lines, in linear time (RE2): the first matches a line that is a JSON object, the second a
known field whose value is not of its type.

The filter is conservative: lines that it holds back are read singly, which is slower but never wrong. Lines that it passes may
still be refused by Arrow. The rows do not depend on it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

# Values inside values: each level makes the expression four times as long. Deeper lines are read one by one.
DEPTH = 2
SPACE = r"[ \t]*"
# Strings of well-formed UTF-8, byte by byte, and without half a surrogate pair, which no text column holds.
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
    """The lines that Arrow accepts for one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        patterns: dict[str, set[str]] = {}
        for name, kind in _fields(schema):
            patterns.setdefault(name, set()).add(_misfit(kind))
        # A name with different types at different depths is ambiguous.
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
            yield from _fields([kind.field(i) for i in range(kind.num_fields)])


def _misfit(kind: Any) -> str:
    """The first characters that a value of this type cannot have; empty if unknown."""
    import pyarrow.types as is_

    if is_.is_integer(kind):
        digits = len(str(2 ** (kind.bit_width - 1))) - 1
        sign = "" if is_.is_unsigned_integer(kind) else "-"
        return rf"[^{sign}0-9n \t]|-?[0-9]+[.eE]|-?[0-9]{{{digits + 1}}}"
    if is_.is_floating(kind):
        # Numbers that may have been rounded are read one by one.
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
