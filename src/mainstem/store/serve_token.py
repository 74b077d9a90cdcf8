"""The bearer token for a server of recordings, and which servers it can be sent to.

A token from the options belongs to the URL that the options are for. A token from the environment applies to everything that the
process reads. It is sent only to the hosts that a second variable names, because any other server could misuse it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_VARIABLE = "MAINSTEM_SERVE_TOKEN"
HOST_VARIABLE = "MAINSTEM_SERVE_TOKEN_HOST"
MAX_TOKEN_LENGTH = 4096


def token_for(options: Mapping[str, str], host: str, port: int) -> str:
    """Return the token for a server, or an empty string if there is none.

    Raises ConfigurationError if the token file cannot be read, or if a header cannot contain the token.
    """
    token = options.get("token", "")
    if not token and (path := options.get("token_file")):
        token = _read(path)
    if not token and is_named(host, port):
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if len(token) > MAX_TOKEN_LENGTH or not token.isascii() or not (token.isprintable() or not token):
        raise ConfigurationError("the token contains characters that a header cannot have")
    return token


def is_named(host: str, port: int) -> bool:
    """Return whether the environment allows sending its token to this server.

    The variable has ``HOST`` or ``HOST:PORT``, or several of them separated by commas.
    """
    bare = f"[{host}]" if ":" in host else host
    names = {name.strip().lower() for name in os.environ.get(HOST_VARIABLE, "").split(",")}
    return bool(names & {host.lower(), bare.lower(), f"{bare}:{port}".lower()})


def hint(host: str, port: int) -> str:
    """Return how to provide a token, for an error message."""
    text = f"the option token_file or token, or {TOKEN_VARIABLE} and {HOST_VARIABLE}"
    if os.environ.get(TOKEN_VARIABLE) and not is_named(host, port):
        text += f" ({TOKEN_VARIABLE} is set, but {HOST_VARIABLE} does not name {host})"
    return text


def _read(path: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"token_file: {path}: {getattr(error, 'strerror', None) or 'no text'}") from None
    token = next((line.strip() for line in lines if line.strip() and not line.startswith("#")), "")
    if not token:
        raise ConfigurationError(f"token_file: {path} holds no token")
    return token
