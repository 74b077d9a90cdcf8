"""Certificates for development: an authority, and a server's certificate that it signed."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_DAYS = 30
"""Development certificates are short-lived, so that none of them stays in production."""


@dataclass(frozen=True, kw_only=True)
class CertificateFiles:
    """Where the files are: ``ca`` for clients, ``certificate`` and ``key`` for the server."""

    ca: Path
    certificate: Path
    key: Path


def make_certificates(
    directory: str | Path, *, names: Sequence[str] = ("localhost", "127.0.0.1", "::1"), days: int = DEFAULT_DAYS
) -> CertificateFiles:
    """Make ``ca.pem``, ``cert.pem`` and ``key.pem`` in a directory. Files of these names are overwritten.

    The authority's own key is not kept: it signs this one certificate and nothing else.

    Args:
        directory: Where the files go; it is made if need be.
        names: Host names and addresses of the server.
        days: For how long the certificates are valid.

    Returns:
        The paths: ``ca`` for clients, ``certificate`` and ``key`` for the server.

    Raises:
        ConfigurationError: cryptography is not installed.

    Example:
        >>> files = make_certificates("certs")
        >>> server = await serve(handler, certificate=files.certificate, key=files.key)
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError as error:
        raise ConfigurationError("making certificates needs cryptography: pip install 'mainstem[quic]'") from error
    now = datetime.datetime.now(datetime.UTC)

    def build(
        subject: x509.Name,
        issuer: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        signer: ec.EllipticCurvePrivateKey,
        extensions: Sequence[tuple[x509.ExtensionType, bool]],
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=days))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(signer, hashes.SHA256())

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = named("Mainstem development authority")
    ca = build(authority, authority, ca_key.public_key(), ca_key, [(x509.BasicConstraints(True, None), True)])
    alternatives = x509.SubjectAlternativeName([_general_name(x509, name) for name in names])
    certificate = build(
        named(names[0]),
        authority,
        key.public_key(),
        ca_key,
        [
            (x509.BasicConstraints(False, None), True),
            (alternatives, False),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        ],
    )
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    files = CertificateFiles(ca=folder / "ca.pem", certificate=folder / "cert.pem", key=folder / "key.pem")
    pem = serialization.Encoding.PEM
    files.ca.write_bytes(ca.public_bytes(pem))
    files.certificate.write_bytes(certificate.public_bytes(pem))
    files.key.touch(mode=0o600)
    files.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return files


def _general_name(x509: Any, name: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
