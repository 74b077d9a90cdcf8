"""Options of a store on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from mainstem.errors import ConfigurationError

StoreOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-O", help="An option of the store, as in region=eu-west-1; repeatable."),
]


def options_of(texts: list[str] | None) -> dict[str, str]:
    """Returns options by name. Raises ConfigurationError for what is not of the form name=value."""
    for text in texts or []:
        if "=" not in text:
            raise ConfigurationError(f"--option: {text!r} is not of the form name=value")
    return dict(text.split("=", 1) for text in texts or [])
