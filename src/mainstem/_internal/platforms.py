"""Platform checks: features that need Linux raise one clear error elsewhere."""

from __future__ import annotations

import sys

from mainstem.errors import ConfigurationError


def require_linux(what: str, *, instead: str = "") -> None:
    """Raise ConfigurationError for ``what``, which uses system calls that only Linux has, on other systems."""
    name: str = sys.platform  # annotated, since a type checker assumes the system that it runs on
    if not name.startswith("linux"):
        raise ConfigurationError(f"{what} needs Linux, and this is {name}" + (f": {instead}" if instead else ""))
