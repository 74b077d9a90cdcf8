"""Where Mainstem runs: what needs Linux is refused elsewhere in one sentence."""

from __future__ import annotations

import sys

from mainstem.errors import ConfigurationError


def require_linux(what: str, *, instead: str = "") -> None:
    """Refuses elsewhere what uses calls that only Linux has.

    Args:
        what: The beginning of the sentence.
        instead: What can be done here, the end of the sentence.

    Raises:
        ConfigurationError: This is another system.

    Example:
        >>> require_linux("A media driver")
    """
    name: str = sys.platform  # a variable of its own: a type checker knows which system it runs on
    if not name.startswith("linux"):
        raise ConfigurationError(f"{what} needs Linux, and this is {name}" + (f": {instead}" if instead else ""))
