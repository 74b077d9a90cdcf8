"""A starting driver keeps its predecessor's error log, whatever it contains."""

from __future__ import annotations

from mainstem.aeron.driver.directory_lock import _time


def test_an_invalid_time_is_printed_as_a_number() -> None:
    assert _time(1_700_000_000_000) == "2023-11-14 22:13:20.000+00:00"
    for impossible in ((1 << 63) - 1, -(1 << 63), 1 << 50):
        assert _time(impossible) == f"{impossible} ms"
