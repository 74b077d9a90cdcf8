"""Parsers: payloads to typed columns. Those of other packages are entry points of the group ``mainstem.parsers``."""

from mainstem.spark.parsers.base import Parsed, Parser, RowParser
from mainstem.spark.parsers.registry import find_parser, parser_names

__all__ = ["Parsed", "Parser", "RowParser", "find_parser", "parser_names"]
