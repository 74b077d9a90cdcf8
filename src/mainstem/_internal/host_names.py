"""Host names: looking them up, and checking them before Python does.

Python encodes a name before the system sees it, with a codec whose error messages differ between versions.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any


def problem_of(host: str) -> str:
    """Return why text cannot be a host name, or nothing if it could be one."""
    try:
        host.encode("idna")
    except UnicodeError:
        is_possible = False
    else:
        is_possible = "\0" not in host
    return "" if is_possible else "each part between dots must have 1 to 63 letters, digits or hyphens"


def look_up(host: str | None, port: int | None, kind: socket.SocketKind, flags: int = 0) -> list[Any]:
    """Like `socket.getaddrinfo`, but an impossible name raises ``gaierror`` too."""
    if host and (problem := problem_of(host)):
        raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is not a host name: {problem}")
    return socket.getaddrinfo(host, port, type=kind, flags=flags)


def numeric_address(host: str) -> str:
    """Return the numeric address of a host, IPv4 if it has one. It can block, unless it is numeric. Raises LookupError."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        entries = look_up(host, None, socket.SOCK_DGRAM)
    except socket.gaierror as error:
        raise LookupError(f"Unable to resolve host=({host}): unknown host") from error
    entries.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(entries[0][4][0])
