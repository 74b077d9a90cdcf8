"""Certificates for development, and the fields of a peer's certificate."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest

from mainstem.aqueduct import make_certificates
from mainstem.aqueduct.certificates import describe_certificate
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("cryptography")


def test_a_certificate_has_the_fields_that_the_ssl_module_gives_it(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, names=("localhost", "127.0.0.1"), clients=["gauge"])
    for path in (files.certificate, files.clients["gauge"][0]):
        decode: Any = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]
        expected = decode(str(path))
        assert describe_certificate(ssl.PEM_cert_to_DER_cert(path.read_text())) == expected


def test_a_client_whose_name_is_no_file_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not the name of a file"):
        make_certificates(tmp_path, clients=["../gauge"])
