"""States of folds as bytes, for a checkpoint: dataclasses of numbers, texts, lists and dicts, as JSON.

A class is written under the name that it is registered with, not under its own: checkpoints outlive a renaming of the class.
"""

from __future__ import annotations

import json
from dataclasses import Field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_CLASSES: dict[str, type] = {}
_NAMES: dict[type, str] = {}
# The key beside a dataclass's fields that holds its registered name.
_MARK = "#"
WRITTEN_AS = "written as"
"""The key of a field's metadata that holds its name in checkpoints, where that is not the field's own."""
T = TypeVar("T")


def checkpointed(name: str) -> Callable[[type[T]], type[T]]:
    """Registers a dataclass under the name that checkpoints hold; the name never changes."""

    def register(kind: type[T]) -> type[T]:
        assert name not in _CLASSES, f"{name} is the name of two classes"
        _CLASSES[name], _NAMES[kind] = kind, name
        return kind

    return register


def registered_names() -> dict[str, type]:
    """The classes by the names that checkpoints hold."""
    return dict(_CLASSES)


def _plain(value: object) -> dict[str, object]:
    name = _NAMES.get(type(value))
    if name is None or not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} cannot be kept in a state")
    return {_MARK: name} | {_written(item): getattr(value, item.name) for item in fields(value)}


def _written(item: Field[Any]) -> str:
    return str(item.metadata.get(WRITTEN_AS, item.name))


def _instance(values: dict[str, Any]) -> Any:
    name = values.pop(_MARK, None)
    if name is None:
        return values
    kind = _CLASSES[name]
    names = {_written(item): item.name for item in fields(kind)}
    return kind(**{names[key]: value for key, value in values.items()})


def dump(state: object) -> bytes:
    """A state as bytes. Keys of its dicts must be texts."""
    return json.dumps(state, default=_plain, separators=(",", ":")).encode()


def load(data: bytes) -> Any:
    """The state that ``dump`` wrote."""
    return json.loads(data, object_hook=_instance)
