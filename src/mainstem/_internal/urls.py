"""Splitting URLs, with errors in Mainstem's own words: Python's differ between versions, and show a password before the host."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

from mainstem._internal.host_names import problem_of
from mainstem.errors import ConfigurationError

_NETLOC = re.compile(r"(?P<scheme>[^:/?#]*)://(?P<user>[^/?#]*@)?(?P<address>[^/?#]*)")


def split_url(url: str, name: str = "", *, names_host: bool = True) -> SplitResult:
    """Split a URL like `urllib.parse.urlsplit`. Reading ``hostname`` and ``port`` of the result raises nothing.

    Args:
        url: The URL.
        name: What it is, at the beginning of the message; by default the URL without its user.
        names_host: Whether the URL names a host, as opposed to a bucket.

    Raises:
        ConfigurationError: No host or port can have that form.
    """
    match = _NETLOC.match(url)
    address = match["address"] if match else ""
    if problem := _problem(address, names_host=names_host):
        shown = f"{match['scheme']}://{url[match.start('address') :]}" if match else url
        raise ConfigurationError(f"{name or repr(shown)}: {problem}")
    try:
        return urlsplit(url)
    except ValueError:
        # Such as characters that normalization would turn into separators.
        raise ConfigurationError(f"{name or repr(url)}: the address contains characters that no host has") from None


def url_without_options(parts: SplitResult) -> str:
    """Return a URL without the options after ``?``, which can be secrets, and without a slash at its end."""
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")).rstrip("/")


def _problem(address: str, *, names_host: bool) -> str:
    """Return why text cannot be HOST:PORT, or nothing if it can."""
    host, colon, port = address.rpartition(":")
    if "[" in address or "]" in address:
        bracketed = re.fullmatch(r"\[([^][]*)\](?::(.*))?", address)
        if bracketed is None or not _is_v6(bracketed[1]):
            return "an IPv6 address must be in brackets, as in [::1]:4000"
        host, port = bracketed[1], bracketed[2] or ""
    elif address.count(":") > 1:
        return "an IPv6 address must be in brackets, as in [::1]:4000"
    elif not colon:
        host, port = address, ""
    if port and not (port.isascii() and port.isdigit() and int(port) <= 65535):
        return f"the port must be an integer from 0 to 65535 (got {port!r})"
    if names_host and host and (problem := problem_of(host)):
        return f"{host!r} is not a host name: {problem}"
    return ""


def _is_v6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
