"""The bearer token for a server of recordings, and which server may have it.

A token of the options belongs to the URL that they come with. The one in the environment is there for whatever the process reads,
so it is sent only to the hosts that a second variable names: any other server could use it against its owner.
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
    """Return the token for a server, empty if there is none. Raises ConfigurationError."""
    token = options.get("token", "")
    if not token and (path := options.get("token_file")):
        token = _read(path)
    if not token and is_named(host, port):
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if len(token) > MAX_TOKEN_LENGTH or not token.isascii() or not (token.isprintable() or not token):
        raise ConfigurationError("the token contains characters that a header cannot have")
    return token


def is_named(host: str, port: int) -> bool:
    """Whether the environment says that its token is for this server: ``HOST`` or ``HOST:PORT``, several with commas."""
    bare = f"[{host}]" if ":" in host else host
    names = {name.strip().lower() for name in os.environ.get(HOST_VARIABLE, "").split(",")}
    return bool(names & {host.lower(), bare.lower(), f"{bare}:{port}".lower()})


def hint(host: str, port: int) -> str:
    """How to give a token, for an error message."""
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
