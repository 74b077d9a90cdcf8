"""Immutable records that cost little at import: to type checkers ``frozen`` makes frozen dataclasses with slots.

``dataclasses`` writes and compiles the text of six methods for each frozen class, which takes about a millisecond. A driver has a
class for each command, response, frame and message, and starts often. So only ``__init__`` is written for a record; comparing,
hashing and printing are the same functions for all. ``dataclasses.fields`` and ``replace`` work as ever. That no field is
assigned to is held by the type checker alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Make a class whose annotations are its fields an immutable record, with keyword-only fields and slots."""
    recorded = dataclass(slots=True, kw_only=True, repr=False, eq=False)(cls)
    names = tuple(field.name for field in fields(recorded))  # type: ignore[arg-type]
    values: Callable[[Any], Any] = attrgetter(*names) if names else _nothing

    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    def shown(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    for name, method in (("__eq__", equal), ("__hash__", hashed), ("__repr__", shown)):
        if name not in cls.__dict__ or (name == "__hash__" and cls.__dict__[name] is None):
            setattr(recorded, name, method)
    return recorded


def _nothing(_: object) -> tuple[()]:
    """The values of a record without fields."""
    return ()
