"""Parses the ports of a protocol."""

from __future__ import annotations

from mainstem.errors import ConfigurationError


def parse_ports(text: str, name: str) -> tuple[int, ...]:
    """Parse ports such as ``20121,20122``. Raises ConfigurationError, whose message begins with the option's ``name``."""
    ports = []
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        if not part.isdecimal() or not 0 < int(part) < 65536:
            raise ConfigurationError(f"{name}: {part!r} is not a port (1 to 65535; separate several with commas)")
        ports.append(int(part))
    return tuple(ports)


def parse_aeron_ports(text: str, name: str = "aeronPorts") -> tuple[int, ...] | None:
    """Parse Aeron's UDP ports; return None for ``auto`` (every port) and an empty tuple for ``none``."""
    word = text.strip().lower()
    return None if word == "auto" else () if word == "none" else parse_ports(word, name)
