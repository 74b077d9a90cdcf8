"""Where Mainstem runs: what needs Linux is refused elsewhere in one sentence."""

from __future__ import annotations

import sys

from mainstem.errors import ConfigurationError


def require_linux(what: str, *, instead: str = "") -> None:
    """Refuse elsewhere what uses calls that only Linux has. Raises ConfigurationError."""
    name: str = sys.platform  # a variable of its own: a type checker knows which system it runs on
    if not name.startswith("linux"):
        raise ConfigurationError(f"{what} needs Linux, and this is {name}" + (f": {instead}" if instead else ""))
