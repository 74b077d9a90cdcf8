"""A plugin of pytest for a tree without compiled modules (``-p tests.support.uncompiled_run``).

Uncompiled code refuses sockets and mapped files by name. A test that meets such a refusal is skipped; any other failure stays one.
The module of sockets cannot be imported there at all, so that one stands in for it whose transports are refused.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

REFUSAL = "the compiled modules: run 'make build'"


class UdpTransport:
    """Refused where it is made and not where it is imported: most drivers of unit tests have a network in memory."""

    def __init__(self, *_arguments: Any, **_settings: Any) -> None:
        raise ImportError(f"sockets need {REFUSAL} or install a wheel")


STAND_IN = ModuleType("mainstem._core.driver.udp")
STAND_IN.UdpTransport = UdpTransport  # type: ignore[attr-defined]
sys.modules[STAND_IN.__name__] = STAND_IN


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and REFUSAL in str(report.longrepr):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, "Skipped: needs the compiled modules")
    return report
