"""Finds a codec by name: one of Mainstem's, one from another package, or ``package.module:Class``."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.codecs.base import Codec

GROUP = "mainstem.codecs"
OWN = {
    "avro": "mainstem.codecs.avro:Avro",
    "json": "mainstem.codecs.json_lines:JsonLines",
    "protobuf": "mainstem.codecs.protobuf:Protobuf",
    "csv": "mainstem.codecs.text:Csv",
    "msgpack": "mainstem.codecs.text:MessagePack",
    "arrow": "mainstem.codecs.arrow_ipc:ArrowIpc",
    "sbe": "mainstem.codecs.sbe:Sbe",
}


def codec_names() -> list[str]:
    """Return the names that ``find_codec`` accepts besides ``module:Class``.

    Returns:
        The names of Mainstem's codecs and of entry points in the group ``mainstem.codecs``, sorted.

    Example:
        >>> codec_names()
        ['arrow', 'avro', 'csv', 'json', 'msgpack', 'protobuf', 'sbe']
    """
    return sorted({*OWN, *(point.name for point in entry_points(group=GROUP))})


def find_codec(name: str, options: Mapping[str, str] | None = None) -> Codec:
    """Create a codec by name.

    Args:
        name: One of ``codec_names()``, or ``package.module:Class``.
        options: The codec's options, as on the command line.

    Returns:
        The codec.

    Raises:
        ConfigurationError: The codec does not exist, or an option is invalid.
        MissingExtraError: A package that the codec needs is not installed.

    Example:
        >>> codec = find_codec("csv", {"columns": "id,name", "delimiter": ";"})
        >>> codec.decode(b"1;x")
        [{'id': '1', 'name': 'x'}]
    """
    path = OWN.get(name) or (name if ":" in name else "")
    try:
        if path:
            module, _, attribute = path.partition(":")
            kind: Any = getattr(importlib.import_module(module), attribute)
        else:
            kind = next(point for point in entry_points(group=GROUP) if point.name == name).load()
    except (ImportError, AttributeError, StopIteration):
        raise ConfigurationError(f"unknown codec {name!r}; choose one of {', '.join(codec_names())}") from None
    try:
        codec: Codec = kind(**(options or {}))
        return codec
    except ConfigurationError:
        raise
    except (TypeError, ValueError, OSError) as error:
        raise ConfigurationError(f"codec {name!r}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class CodecChoice:
    """The options of commands that select a codec. Messages name an option by its field in backticks."""

    codec: str = ""
    codec_options: dict[str, str] = field(default_factory=dict)

    def chosen_codec(self) -> Codec | None:
        """Return the codec, or None if no name is given. Raises ConfigurationError."""
        if self.codec_options and not self.codec:
            raise ConfigurationError("`codec_options` needs `codec`")
        return find_codec(self.codec, self.codec_options) if self.codec else None
