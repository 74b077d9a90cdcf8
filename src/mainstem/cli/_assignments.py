"""Settings on the command line, as name=value."""

from __future__ import annotations

from mainstem.errors import ConfigurationError

SET = "--set"


def assignments(words: list[str] | None) -> dict[str, str]:
    """Returns the values of ``--set`` by name. Raises ConfigurationError for one that is not name=value."""
    values: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigurationError(f"{SET} {word!r} is not name=value")
        values[name.strip()] = value.strip()
    return values
