"""The names that codecs had when they only decoded, which keep working; ``mainstem.codecs`` is what they are now."""

from __future__ import annotations

from mainstem.codecs import Decoded as Parsed
from mainstem.codecs import codec_names
from mainstem.codecs.finding import instance
from mainstem.codecs.parsers import CodecParser, Parser, RowParser

__all__ = ["Parsed", "Parser", "RowParser", "find_parser", "parser_names"]


def parser_names() -> list[str]:
    """The names that ``find_parser`` accepts, besides ``module:Class``.

    Returns:
        As ``mainstem.codecs.codec_names``.

    Example:
        >>> parser_names()
        ['arrow', 'avro', 'csv', 'json', 'msgpack', 'protobuf', 'sbe']
    """
    return codec_names()


def find_parser(name: str, options: dict[str, str]) -> Parser:
    """Creates the parser of a name; ``mainstem.codecs.find_codec`` is the same for both directions.

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
    parser = instance(name, options)
    return parser if isinstance(parser, Parser) else CodecParser(parser)
