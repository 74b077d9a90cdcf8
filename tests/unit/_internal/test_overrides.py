"""Settings given by name, in every family that accepts them."""

from __future__ import annotations

from typing import Any

import pytest

from mainstem import aqueduct, bymux, duologue, jmux
from mainstem._internal.overrides import apply_overrides
from mainstem.errors import ConfigurationError


def test_overrides_replace_fields_of_given_settings_or_of_the_defaults() -> None:
    base = bymux.Settings(peer_streams=3)
    assert apply_overrides(bymux.Settings, base, {"stream_window": 5}) == bymux.Settings(
        peer_streams=3, stream_window=5
    )
    assert apply_overrides(bymux.Settings, None, {"stream_window": 5}) == bymux.Settings(stream_window=5)


@pytest.mark.parametrize(
    ("call", "misspelt", "meant"),
    [
        (bymux.connect, "max_handler", "max_handlers"),
        (bymux.aio.connect, "stream_windw", "stream_window"),
        (jmux.connect, "ping_intervall", "ping_interval"),
        (jmux.aio.connect, "read_limits", "read_limit"),
        (aqueduct.connect, "max_stream", "max_streams"),
        (aqueduct.aio.connect, "idletimeout", "idle_timeout"),
        (duologue.connect, "heartbeat_timout", "heartbeat_timeout"),
        (duologue.aio.connect, "heartbeat_timout", "heartbeat_timeout"),
    ],
)
def test_a_misspelt_setting_is_reported_with_the_nearest_name(call: Any, misspelt: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{misspelt}' is not a setting of .*; did you mean {meant}"):
        call("127.0.0.1", 4433, **{misspelt: 3})
