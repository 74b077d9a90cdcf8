"""Numeric limits are kept or refused by name, in the settings of every protocol, before anything is opened."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from mainstem import aqueduct, bymux, jmux
from mainstem._internal.validation import INT64_MAX, check_int, check_seconds
from mainstem.aqueduct import Limits, Settings
from mainstem.errors import BackPressured, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

NO_COUNTS: list[Any] = [-1, 0, 1.0, 0.5, True, None, "5", math.nan, math.inf, 1 << 64]
NO_TIMES: list[Any] = [-0.001, 0, math.nan, math.inf, -math.inf, None, "5", True]


@pytest.mark.parametrize("value", NO_COUNTS)
def test_an_invalid_count_is_rejected_by_name(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^bound=.*: must be an integer >= 1$"):
        check_int({"fine": 1, "bound": value}, min_value=1)


def test_every_count_within_is_accepted() -> None:
    check_int({"least": 1, "most": INT64_MAX}, min_value=1)
    check_int({"least": 0, "most": 7}, min_value=0, max_value=7)
    with pytest.raises(ConfigurationError, match=r"^most=8: must be an integer from 0 to 7$"):
        check_int({"most": 8}, min_value=0, max_value=7)


@pytest.mark.parametrize("value", NO_TIMES)
def test_an_invalid_time_is_rejected_by_name(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^pause=.*: must be a number of seconds > 0$"):
        check_seconds({"fine": 1, "pause": value})


def test_a_time_can_be_none_where_none_has_a_meaning() -> None:
    check_seconds({"pause": 0, "other": 0.0, "third": 5, "fourth": 10**400}, may_be_zero=True)
    with pytest.raises(ConfigurationError, match=">= 0"):
        check_seconds({"pause": -1e-9}, may_be_zero=True)


def numbers(settings: type) -> list[str]:
    """Return the names of the numeric settings."""
    made = settings()
    return [field.name for field in fields(settings) if type(getattr(made, field.name)) in (int, float)]


MADE: list[tuple[Callable[..., object], list[str]]] = [
    *((settings, numbers(settings)) for settings in (Limits, Settings, bymux.Settings, jmux.Settings)),
    (aqueduct.aio.channel, ["max_messages", "max_bytes"]),
]


# One value for each rule: the least, the kind, the greatest.
@pytest.mark.parametrize("value", [-1, "5", 1 << 70])
@pytest.mark.parametrize(("make", "names"), MADE, ids=lambda each: getattr(each, "__qualname__", ""))
def test_each_number_of_each_setting_is_checked(make: Callable[..., object], names: list[str], value: Any) -> None:
    for name in names:
        if value == 1 << 70 and name.endswith(("timeout", "alive", "interval")):
            continue  # a valid duration
        with pytest.raises(ConfigurationError, match=name):
            make(**{name: value})


@pytest.mark.parametrize("own", [-1, 0.5, 1 << 64])
def test_the_numbers_of_an_initial_stream_are_checked(own: Any) -> None:
    with pytest.raises(ConfigurationError, match="local_credit"):
        bymux.Settings(initial_streams=(bymux.InitialStream(0, local_credit=own),))
    with pytest.raises(ConfigurationError, match="initial stream id"):
        bymux.Settings(initial_streams=(bymux.InitialStream(own),))


def test_rejected_limits_leave_a_channels_limits_unchanged() -> None:
    sender, _ = aqueduct.aio.channel(max_messages=2)
    for refused in ({"max_messages": 0}, {"max_messages": 5, "max_bytes": 0}, {"max_messages": 5, "mode": "ordered"}):
        with pytest.raises(ConfigurationError):
            sender.configure(**refused)  # type: ignore[arg-type]
    for number in range(2):
        sender.try_send(number)
    with pytest.raises(BackPressured, match="limit is 2"):
        sender.try_send(2)
