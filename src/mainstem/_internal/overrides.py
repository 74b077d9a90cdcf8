"""Settings that an application passes by name, in addition to or instead of a settings object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


def apply_overrides(kind: type[T], settings: T | None, overrides: Mapping[str, Any]) -> T:
    """Return ``settings``, or the defaults of ``kind``, with some fields replaced.

    Raises ConfigurationError, which suggests the nearest name, for an unknown field name.
    """
    import dataclasses

    names = {field.name: field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in overrides:
        if name not in names:
            raise ConfigurationError(f"{name!r} is not a setting of {kind.__name__}{did_you_mean(name, names)}")
    if settings is None:
        return kind(**overrides)
    return dataclasses.replace(settings, **overrides)  # type: ignore[type-var]


def did_you_mean(name: str, names: Mapping[str, str]) -> str:
    """Return ``; did you mean X?`` for the value of the nearest key of ``names``; an empty text if none is near."""
    import difflib  # only misspelled names need it

    if name in names:
        return f"; did you mean {names[name]}?"
    longer = [meant for meant in names.values() if meant.startswith(name + "_")]
    near = longer or [names[key] for key in difflib.get_close_matches(name, list(names), 1)]
    return f"; did you mean {near[0]}?" if near else ""
