"""The option that gives single settings."""

from __future__ import annotations

from typing import Annotated

import typer

from mainstem.cli._assignments import SET

SetOption = Annotated[list[str] | None, typer.Option(SET, "-s", help="One setting, as name=value; repeatable.")]
