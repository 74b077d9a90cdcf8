"""Check the PEM files that settings name, before a QUIC library reads them and fails with an error of its own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, PROTOCOL_TLS_SERVER, SSLContext

from mainstem.errors import ConfigurationError


def read_pem(path: str | Path | None, what: str) -> str:
    """Return the path of a PEM file as text. Raises ConfigurationError."""
    if path is None:
        raise ConfigurationError(f"a server needs a {what}; make one for development with `mainstem cert`")
    if not Path(path).is_file():
        raise ConfigurationError(f"{what} {str(path)!r} is not a file")
    return str(path)


def read_authority(path: str | Path | None, what: str) -> str:
    """Return the path of a file of authority certificates as text. Raises ConfigurationError."""
    text = read_pem(path, what)
    if not _has_certificates(Path(text).read_bytes()):
        raise ConfigurationError(f"{what} {text!r} has no certificate in PEM")
    return text


@lru_cache(maxsize=64)
def _has_certificates(pem: bytes) -> bool:
    """Return whether PEM text contains certificates. The result is cached, so that it is not parsed for each connection."""
    try:
        SSLContext(PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii", "replace"))
    except (OSError, ValueError):
        return False
    return True


def read_chain(certificate: str | Path | None, key: str | Path | None) -> tuple[str, str]:
    """Return the paths of a certificate and its key as text. Raises ConfigurationError."""
    chain = read_pem(certificate, "certificate"), read_pem(key, "key")
    try:
        SSLContext(PROTOCOL_TLS_SERVER).load_cert_chain(*chain, password="")
    except OSError as error:
        raise ConfigurationError(f"certificate {chain[0]!r} with key {chain[1]!r} cannot be used: {error}") from error
    return chain
