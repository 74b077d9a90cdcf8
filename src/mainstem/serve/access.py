"""Who may read recordings: the bearer tokens of a server."""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

TOKEN_VARIABLE = "MAINSTEM_SERVE_TOKEN"
# 16 characters of base64 are 96 bits. Shorter tokens could be guessed.
MIN_TOKEN_LENGTH = 16
MAX_TOKEN_LENGTH = 4096
# While a token is being replaced, both the old and the new one are valid.
MAX_TOKENS = 16


class Access:
    """The tokens of a server, as digests. If there are no tokens, every request may read."""

    def __init__(self, tokens: tuple[str, ...] = ()) -> None:
        if len(tokens) > MAX_TOKENS:
            raise ConfigurationError(f"{len(tokens)} tokens: at most {MAX_TOKENS} are read")
        for token in tokens:
            if not MIN_TOKEN_LENGTH <= len(token) <= MAX_TOKEN_LENGTH or not token.isascii() or not token.isprintable():
                raise ConfigurationError(
                    f"a token has {MIN_TOKEN_LENGTH} to {MAX_TOKEN_LENGTH} printable ASCII characters; one of"
                    f" {len(token)} characters is not usable"
                )
        self._digests = tuple(_digest(token) for token in tokens)

    @property
    def is_open(self) -> bool:
        return not self._digests

    def permits(self, authorization: str | None) -> bool:
        """Return whether the ``Authorization`` field of a request has one of the tokens."""
        if self.is_open:
            return True
        scheme, _, token = (authorization or "").partition(" ")
        digest = _digest(token.strip())
        # Always compare with all tokens, so that the time reveals neither which token matches nor how much of it.
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches) and scheme.lower() == "bearer"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def read_tokens(token_file: Path | None) -> tuple[str, ...]:
    """Return the tokens in a file, one per line, or the token in ``MAINSTEM_SERVE_TOKEN``. Raises ConfigurationError."""
    if token_file is None:
        token = os.environ.get(TOKEN_VARIABLE)
        if token is None:
            return ()
        if not token.strip():
            raise ConfigurationError(f"{TOKEN_VARIABLE} is empty: set it to a token, or unset it to serve without one")
        return (token.strip(),)
    try:
        text = token_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"`token_file`: {token_file}: {reason}") from None
    tokens = tuple(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    if not tokens:
        raise ConfigurationError(f"`token_file`: {token_file} holds no token: write one line with it")
    return tokens
