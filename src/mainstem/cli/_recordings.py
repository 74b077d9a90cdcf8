"""What the commands that read recordings share: which of them, and which part of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem.errors import ConfigurationError
from mainstem.units import parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

PlaceArgument = Annotated[
    str, typer.Argument(help="Where the recordings are: a directory, or a URL as in s3://bucket/tides.")
]
RecordingOption = Annotated[
    list[int] | None, typer.Option("--recording", "-R", help="Only this recording; repeatable.")
]
SessionOption = Annotated[list[int] | None, typer.Option("--session", help="Only this session id; repeatable.")]
FROM_HELP = "Begin at a position, or at a time as in 2026-01-31T12:00:00 (UTC)."
TO_HELP = "End before a position, or before a time."
StoreOption = Annotated[
    list[str] | None,
    typer.Option("--store-option", help="An option of the store, as in endpoint_override=127.0.0.1:9000; repeatable."),
]


def filters(*, begin: str = "", end: str = "", **ids: Sequence[int] | None) -> list[tuple[str, str, Any]] | None:
    """The filters of ``Recordings.scan`` for these options; None for all rows."""
    chosen: list[tuple[str, str, Any]] = [(name, "in", list(values)) for name, values in ids.items() if values]
    for text, option, operator in ((begin, "--from", ">="), (end, "--to", "<")):
        if text.isdecimal():
            chosen.append(("position", operator, int(text)))
        elif text:
            expected = "neither a position nor a time as in 2026-01-31T12:00:00"
            chosen.append(("recorded_at", operator, parse_time(text, name=option, expected=expected)))
    return chosen or None


def pairs(options: Sequence[str] | None, option: str) -> dict[str, str]:
    """Options in the form NAME=VALUE. Raises ConfigurationError."""
    out = {}
    for text in options or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"{option}: {text!r} is not NAME=VALUE")
        out[name] = value
    return out
