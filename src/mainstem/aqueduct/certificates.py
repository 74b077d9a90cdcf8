"""Certificates for development: an authority, and certificates for a server and clients signed by it."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem._internal.file_modes import write_private
from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as PrivateKey

DEFAULT_DAYS = 30
"""Development certificates are short-lived, so that none of them ends up in production."""


@dataclass(frozen=True, kw_only=True)
class CertificateFiles:
    """The paths of the files that `make_certificates` wrote.

    ``ca`` is for clients, and for servers that ask clients for certificates. ``certificate`` and ``key`` are for the server.
    ``clients`` maps the name of each client to its certificate and key.
    """

    ca: Path
    certificate: Path
    key: Path
    clients: dict[str, tuple[Path, Path]] = field(default_factory=dict)


class _Authority:
    """A certificate authority that exists only in memory."""

    def __init__(self, days: int) -> None:
        self._valid = datetime.timedelta(days=days)
        self._key = _make_key()
        self._name = _name("Mainstem development authority")
        self.certificate = self._sign(self._name, self._key, is_authority=True)

    def issue(self, subject: str, *extensions: x509.ExtensionType) -> tuple[x509.Certificate, PrivateKey]:
        key = _make_key()
        return self._sign(_name(subject), key, *extensions, is_authority=False), key

    def _sign(
        self, subject: x509.Name, key: PrivateKey, *extensions: x509.ExtensionType, is_authority: bool
    ) -> x509.Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + self._valid)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(_key_usage(is_authority=is_authority), critical=True)
            # RFC 5280, 4.2.1: since Python 3.13, `ssl` rejects chains without these extensions.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def make_certificates(
    directory: str | Path,
    *,
    names: Sequence[str] = ("localhost", "127.0.0.1", "::1"),
    days: int = DEFAULT_DAYS,
    clients: Sequence[str] = (),
) -> CertificateFiles:
    """Make ``ca.pem``, ``cert.pem`` and ``key.pem`` in a directory, and a certificate and key for each client.

    A client's files are ``NAME-cert.pem`` and ``NAME-key.pem``. Existing files are overwritten. The authority's own key is not
    saved, so it never signs any other certificate.

    Args:
        directory: The directory for the files, created if it is missing.
        names: The server's host names and addresses.
        days: Number of days for which the certificates are valid.
        clients: Names of clients, used as the common names of their certificates.

    Returns:
        The paths of all files.

    Raises:
        MissingExtraError: cryptography is not installed.
        ConfigurationError: A client's name is not a valid file name.

    Example:
        >>> files = make_certificates("certs")
        >>> server = serve(handler, certificate=files.certificate, key=files.key)
    """
    with needs_extras():
        from cryptography.hazmat.primitives import serialization
        from cryptography.x509 import ExtendedKeyUsage, SubjectAlternativeName
        from cryptography.x509.oid import ExtendedKeyUsageOID
    authority = _Authority(days)
    certificate, key = authority.issue(
        names[0],
        SubjectAlternativeName([_general_name(name) for name in names]),
        ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
    )
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    files = CertificateFiles(ca=folder / "ca.pem", certificate=folder / "cert.pem", key=folder / "key.pem")
    files.ca.write_bytes(authority.certificate.public_bytes(serialization.Encoding.PEM))
    _write_pair(files.certificate, files.key, certificate, key)
    for name in clients:
        if not name or Path(name).name != name:
            raise ConfigurationError(f"client name {name!r} is not a file name")
        files.clients[name] = folder / f"{name}-cert.pem", folder / f"{name}-key.pem"
        usage = ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        _write_pair(*files.clients[name], *authority.issue(name, usage))
    return files


_LONG_NAMES = {
    "2.5.4.3": "commonName",
    "2.5.4.5": "serialNumber",
    "2.5.4.6": "countryName",
    "2.5.4.7": "localityName",
    "2.5.4.8": "stateOrProvinceName",
    "2.5.4.10": "organizationName",
    "2.5.4.11": "organizationalUnitName",
    "1.2.840.113549.1.9.1": "emailAddress",
    "0.9.2342.19200300.100.1.25": "domainComponent",
}


def describe_certificate(der: bytes) -> dict[str, Any]:
    """Return the fields of a certificate in the form of :meth:`ssl.SSLSocket.getpeercert`."""
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(der)
    serial = certificate.serial_number
    fields: dict[str, Any] = {
        "subject": _describe_name(certificate.subject),
        "issuer": _describe_name(certificate.issuer),
        "version": certificate.version.value + 1,
        "serialNumber": serial.to_bytes((serial.bit_length() + 7) // 8, "big").hex().upper(),
        "notBefore": certificate.not_valid_before_utc.strftime("%b %e %H:%M:%S %Y GMT"),
        "notAfter": certificate.not_valid_after_utc.strftime("%b %e %H:%M:%S %Y GMT"),
    }
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return fields
    kinds = ((x509.DNSName, "DNS"), (x509.IPAddress, "IP Address"), (x509.RFC822Name, "email"))
    fields["subjectAltName"] = tuple(
        (label, str(name.value)) for name in names for kind, label in kinds if isinstance(name, kind)
    )
    return fields


def describe_invalid_time(der: bytes) -> str:
    """Return in which way a certificate is not valid now, such as "expired at 2026-01-31 00:00:00 UTC"; empty if it is."""
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(der)
    now = datetime.datetime.now(datetime.UTC)
    if now > certificate.not_valid_after_utc:
        return f"expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC"
    if now < certificate.not_valid_before_utc:
        return f"is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def _describe_name(name: x509.Name) -> tuple[tuple[tuple[str, str], ...], ...]:
    return tuple(
        tuple((_LONG_NAMES.get(part.oid.dotted_string, part.oid.dotted_string), str(part.value)) for part in parts)
        for parts in name.rdns
    )


def _write_pair(certificate_file: Path, key_file: Path, certificate: x509.Certificate, key: PrivateKey) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = serialization.Encoding.PEM
    certificate_file.write_bytes(certificate.public_bytes(pem))
    write_private(key_file, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    """Return the key usage: an authority's key signs certificates, any other key signs handshakes."""
    from cryptography.x509 import KeyUsage

    return KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _make_key() -> PrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> x509.Name:
    from cryptography.x509 import Name, NameAttribute
    from cryptography.x509.oid import NameOID

    return Name([NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    from cryptography.x509 import DNSName, IPAddress

    try:
        return IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return DNSName(name)
