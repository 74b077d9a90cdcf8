"""The TLS context that a client makes from its settings."""

from __future__ import annotations

import ssl

import pytest

from mainstem import bymux, jmux
from mainstem.errors import ConfigurationError
from mainstem.mux.tls import client_context

SETTINGS = [bymux.Settings, jmux.Settings]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_client_without_files_has_no_tls(settings: type[bymux.Settings | jmux.Settings]) -> None:
    assert client_context(None, settings()) is None


@pytest.mark.parametrize("settings", SETTINGS)
def test_an_empty_ca_does_not_turn_tls_off(settings: type[bymux.Settings | jmux.Settings]) -> None:
    context = client_context(None, settings(ca=""))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ConfigurationError, match="not both"):
        client_context(ssl.create_default_context(), settings(ca=""))
