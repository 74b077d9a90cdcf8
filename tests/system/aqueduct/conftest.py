"""Certificates for the tests in this directory, generated once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainstem.aqueduct import make_certificates

if TYPE_CHECKING:
    from mainstem.aqueduct.certificates import CertificateFiles

pytest.importorskip("qh3")
pytest.importorskip("aioquic")
pytest.importorskip("cryptography")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificates(tmp_path_factory.mktemp("certificates"))
