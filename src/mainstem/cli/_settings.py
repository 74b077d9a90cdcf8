"""The options that give settings: what their values are, and that they came by them."""

from __future__ import annotations

from typing import Annotated

import typer

from mainstem.errors import ConfigurationError

SET = "--set"
SetOption = Annotated[list[str] | None, typer.Option(SET, "-s", help="One setting, as name=value; repeatable.")]


def assignments(words: list[str] | None) -> dict[str, str]:
    """Returns the values of ``--set`` by name. Raises ConfigurationError for one that is not name=value."""
    values: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigurationError(f"{SET} {word!r} is not name=value")
        values[name.strip()] = value.strip()
    return values
