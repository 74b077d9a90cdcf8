"""Formatting commands and responses for the event log, with the words and the order of the reference driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._internal.printable import printable
from mainstem.aeron.command.error_code import ErrorCode

if TYPE_CHECKING:
    from mainstem.aeron.driver.event_log.events import Event


def record_text(event: Event, record: object) -> str:
    parts = []
    for each in event.line.split():
        field, _, word = each.partition("=")
        parts.append(f"{word or _camel_case(field)}={_value(field, getattr(record, field))}")
    return " ".join(parts)


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _value(field: str, value: Any) -> str:
    if field == "error_code":
        return ErrorCode(value).name
    if field == "token":
        return str(len(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex()
    return printable(str(value))
