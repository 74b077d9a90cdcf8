"""Records that cost next to nothing at import; to type checkers, ``frozen`` makes frozen dataclasses with slots.

``dataclasses`` loads the standard library's parser and disassembler, and compiles the source of six methods for each frozen class.
A driver has a class for each command, response, frame and message, starts often, and uses few of them at once. So all records
share the functions for comparing, hashing and printing, and ``__init__`` is generated when the first instance is created.
``dataclasses.fields`` and ``replace`` work as usual. Only the type checker prevents assignment to fields.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

# The default of a field without a default.
MISSING: Any = object()


def fields_of(cls: type[Any]) -> Mapping[str, Any]:
    """Return the fields of a record in order, with their defaults or ``MISSING``."""
    fields: Mapping[str, Any] = cls.__record_fields__
    return fields


def replaced(record: T, **changes: Any) -> T:
    """Return a copy of a record with some fields changed: ``dataclasses.replace`` without loading ``dataclasses``."""
    return type(record)(**{name: getattr(record, name) for name in fields_of(type(record))} | changes)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Make a class whose annotations are its fields an immutable record, with keyword-only fields and slots."""
    recorded = _slotted(cls)
    names = tuple(fields_of(recorded))
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


@dataclass_transform(eq_default=False, kw_only_default=True)
def mutable(cls: type[T]) -> type[T]:
    """Give a class whose annotations are its fields slots and keyword-only fields; an instance equals only itself."""
    return _slotted(cls)


def _slotted(cls: type[T]) -> type[T]:
    own = [name for name, kind in cls.__annotations__.items() if "ClassVar[" not in str(kind)]
    inherited = (base.__dict__.get("__record_fields__", {}) for base in reversed(cls.__mro__))
    fields = {name: default for base in inherited for name, default in base.items()}
    before = set(fields)
    fields |= {name: cls.__dict__.get(name, MISSING) for name in own}
    namespace = {name: value for name, value in cls.__dict__.items() if name not in own}
    for name in ("__dict__", "__weakref__"):
        namespace.pop(name, None)
    namespace["__slots__"] = tuple(name for name in own if name not in before)
    namespace["__record_fields__"] = fields
    namespace["__dataclass_fields__"] = _DataclassFields()

    def first(self: Any, **values: Any) -> None:
        initialize = _initializer(recorded, fields)
        recorded.__init__ = initialize
        initialize(self, **values)

    namespace["__init__"] = first
    metaclass: Any = type(cls)
    recorded: Any = metaclass(cls.__name__, cls.__bases__, namespace)
    recorded.__qualname__ = cls.__qualname__
    made: type[T] = recorded
    return made


def _initializer(cls: type[Any], fields: Mapping[str, Any]) -> Callable[..., None]:
    """Generate ``__init__`` with a keyword for each field."""
    keywords = [name if default is MISSING else f"{name}=fields[{name!r}]" for name, default in fields.items()]
    body = [f"self.{name} = {name}" for name in fields]
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    text = f"def __init__({', '.join(['self', *(['*'] if keywords else []), *keywords])}):\n " + "\n ".join(
        body or ["pass"]
    )
    made: dict[str, Any] = {}
    exec(text, {"__name__": cls.__module__, "fields": fields}, made)
    initialize: Callable[..., None] = made["__init__"]
    initialize.__qualname__ = f"{cls.__qualname__}.__init__"
    return initialize


class _DataclassFields:
    """The attributes that ``dataclasses`` expects of a class, created on first access."""

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        from dataclasses import dataclass

        record = next(each for each in owner.__mro__ if each.__dict__.get("__dataclass_fields__") is self)
        names = fields_of(record)
        kinds = {
            name: kind
            for each in reversed(record.__mro__)
            for name, kind in getattr(each, "__annotations__", {}).items()
        }
        namespace = {name: default for name, default in names.items() if default is not MISSING}
        twin: Any = dataclass(init=False, repr=False, eq=False, kw_only=True)(
            type(record.__name__, (), namespace | {"__annotations__": {name: kinds[name] for name in names}})
        )
        for name in ("__dataclass_params__", "__dataclass_fields__"):
            setattr(record, name, getattr(twin, name))
        return twin.__dataclass_fields__


def _nothing(_: object) -> tuple[()]:
    """Return the values of a record without fields."""
    return ()
