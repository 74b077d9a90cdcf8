"""A table of names for tests and demonstrations: another address the second time (behaviour, 22.2)."""

from __future__ import annotations

from typing import NamedTuple

from mainstem.aeron.channel_values import parse_address
from mainstem.errors import ConfigurationError


class _Row(NamedTuple):
    name: str
    key: str
    address: str
    again: str


class NameTable:
    """``name,uri-param,address,re-resolution-address|…``: which address stands for a name in which URI parameter.

    A name is a host, or a host with its port; an address without a port keeps that of the channel. Raises
    ConfigurationError for a row that is none.
    """

    def __init__(self, text: str) -> None:
        self._rows = [_row(part) for part in text.split("|") if part.strip()]
        if not self._rows:
            raise ConfigurationError("AERON_NAME_RESOLVER_INIT_ARGS: a csv_table resolver needs rows")

    def lookup(self, text: str, key: str, *, again: bool) -> str:
        """What stands for ``text``; ``again`` asks for the address that re-resolution finds."""
        host, port = parse_address(text)
        for row in self._rows:
            if row.key == key and row.name in (text, host):
                address = row.again if again else row.address
                return address if _has_port(address) else f"{address}:{port}"
        return text


def _row(text: str) -> _Row:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 4 or not all(parts):
        raise ConfigurationError(
            f"AERON_NAME_RESOLVER_INIT_ARGS: {text!r} is not a name, a URI parameter, an address and another address"
        )
    return _Row(*parts)


def _has_port(address: str) -> bool:
    try:
        parse_address(address)
    except ValueError:
        return False
    return True
