"""Development certificates, and the fields of a peer's certificate."""

from __future__ import annotations

import contextlib
import ssl
import stat
from typing import TYPE_CHECKING, Any

import pytest

from mainstem.aqueduct import aio, make_certificates
from mainstem.aqueduct.certificates import describe_certificate
from mainstem.aqueduct.quic import pem_files
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("cryptography")


def test_certificates_have_the_fields_of_the_ssl_module(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, names=("localhost", "127.0.0.1"), clients=["gauge"])
    for path in (files.certificate, files.clients["gauge"][0]):
        decode: Any = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]
        expected = decode(str(path))
        assert describe_certificate(ssl.PEM_cert_to_DER_cert(path.read_text())) == expected


def test_a_client_name_must_be_a_valid_file_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a file name"):
        make_certificates(tmp_path, clients=["../gauge"])


def test_server_and_client_certificates_pass_strict_verification(tmp_path: Path) -> None:
    """Python 3.13 and later verify strictly by default."""
    files = make_certificates(tmp_path, clients=["gauge"])
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(files.certificate, files.key)
    client.load_cert_chain(*files.clients["gauge"])
    for context in (server, client):
        context.load_verify_locations(files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert ends[1].getpeercert()


def test_a_replaced_key_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, clients=["gauge"])
    keys = [files.key, files.clients["gauge"][1]]
    for key in keys:
        key.chmod(0o644)
    make_certificates(tmp_path, clients=["gauge"])
    assert [stat.S_IMODE(key.stat().st_mode) for key in keys] == [0o600, 0o600]


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
async def test_an_invalid_file_is_reported_before_anything_is_opened(tmp_path: Path, backend: str) -> None:
    pytest.importorskip(backend)
    files = make_certificates(tmp_path)
    bad = tmp_path / "bad.pem"
    bad.write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    for certificate, key in (
        (bad, files.key),
        (files.certificate, bad),
        (files.certificate, files.ca),
        (files.key, files.ca),
    ):
        with pytest.raises(ConfigurationError, match=rf"certificate '{certificate}' with key '{key}' cannot be used"):
            await aio.serve(print, certificate=certificate, key=key, backend=backend)  # type: ignore[arg-type]
    for ca in (bad, files.key):
        with pytest.raises(ConfigurationError, match=f"certificate authority '{ca}' has no certificate in PEM"):
            await aio.connect("localhost", 1, ca=ca, backend=backend)
    with pytest.raises(ConfigurationError, match="certificate '/nowhere' is not a file"):
        await aio.serve(print, certificate="/nowhere", key=files.key, backend=backend)  # type: ignore[arg-type]


def test_a_ca_file_is_checked_once_and_again_when_it_changes(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    pem_files._has_certificates.cache_clear()
    for _ in range(3):
        assert pem_files.read_authority(files.ca, "certificate authority") == str(files.ca)
    assert pem_files._has_certificates.cache_info().misses == 1
    files.ca.write_text("nothing")
    with pytest.raises(ConfigurationError, match="has no certificate in PEM"):
        pem_files.read_authority(files.ca, "certificate authority")
