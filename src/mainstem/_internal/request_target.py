"""The target of an HTTP request: which path and query on which host it names."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """What a request names. ``host`` is empty if the request does not say."""

    path: str
    query: str
    host: str


def parse_target(target: str, host: str) -> Target | None:
    """Return what a request's target names, given its ``Host`` field; None if the target is invalid. Nothing is decoded.

    Besides a path, a server must accept the absolute form, whose host replaces that of the field (RFC 9112, 3.2.2).
    """
    if not target.startswith("/"):
        scheme, separator, rest = target.partition("://")
        if scheme.lower() not in ("http", "https") or not separator:
            return None
        end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
        host, target = rest[:end], rest[end:]
        if not host or "@" in host:
            return None
    path, _, query = target.partition("?")
    return Target(path or "/", query, host)
