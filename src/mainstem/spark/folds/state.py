"""States of folds as bytes, for a checkpoint: dataclasses of numbers, texts, lists and dicts, as JSON."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

_KEPT: dict[str, type] = {}
_MARK = "#"
T = TypeVar("T")


def kept(kind: type[T]) -> type[T]:
    """Lets ``load`` make objects of a dataclass again."""
    _KEPT[kind.__name__] = kind
    return kind


def _plain(value: object) -> dict[str, object]:
    if not is_dataclass(value) or type(value).__name__ not in _KEPT:
        raise TypeError(f"{type(value).__name__} cannot be kept in a state")
    return {_MARK: type(value).__name__} | {item.name: getattr(value, item.name) for item in fields(value)}


def _made(found: dict[str, Any]) -> Any:
    name = found.pop(_MARK, None)
    return found if name is None else _KEPT[name](**found)


def dump(state: object) -> bytes:
    """A state as bytes. Keys of its dicts must be texts."""
    return json.dumps(state, default=_plain, separators=(",", ":")).encode()


def load(data: bytes) -> Any:
    """The state that ``dump`` wrote."""
    return json.loads(data, object_hook=_made)
