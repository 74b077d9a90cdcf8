"""Which parser a name means: one of ours, one that a package brings, or ``package.module:Class``."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from mainstem.spark.parsers.base import Parser

GROUP = "mainstem.parsers"
OWN = {
    "json": "mainstem.spark.parsers.text:JsonLines",
    "csv": "mainstem.spark.parsers.text:Csv",
    "msgpack": "mainstem.spark.parsers.text:MessagePack",
    "arrow": "mainstem.spark.parsers.arrow_ipc:ArrowIpc",
    "sbe": "mainstem.spark.parsers.sbe:Sbe",
}


def parser_names() -> list[str]:
    """The names that ``find_parser`` accepts, besides ``module:Class``.

    Returns:
        The names of Mainstem's parsers and of the entry points of ``mainstem.parsers``, sorted.

    Example:
        >>> parser_names()
        ['arrow', 'csv', 'json', 'msgpack', 'sbe']
    """
    return sorted({*OWN, *(point.name for point in entry_points(group=GROUP))})


def find_parser(name: str, options: dict[str, str]) -> Parser:
    """Creates the parser of a name.

    Args:
        name: One of ``parser_names()``, or ``package.module:Class``.
        options: The parser's options, as the command line has them.

    Returns:
        The parser.

    Raises:
        ConfigurationError: There is no such parser, or an option is wrong.

    Example:
        >>> find_parser("csv", {"columns": "id,name", "delimiter": ";"})
    """
    place = OWN.get(name) or (name if ":" in name else "")
    try:
        if place:
            module, _, attribute = place.partition(":")
            kind: Any = getattr(importlib.import_module(module), attribute)
        else:
            kind = next(point for point in entry_points(group=GROUP) if point.name == name).load()
    except (ImportError, AttributeError, StopIteration):
        raise ConfigurationError(f"there is no parser {name!r}; there are {', '.join(parser_names())}") from None
    try:
        parser: Parser = kind(**options)
    except (TypeError, ValueError, OSError) as error:
        raise ConfigurationError(f"parser {name!r}: {error}") from None
    return parser
