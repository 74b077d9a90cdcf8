"""Requests that are authorised by the client's TLS certificate.

python examples/mux_certificates.py
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mainstem import jmux
from mainstem.errors import Aborted

ALLOWED = {"ada.example"}


def common_name(session: jmux.aio.ServerSession) -> str:
    """Returns the name in the client's certificate, which the TLS handshake has verified."""
    certificate = session.peer_certificate or {}
    return next((value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"), "")


async def serve(session: jmux.aio.ServerSession) -> None:
    name = common_name(session)
    if name not in ALLOWED:
        session.reject(f"{name} is not allowed")
        return
    request = await session.read(-1)
    host, *_ = session.peer_address
    session.write(b"%s from %s sent %d bytes" % (name.encode(), host.encode(), len(request)))


class Authority:
    """Signs the certificates of this example, which trust no other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the example")])
        self.path = directory / "ca.pem"
        certificate = self.sign(self.name, self.key.public_key(), x509.BasicConstraints(True, None))
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def sign(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self.name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        return builder.sign(self.key, hashes.SHA256())

    def context(self, purpose: ssl.Purpose, name: str) -> ssl.SSLContext:
        """A context with a certificate for ``name``, for a peer whose certificate this authority has signed."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        path = self.directory / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + self.sign(subject, key.public_key(), names).public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.create_default_context(purpose, cafile=str(self.path))
        context.verify_mode = ssl.CERT_REQUIRED  # of a server too: no client without a certificate
        context.load_cert_chain(path)
        return context


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(Path(directory))
        server = authority.context(ssl.Purpose.CLIENT_AUTH, "localhost")
        async with jmux.aio.serve(serve, "127.0.0.1", 0, ssl=server) as listener:
            for name in ("ada.example", "eve.example"):
                context = authority.context(ssl.Purpose.SERVER_AUTH, name)
                async with jmux.aio.connect(
                    "127.0.0.1", listener.port, ssl=context, server_hostname="localhost"
                ) as client:
                    try:
                        print((await client.request(b"request")).decode())
                    except Aborted as error:
                        print(error)


if __name__ == "__main__":
    asyncio.run(main())
