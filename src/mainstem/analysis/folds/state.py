"""States of folds as JSON bytes for a checkpoint: dataclasses of numbers, texts, lists and dicts.

A class is written under its registered name, because checkpoints outlive a renaming of the class. A later release may add
fields with defaults; states without them stay readable. Any other change needs a new version.
"""

from __future__ import annotations

import json
from dataclasses import Field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

_CLASSES: dict[str, type] = {}
_NAMES: dict[type, str] = {}
# The key beside a dataclass's fields that holds its registered name.
_MARK = "#"
WRITTEN_AS = "written as"
"""The key of a field's metadata that holds its name in checkpoints, where that is not the field's own."""
VERSION = 1
# Version 0 is the state alone.
_VERSION, _STATE = "version", "state"
T = TypeVar("T")


def checkpointed(name: str) -> Callable[[type[T]], type[T]]:
    def register(kind: type[T]) -> type[T]:
        assert name not in _CLASSES, f"{name} is the name of two classes"
        _CLASSES[name], _NAMES[kind] = kind, name
        return kind

    return register


def registered_names() -> dict[str, type]:
    """The classes by their names in checkpoints."""
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
    if unknown := sorted(values.keys() - names.keys()):
        raise ConfigurationError(f"the checkpoint's {name} has {unknown[0]!r}, which this release does not have")
    return kind(**{names[key]: value for key, value in values.items()})


def dump(state: object) -> bytes:
    return json.dumps({_VERSION: VERSION, _STATE: state}, default=_plain, separators=(",", ":")).encode()


def load(data: bytes) -> Any:
    """Read a state of this or an earlier release. Raises ConfigurationError for one of a later release."""
    state = json.loads(data, object_hook=_instance)
    if not isinstance(state, dict):
        return state
    if state[_VERSION] > VERSION:
        raise ConfigurationError(
            f"the checkpoint has states of version {state[_VERSION]}; this release reads up to version {VERSION}"
        )
    return state[_STATE]
