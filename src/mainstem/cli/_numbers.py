"""Numbers that options take."""

from __future__ import annotations

import typer

MAX_NUMBER = 1e9  # seconds of thirty years: what is more is a slip, and clocks and waits overflow at infinity


def finite(value: float) -> float:
    """Returns a number; a callback of options. Raises BadParameter for nan, infinity and what no one means."""
    if not abs(value) <= MAX_NUMBER:  # nan compares with nothing
        raise typer.BadParameter(f"{value} is not a number up to {MAX_NUMBER:,.0f}")
    return value
