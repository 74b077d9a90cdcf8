"""Names of a package that are imported on first use, so that a program pays only for what it needs."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


def lazy_names(
    module: str, homes: Mapping[str, str], submodules: Collection[str] = (), *, guesses: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a module's ``__getattr__`` and ``__dir__``, for names by their defining module and for submodules.

    ``guesses`` says what to use for a name that another library has, or that one might expect; the AttributeError suggests it.
    """
    names = vars(sys.modules[module])

    def load(name: str) -> Any:
        if name in submodules:
            return import_module(f"{module}.{name}")
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}{hint(name)}")
        value = names[name] = getattr(import_module(homes[name]), name)
        return value

    def hint(name: str) -> str:
        if name.startswith("_"):  # asked for by programs, not typed
            return ""
        from mainstem._internal.overrides import did_you_mean  # only a wrong name needs it

        return did_you_mean(
            name, {each: each for each in list_names() if not each.startswith("_")} | dict(guesses or {})
        )

    def list_names() -> list[str]:
        return sorted({*names, *homes, *submodules})

    return load, list_names
